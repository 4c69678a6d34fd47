"""The physical limit of a prompt, as a contestant: it only multiplies int8, in registers, as often as the tokens need.

The instruction is the best that this machine's target has: tdpbssd on tiles; vpdpbusd, sdot or smmla, which add four or
eight products to each sum; or vpmaddubsw, which adds two, and whose 16-bit sums take one more instruction.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from unsay.benchmark.hardware import seconds_together
from unsay.compiler.codegen.amx_probe import mapped
from unsay.compiler.codegen.builder import I8, I16, I32, I64, PTR, Function, Module, Slot, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit, dot_unit
from unsay.compiler.codegen.kernels.tile_registers import TILE_BYTES, TILE_ROWS, amx, configure
from unsay.compiler.codegen.translate import ATTRIBUTES
from unsay.default_target import default_target
from unsay.isa.targets import Target, find_target
from unsay.runtime.cpu import prepare

_SUMS = 12
"""Registers of sums, none of which waits for another; with what they are multiplied by they fit 16 registers."""

_TILES = 4
"""The same of tiles."""

_ROUNDS = 1 << 21
_TRIES = 5
_INTRINSICS = {
    "vpdpbusd": "llvm.x86.avx512.vpdpbusd.{bits}",
    "sdot": "llvm.aarch64.neon.sdot.v4i32.v16i8",
    "smmla": "llvm.aarch64.neon.smmla.v4i32.v16i8",
}


class Multiplier:
    """`num_threads` threads multiply together, where a token takes `token_products` products."""

    def __init__(self, token_products: int, num_threads: int) -> None:
        self._token_products, self._num_threads = token_products, num_threads
        self.pid = os.getpid()

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Seconds that a prompt takes at least; other verbs do nothing."""
        if verb != "prefill":
            return {}
        return {"seconds": len(arguments["ids"]) * self._token_products / products_per_s(self._num_threads)}


def products_per_s(num_threads: int) -> float:
    """The most products of two int8, summed up, that threads make in a second together; the best of a few tries."""
    target = find_target(default_target())
    prepare(target.name)
    code, entry = mapped(*loop_module(target), target)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
        np.frombuffer(code, np.uint8).ctypes.data + entry
    )
    seconds = min(_seconds(function, num_threads) for _ in range(_TRIES))
    return num_threads * _ROUNDS * products_a_round(target) / seconds


def loop_module(target: Target) -> tuple[Module, str]:
    """The loop `void multiply(memory, rounds)`, and its name: sums begin as what is in memory, and end there."""
    module = Module(ATTRIBUTES)

    def write(f: Function) -> None:
        _on_tiles(f) if target.has_tiles else _on_vectors(f, dot_unit(target))

    name = module.define("multiply", [(PTR, "memory"), (I64, "rounds")], write, "products", linkage="", inline=False)
    return module, name


def products_a_round(target: Target) -> int:
    """Products of one round of the loop."""
    if target.has_tiles:
        return _TILES * TILE_ROWS * TILE_BYTES
    unit = dot_unit(target)
    return _SUMS * unit.vector_bytes * (2 if unit.instruction == "smmla" else 1)


def _on_vectors(f: Function, unit: DotUnit) -> None:
    is_short = unit.instruction == "vpmaddubsw"
    kind = vector(I16, unit.vector_bytes // 2) if is_short else vector(I32, unit.lanes)
    places = [f["memory"].at(place * unit.vector_bytes) for place in range(_SUMS)]
    x = f.load(vector(I8, unit.vector_bytes), f["memory"])
    sums = [f.slot(kind, f.load(kind, place)) for place in places]
    with f.loop("round", 0, f["rounds"]):
        for total in sums:
            total.set(_added(f, unit, total, x))
    for place, total in zip(places, sums, strict=True):
        f.store(total.get(), place)


def _added(f: Function, unit: DotUnit, total: Slot, x: Value) -> Value:
    """The sums are multiplied, too, where nothing else would keep the product in the loop."""
    before = total.get()
    if unit.instruction == "vpmaddubsw":
        made = f.intrinsic("llvm.x86.avx2.pmadd.ub.sw", before.type, before.cast("bitcast", x.type), x)
        return before + made
    return f.intrinsic(_INTRINSICS[unit.instruction].format(bits=8 * unit.vector_bytes), before.type, before, x, x)


def _on_tiles(f: Function) -> None:
    """tile_registers.py has their numbers."""
    configure(f, 64, f.constant(I64, TILE_ROWS))
    for tile in range(2 * _TILES):
        amx(f, "tileloadd64", tile, f["memory"], 64)
    with f.loop("round", 0, f["rounds"]):
        for tile in range(_TILES):
            amx(f, "tdpbssd", tile, _TILES, _TILES + 2)
    for tile in range(_TILES):
        amx(f, "tilestored64", tile, f["memory"].at(tile * TILE_BYTES), 64)
    amx(f, "tilerelease")


def _seconds(function: Callable[[int, int], None], num_threads: int) -> float:
    memories = [np.zeros(_TILES * TILE_BYTES, np.uint8) for _ in range(num_threads)]
    return seconds_together(partial(function, memory.ctypes.data, _ROUNDS) for memory in memories)
