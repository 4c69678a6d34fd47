"""A linker for one object file: ELF64 relocatable in, flat position-independent bytes out.

Code and read-only data are laid one after the other; every reference must be PC-relative and inside the object.
Anything else (an undefined symbol, writable data, another relocation type) is a fault of the generator, by name.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITE, _ALLOC = 1, 2
_PC32, _PLT32 = 2, 4
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
    for section in sections:
        if section.kind == _RELA and section.info in places:
            _relocate(blob, section, places, symbols)
    entries = {name: places[index] + value for name, index, value in symbols if name and index in places}
    return bytes(blob), entries


def _sections(elf: bytes) -> list[_Section]:
    magic, kind, machine, *_ = header = _HEADER.unpack_from(elf)
    assert magic[:6] == b"\x7fELF\x02\x01" and kind == 1 and machine == 62, (magic, kind, machine)
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


def _relocate(blob: bytearray, section: _Section, places: dict[int, int], symbols: list[tuple[str, int, int]]) -> None:
    for start in range(0, len(section.data), _RELOCATION.size):
        offset, info, addend = _RELOCATION.unpack_from(section.data, start)
        name, index, value = symbols[int(info) >> 32]
        kind = int(info) & 0xFFFF_FFFF
        assert kind in (_PC32, _PLT32), f"relocation type {kind} against {name!r} in {section.name}"
        assert index in places, f"undefined symbol {name!r}"
        where = places[section.info] + offset
        struct.pack_into("<i", blob, where, places[index] + value + addend - where)
