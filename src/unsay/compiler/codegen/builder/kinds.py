"""Types as LLVM writes them, and constants of them."""

from __future__ import annotations

import struct

F64, F32, F16, I8, I16, I32, I64, PTR, BOOL = "double", "float", "half", "i8", "i16", "i32", "i64", "ptr", "i1"
F32X16, I32X16, F16X16 = "<16 x float>", "<16 x i32>", "<16 x half>"


def vector(element: str, lanes: int) -> str:
    """The vector type."""
    return f"<{lanes} x {element}>"


def element_type(kind: str) -> str:
    """float of <16 x float>; a scalar type is its own element."""
    return kind.rstrip(">").split(" x ")[1] if kind.startswith("<") else kind


def with_element(kind: str, element: str) -> str:
    """<16 x i32> from <16 x float> and i32; i32 from float and i32."""
    return f"<{kind[1:].split(' x ')[0]} x {element}>" if kind.startswith("<") else element


def literal(kind: str, number: float) -> str:
    """Text of a constant; floats are rounded to their type and written exactly, as LLVM wants: as bits of a double."""
    element = element_type(kind)
    if element in (F32, F64):
        rounded = struct.unpack("<f", struct.pack("<f", number))[0] if element == F32 else number
        text = f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    else:
        text = str(int(number))
    return f"splat ({element} {text})" if kind.startswith("<") else text


def suffix(kind: str) -> str:
    """v16f32 of <16 x float>, f32 of float."""
    short = {F32: "f32", F16: "f16"}.get(element_type(kind), element_type(kind))
    return f"v{kind[1:].split(' x ')[0]}{short}" if kind.startswith("<") else short
