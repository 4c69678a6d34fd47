"""Protocol buffers on the wire, as far as ONNX uses them: the fields of one message, checked against its bounds.

    message   {key varint | value}           key = number << 3 | wire
    wire 0    varint, at most 10 bytes       wire 1   8 bytes       wire 5   4 bytes
    wire 2    length varint, then that many bytes: text, bytes, a message inside, or packed numbers

Nothing is copied and nothing of a stated length is allocated: a value is a number or a span of the file.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import TypeAlias

from unsay.errors import ModelFileError

Buffer: TypeAlias = mmap.mmap | bytes

VARINT, FIXED64, SPAN, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10
_SIGN = 1 << 63

_F32 = struct.Struct("<f")


class Message:
    """The fields of the message in [start, end) of a file, by number; raises ModelFileError saying at which byte."""

    __slots__ = ("_data", "_fields", "start")

    def __init__(self, data: Buffer, start: int, end: int) -> None:
        self.start = start
        self._data = data
        self._fields = _split(data, start, end)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def integer(self, number: int, default: int = 0) -> int:
        """The last int64 of this field; enums and int32 are the same on the wire."""
        found = self._fields.get(number)
        return default if found is None else _signed(self._value(found[-1], VARINT, number))

    def float32(self, number: int) -> float:
        """The last float of this field, 0 if there is none."""
        found = self._fields.get(number)
        return 0.0 if found is None else _F32.unpack_from(self._data, self._value(found[-1], FIXED32, number))[0]

    def text(self, number: int, default: str = "") -> str:
        """The last string of this field."""
        found = self._fields.get(number)
        return default if found is None else self._decode(found[-1], number)

    def texts(self, number: int) -> tuple[str, ...]:
        """All strings of this field."""
        return tuple([self._decode(field, number) for field in self._fields.get(number, ())])

    def span(self, number: int) -> tuple[int, int] | None:
        """Where the last bytes of this field lie, None if it is absent."""
        found = self._fields.get(number)
        return None if found is None else (self._value(found[-1], SPAN, number), found[-1][2])

    def message(self, number: int) -> Message | None:
        """The last message of this field, None if it is absent."""
        span = self.span(number)
        return None if span is None else Message(self._data, *span)

    def messages(self, number: int) -> Iterator[Message]:
        """All messages of this field."""
        for field in self._fields.get(number, ()):
            yield Message(self._data, self._value(field, SPAN, number), field[2])

    def count(self, number: int) -> int:
        """How often the field occurs."""
        return len(self._fields.get(number, ()))

    def integers(self, number: int) -> list[int]:
        """All int64 of a repeated field, packed or not."""
        numbers: list[int] = []
        for wire, start, end in self._fields.get(number, ()):
            if wire == VARINT:
                numbers.append(_signed(start))
                continue
            position = self._value((wire, start, end), SPAN, number)
            while position < end:
                value, position = _varint(self._data, position, end)
                numbers.append(_signed(value))
        return numbers

    def fixed(self, number: int, size: int) -> bytes:
        """The bytes of a repeated field of floats (size 4) or doubles (size 8), packed or not."""
        wanted = FIXED32 if size == 4 else FIXED64
        parts: list[bytes] = []
        for wire, start, end in self._fields.get(number, ()):
            stop = start + size if wire == wanted else end
            if wire not in (wanted, SPAN) or (stop - start) % size:
                raise ModelFileError(f"byte {start}: field {number} is not a list of {size}-byte floats")
            parts.append(self._data[start:stop])
        return b"".join(parts)

    def _value(self, field: tuple[int, int, int], wire: int, number: int) -> int:
        if field[0] != wire:
            raise ModelFileError(f"byte {self.start}: field {number} of a message has wire type {field[0]}, not {wire}")
        return field[1]

    def _decode(self, field: tuple[int, int, int], number: int) -> str:
        start = self._value(field, SPAN, number)
        try:
            return self._data[start : field[2]].decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"byte {start}: text that is not UTF-8: {error.reason}") from error


def _split(data: Buffer, position: int, end: int) -> dict[int, list[tuple[int, int, int]]]:
    """(wire, value or start, end) of every field. One-byte varints, nearly all there are, are read in place."""
    fields: dict[int, list[tuple[int, int, int]]] = {}
    while position < end:
        key = data[position]
        if key < 0x80:
            position += 1
        else:
            key, position = _varint(data, position, end)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(data, position, end)
            field = (VARINT, value, position)
        elif wire == SPAN:
            if position < end and (length := data[position]) < 0x80:
                position += 1
            else:
                length, position = _varint(data, position, end)
            field = (SPAN, position, position + length)
            position += length
        elif wire in _FIXED_BYTES:
            field = (wire, position, position + _FIXED_BYTES[wire])
            position = field[2]
        else:
            raise ModelFileError(f"byte {position}: no ONNX file: wire type {wire}")
        if position > end or number == 0:
            raise ModelFileError(f"byte {field[1]}: field {number} ends beyond its message, or is none")
        fields.setdefault(number, []).append(field)
    return fields


def _varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """The number at `position`, and what follows it."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= end:
            raise ModelFileError(f"byte {position}: a number ends beyond its message")
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + index + 1
    raise ModelFileError(f"byte {position}: a number of more than {_MAX_VARINT_BYTES} bytes")


def _signed(value: int) -> int:
    return value - (_SIGN << 1) if value >= _SIGN else value
