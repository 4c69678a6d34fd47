"""What stands for instructions WebAssembly lacks, run here beside the instructions themselves: the same bits."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.codegen.builder import F16X16, F32X16, I64, PTR, Function, Module, Value
from unsay.compiler.codegen.kernels.soft import SUBSTITUTES
from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.isa.targets import find_target

Write = Callable[[Function, Value], None]


def write_fma(f: Function, at: Value) -> None:
    a, b, c = (f.load(F32X16, f[name].at(at * 4), align=4) for name in "abc")
    f.store(f.fma(a, b, c), f["out"].at(at * 4), align=4)


def write_extend(f: Function, at: Value) -> None:
    f.store(f.load(F16X16, f["a"].at(at * 2), align=2).cast("fpext", F32X16), f["out"].at(at * 4), align=4)


def write_truncate(f: Function, at: Value) -> None:
    f.store(f.load(F32X16, f["a"].at(at * 4), align=4).cast("fptrunc", F16X16), f["out"].at(at * 2), align=2)


def apply(
    write: Write,
    substitutes: Mapping[str, Callable[..., Value]],
    out: NDArray[np.generic],
    *inputs: NDArray[np.generic],
) -> NDArray[np.generic]:
    """`out`, filled by code that goes through the arrays 16 elements at a time."""
    module = Module(ATTRIBUTES, substitutes)

    def body(f: Function) -> None:
        with f.loop("i", 0, f["n"], 16) as at:
            write(f, at)

    pointers = [(PTR, name) for name in ("out", "a", "b", "c")]
    module.define("apply", [*pointers, (I64, "n")], body, "out = write(a, b, c)", linkage="")
    blob, symbols = compile_module(module.text(), find_target("avx2"))
    memory = mmap.mmap(-1, len(blob), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(blob)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + symbols["apply"]
    arrays = [out, *inputs, *[inputs[0]] * (3 - len(inputs))]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(address)
    function(*(array.ctypes.data for array in arrays), len(out))
    return out


def hard_floats(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Zeros, infinities, subnormals; exponents that meet and few bits set: sums that end in a tie or just by one."""
    mantissa = rng.choice([0, 1, 2, 1 << 11, 1 << 12, 1 << 22, (1 << 23) - 1], count)
    exponent = rng.choice([0, 1, 2, 100, 103, 104, 115, 126, 127, 128, 139, 150, 151, 254, 255], count)
    bits = rng.integers(0, 2, count) << 31 | exponent << 23 | mantissa
    anything = rng.integers(0, 1 << 32, count)
    return np.where(rng.random(count) < 0.9, bits, anything).astype(np.uint32).view(np.float32)


def same(left: NDArray[np.floating], right: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Equal bits, or both no number."""
    kind = np.uint32 if left.dtype == np.float32 else np.uint16
    return (left.view(kind) == right.view(kind)) | (np.isnan(left) & np.isnan(right))


def test_fma_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (hard_floats(rng, 1 << 20) for _ in range(3))
    soft = apply(write_fma, SUBSTITUTES["wasm"], np.empty_like(a), a, b, c)
    hard = apply(write_fma, {}, np.empty_like(a), a, b, c)
    assert same(soft, hard).all()
    with np.errstate(all="ignore"):
        twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.count_nonzero(~same(twice, hard)) > 100, "these numbers tell once from twice"


def test_every_half_is_extended() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    soft = apply(write_extend, SUBSTITUTES["wasm"], np.empty(1 << 16, np.float32), halves)
    assert same(soft, halves.astype(np.float32)).all()


def test_floats_are_truncated_to_the_nearest_half_ties_to_even() -> None:
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = (np.arange(1 << 16, dtype=np.uint32)[:, None] << 16 | low).reshape(-1)
    floats = bits.view(np.float32)
    soft = apply(write_truncate, SUBSTITUTES["wasm"], np.empty(len(floats), np.float16), floats)
    with np.errstate(all="ignore"):
        assert same(soft, floats.astype(np.float16)).all()
