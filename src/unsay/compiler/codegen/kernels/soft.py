"""What stands for instructions a target lacks: the same bits from those it has. WebAssembly has neither fma nor halves.

(WebAssembly's relaxed madd may round once or twice, as the machine likes, so it is no fma.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from unsay.compiler.codegen.builder import F32, F64, I16, I32, I64, Function, Value, with_element
from unsay.compiler.codegen.kernels.dot import Architecture

_INFINITY, _SIGN = 0x7F80_0000, 0x8000_0000


def fma(f: Function, a: Value, b: Value, c: Value) -> Value:
    """f32 by way of f64, where the product is exact; the sum is rounded to odd, so that rounding it again is right.

    Its error is exact too (Knuth's TwoSum). To odd (Boldo and Melquiond): of the two neighbours of an inexact sum, take
    the odd one. Infinities and NaNs make the error a NaN, which is no `one` of anything.
    """
    kind, bits = a.type, with_element(a.type, I64)
    x, y, z = (value.cast("fpext", with_element(kind, F64)) for value in (a, b, c))
    product = x * y
    total = product + z
    back = total - product
    error = (product - (total - back)) + (z - back)
    near, direction = total.cast("bitcast", bits), error.cast("bitcast", bits)
    is_wrong = error.compare("one", 0.0) & (near & 1).compare("eq", 0)
    outwards = f.constant(bits, 1) - (((near ^ direction) >> 63) << 1)
    return f.select(is_wrong, near + outwards, near).cast("bitcast", total.type).cast("fptrunc", kind)


def extend(f: Function, half: Value) -> Value:
    """i16 bits of a half to f32: exponent and fraction moved into place, then 2^112 to mend the exponent's bias."""
    kind, floats = with_element(half.type, I32), with_element(half.type, F32)
    bits = half.cast("zext", kind)
    magnitude = bits & 0x7FFF
    scaled = ((magnitude << 13).cast("bitcast", floats) * 2.0**112).cast("bitcast", kind)
    special = f.select(magnitude.compare("uge", 0x7C00), scaled | _INFINITY, scaled)
    return (special | ((bits & 0x8000) << 16)).cast("bitcast", floats)


def truncate(f: Function, x: Value) -> Value:
    """f32 to i16 bits of a half, to nearest even; a NaN becomes the quiet one."""
    kind = with_element(x.type, I32)
    bits = x.cast("bitcast", kind)
    magnitude = bits & (_SIGN - 1)
    normal = (magnitude + ((magnitude >> 13) & 1) + (0xFFF - (112 << 23))) >> 13
    tiny = (magnitude.cast("bitcast", x.type) + 0.5).cast("bitcast", kind) - (126 << 23)
    huge = f.select(magnitude.compare("ugt", _INFINITY), f.constant(kind, 0x7E00), 0x7C00)
    small = f.select(magnitude.compare("ult", 113 << 23), tiny, normal)
    half = f.select(magnitude.compare("uge", 143 << 23), huge, small) | ((bits & _SIGN) >> 16)
    return half.cast("trunc", with_element(x.type, I16))


SUBSTITUTES: dict[Architecture, Mapping[str, Callable[..., Value]]] = {
    "x86": {},
    "aarch64": {},
    "wasm": {"fma": fma, "fpext": extend, "fptrunc": truncate},
}
