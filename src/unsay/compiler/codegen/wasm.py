"""A linker for one WebAssembly object: LLVM's relocatable module in, a module with exports out.

In an object of its own every index is final already: what is missing are the exports, which are all functions that are
not local, and a shared memory. The module imports `env.__linear_memory` (so that threads are instances over one memory)
and `env.__stack_pointer` (each instance's own, the end of its stack). It has no data: the memory is all the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = b"\0asm\x01\0\0\0"
_CUSTOM, _IMPORT, _EXPORT, _DATA = 0, 2, 7, 11
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = range(4)
_SYMBOL_TABLE, _FUNCTION_SYMBOL, _DATA_SYMBOL, _SECTION_SYMBOL = 8, 0, 1, 3
_LOCAL, _UNDEFINED, _EXPLICIT_NAME = 0x02, 0x10, 0x40
_SHARED_WITH_MAXIMUM, _MAXIMUM_PAGES = 3, 65536


@dataclass(slots=True)
class _Reader:
    data: bytes
    place: int = 0

    def number(self) -> int:
        """Unsigned LEB128."""
        value, shift = 0, 0
        while True:
            byte = self.data[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(self, num_bytes: int) -> bytes:
        """The next bytes."""
        self.place += num_bytes
        return self.data[self.place - num_bytes : self.place]

    def name(self) -> str:
        """A counted string."""
        return self.take(self.number()).decode()

    @property
    def is_at_end(self) -> bool:
        """Whether all is read."""
        return self.place >= len(self.data)


def link_wasm(module: bytes) -> tuple[bytes, dict[str, int]]:
    """(module, index of every exported function); raises AssertionError naming what cannot be linked."""
    assert module.startswith(_HEADER), module[:8]
    sections: dict[int, bytes] = {}
    entry: dict[str, int] = {}
    for kind, body in _sections(module):
        if kind == _CUSTOM:
            entry |= _functions(body)
        else:
            sections[kind] = body
    assert _DATA not in sections, "data: the generator has constants in memory"
    sections[_IMPORT] = _imports(sections[_IMPORT])
    sections[_EXPORT] = _vector([_name(name) + bytes([_FUNCTION]) + _leb(index) for name, index in entry.items()])
    parts = [bytes([kind]) + _leb(len(sections[kind])) + sections[kind] for kind in sorted(sections)]
    return _HEADER + b"".join(parts), entry


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(module, len(_HEADER))
    while not reader.is_at_end:
        kind = reader.take(1)[0]
        yield kind, reader.take(reader.number())


def _functions(custom: bytes) -> dict[str, int]:
    """Indices of functions that are not local by name, if this is the section of symbols."""
    reader = _Reader(custom)
    found: dict[str, int] = {}
    if reader.name() != "linking":
        return found
    assert reader.number() == 2, "version of the linking section"
    while not reader.is_at_end:
        kind = reader.take(1)[0]
        body = _Reader(reader.take(reader.number()))
        for _ in range(body.number() if kind == _SYMBOL_TABLE else 0):
            _read_symbol(body, found)
    return found


def _read_symbol(body: _Reader, functions: dict[str, int]) -> None:
    kind, flags = body.take(1)[0], body.number()
    assert kind != _DATA_SYMBOL, f"data {body.name()!r}"
    index = body.number()
    if kind != _SECTION_SYMBOL and (not flags & _UNDEFINED or flags & _EXPLICIT_NAME):
        name = body.name()
        if kind == _FUNCTION_SYMBOL and not flags & _LOCAL:
            functions[name] = index


def _imports(body: bytes) -> bytes:
    """The same imports, the memory shared; a function among them is a symbol nobody defined."""
    reader = _Reader(body)
    rows: list[bytes] = []
    for _ in range(reader.number()):
        module, name, kind = reader.name(), reader.name(), reader.take(1)[0]
        assert kind in (_MEMORY, _GLOBAL), f"undefined symbol {name!r}"
        what = reader.take(2)  # of a global: its type, and whether it varies
        if kind == _MEMORY:
            assert what[0] == 0 and what[1] < 0x80, "a small memory without a maximum, as LLVM writes it"
            what = bytes([_SHARED_WITH_MAXIMUM]) + what[1:] + _leb(_MAXIMUM_PAGES)
        rows.append(_name(module) + _name(name) + bytes([kind]) + what)
    return _vector(rows)


def _vector(rows: list[bytes]) -> bytes:
    return _leb(len(rows)) + b"".join(rows)


def _name(text: str) -> bytes:
    return _leb(len(text.encode())) + text.encode()


def _leb(number: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)
