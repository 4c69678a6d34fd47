"""128-bit addresses: region in the top nibble, a byte offset in the low 64 bits, and between them a tag.

    127    124 123      96 95     64 63                    0
    | region  |  zero     |   tag   |        offset        |

The tag is 0, or what a TENSOR instruction gave: the number under which the machine knows the tensor's type and shape,
so that a register that is copied, forked or restored still says which tensor it names.
"""

from __future__ import annotations

from unsay.errors import MachineError
from unsay.isa.opcodes import Region

PROGRAM_OFFSET = 2**63
"""GLOBAL from here on holds the program: its instructions, then its data, read-only. Below lie activations."""

_REGION_SHIFT = 124
_TAG_SHIFT = 64
_OFFSET_MASK = 2**64 - 1
_TAG_MASK = 2**32 - 1


def make_address(region: Region, offset: int, tag: int = 0) -> int:
    """The address of byte `offset` of a region."""
    assert 0 <= offset <= _OFFSET_MASK and 0 <= tag <= _TAG_MASK, (offset, tag)
    return region << _REGION_SHIFT | tag << _TAG_SHIFT | offset


def split_address(address: int) -> tuple[Region, int]:
    """Region and offset; raises MachineError for an address that is in none of the four regions."""
    region, offset = address >> _REGION_SHIFT, address & _OFFSET_MASK
    if region not in tuple(Region) or address != region << _REGION_SHIFT | address_tag(address) << _TAG_SHIFT | offset:
        raise MachineError(f"0x{address:032x} is not an address: no such region, or bits 96..123 are set")
    return Region(region), offset


def address_tag(address: int) -> int:
    """The tag; 0 where the address names no tensor."""
    return address >> _TAG_SHIFT & _TAG_MASK
