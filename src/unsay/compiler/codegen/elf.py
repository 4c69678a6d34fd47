"""A linker for one object file: ELF64 relocatable in, flat position-independent bytes out.

Code and read-only data are laid one after the other; every reference must be PC-relative and inside the object.
Anything else (an undefined symbol, writable data, another relocation type) is a fault of the generator, by name.
AArch64 counts in pages of 4 KiB, so its blobs are to be mapped at one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITE, _ALLOC = 1, 2
_UNWIND = (".eh_frame",)


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    link: int
    info: int
    align: int
    data: bytes

    @property
    def loaded(self) -> bool:
        return bool(self.flags & _ALLOC) and self.name not in _UNWIND and len(self.data) > 0


def link(elf: bytes) -> tuple[bytes, dict[str, int]]:
    """(blob, offset of every named function); raises AssertionError naming what cannot be linked."""
    sections = _sections(elf)
    places, blob = _lay_out(sections)
    symbols = _symbols(sections)
    patches = _PATCHES[_machine(elf)]
    for section in sections:
        if section.kind == _RELA and section.info in places:
            _relocate(blob, section, places, symbols, patches)
    entries = {name: places[index] + value for name, index, value in symbols if name and index in places}
    return bytes(blob), entries


def _machine(elf: bytes) -> int:
    magic, kind, machine, *_ = _HEADER.unpack_from(elf)
    assert magic[:6] == b"\x7fELF\x02\x01" and kind == 1 and machine in _PATCHES, (magic, kind, machine)
    return machine


def _sections(elf: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(elf)
    table, size, count, names_index = header[6], header[11], header[12], header[13]
    rows = [_SECTION.unpack_from(elf, table + size * index) for index in range(count)]
    names = elf[rows[names_index][4] :]
    result: list[_Section] = []
    for name, kind, flags, _, offset, length, link_, info, align, _ in rows:
        text = names[name : names.index(b"\0", name)].decode()
        result.append(_Section(text, kind, flags, link_, info, align, elf[offset : offset + length]))
    return result


def _lay_out(sections: list[_Section]) -> tuple[dict[int, int], bytearray]:
    """Offset of each loaded section, and the bytes."""
    blob = bytearray()
    places: dict[int, int] = {}
    for index, section in enumerate(sections):
        if section.loaded:
            assert section.kind == _PROGBITS and not section.flags & _WRITE, f"section {section.name} is not constant"
            blob.extend(bytes(-len(blob) % max(section.align, 16)))
            places[index] = len(blob)
            blob.extend(section.data)
    return places, blob


def _symbols(sections: list[_Section]) -> list[tuple[str, int, int]]:
    """(name, section index, value) of every symbol."""
    (table,) = (section for section in sections if section.kind == _SYMTAB)
    names = sections[table.link].data
    result: list[tuple[str, int, int]] = []
    for start in range(0, len(table.data), _SYMBOL.size):
        name, _, _, index, value, _ = _SYMBOL.unpack_from(table.data, start)
        result.append((names[name : names.index(b"\0", name)].decode(), index, value))
    return result


Patch: TypeAlias = Callable[[int, int, int], int]
"""(what is there, as 32 bits; the address meant; the address of the reference) to what goes there."""


def _distance(_: int, target: int, place: int) -> int:
    """R_X86_64_PC32, R_X86_64_PLT32."""
    assert -(1 << 31) <= target - place < 1 << 31, (target, place)
    return target - place


def _branch(word: int, target: int, place: int) -> int:
    """R_AARCH64_CALL26, R_AARCH64_JUMP26: imm26, words."""
    distance = target - place
    assert -(1 << 27) <= distance < 1 << 27 and distance % 4 == 0, (target, place)
    return word & 0xFC00_0000 | distance >> 2 & 0x03FF_FFFF


def _page(word: int, target: int, place: int) -> int:
    """R_AARCH64_ADR_PREL_PG_HI21: pages between the two, in immlo (bits 29, 30) and immhi (bits 5 to 23)."""
    pages = (target >> 12) - (place >> 12)
    assert -(1 << 20) <= pages < 1 << 20, (target, place)
    return word & 0x9F00_001F | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


def _in_page(scale: int) -> Patch:
    """R_AARCH64_ADD_ABS_LO12_NC, R_AARCH64_LDST*_ABS_LO12_NC: imm12 (bits 10 to 21) in units of 2^scale bytes."""

    def patch(word: int, target: int, _: int) -> int:
        assert target % (1 << scale) == 0, (target, scale)
        return word & ~(0xFFF << 10) | (target & 0xFFF) >> scale << 10

    return patch


_PATCHES: dict[int, dict[int, Patch]] = {
    62: {2: _distance, 4: _distance},
    183: {
        275: _page, 277: _in_page(0), 278: _in_page(0), 282: _branch, 283: _branch, 284: _in_page(1),
        285: _in_page(2), 286: _in_page(3), 299: _in_page(4),
    },
}  # fmt: skip
"""By ELF machine (x86-64, AArch64) and relocation type."""


def _relocate(
    blob: bytearray,
    section: _Section,
    places: dict[int, int],
    symbols: list[tuple[str, int, int]],
    patches: dict[int, Patch],
) -> None:
    for start in range(0, len(section.data), _RELOCATION.size):
        offset, info, addend = _RELOCATION.unpack_from(section.data, start)
        name, index, value = symbols[int(info) >> 32]
        kind = int(info) & 0xFFFF_FFFF
        assert kind in patches, f"relocation type {kind} against {name!r} in {section.name}"
        assert index in places, f"undefined symbol {name!r}"
        where = places[section.info] + offset
        (word,) = struct.unpack_from("<I", blob, where)
        patched = patches[kind](word, places[index] + value + addend, where)
        struct.pack_into("<I", blob, where, patched & 0xFFFF_FFFF)
