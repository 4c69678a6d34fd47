"""Whether products on AMX tiles work here: one is tried in a child process, which may die of it.

    python -m unsay.compiler.codegen.amx_probe        exits with 0, or says what is lacking

The flags of a CPU say what it has, not what the kernel, a sandbox or a hypervisor lets a process use. What came out is
remembered in the cache for this machine, its kernel and its CPU: a start asks for permission and reads one small file.
Where the flags are absent nobody comes here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unsay.cachedir import cache_root
from unsay.compiler.cache import forget, remembered
from unsay.compiler.codegen.builder import I64, PTR, Function, Module
from unsay.compiler.codegen.kernels.amx import products_function
from unsay.compiler.codegen.kernels.tile_registers import TILE_ROWS
from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.isa.formats import ROW_GROUP
from unsay.isa.targets import Target, find_target
from unsay.isa.tiles import request_tiles

_COMMAND = (sys.executable, "-m", "unsay.compiler.codegen.amx_probe")
_WIDTH, _NUM_ROWS = 96, 48
"""Of the product: two steps along K, a pair of row groups and a single one."""

_PATIENCE_S = 60


def lacking_for_tiles(cpu_flags: frozenset[str], *, again: bool = False) -> str:
    """What is lacking, "" if nothing: permission of this process, or what a child process found; again: in a new one.

    cpu_flags: of a CPU that has tiles. Raises CacheError.
    """
    machine = os.uname()
    name, identity = f"AMX tiles of {machine.nodename}", [machine.release, machine.version, *sorted(cpu_flags)]
    if again:
        forget(cache_root(), name)
    return request_tiles() or remembered(cache_root(), name, identity, ask_child)


def ask_child(command: Sequence[str] = _COMMAND) -> str:
    """What a child process finds lacking, "" if nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"AMX tiles that work (a child process tried for {_PATIENCE_S} s)"
    if done.returncode < 0:
        return f"AMX tiles that work (a child process that tried died of {signal.Signals(-done.returncode).name})"
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def try_product(target: Target) -> str:
    """A product on tiles in this process, against its definition: what is lacking, "" if nothing."""
    rng = np.random.default_rng(0)
    x, weights = rng.integers(-16256, 16257, (TILE_ROWS, _WIDTH)), rng.integers(-127, 128, (_NUM_ROWS, _WIDTH))
    is_right = np.array_equal(_multiply(target, x, weights), (x @ weights.T).astype(np.float32))
    return "" if is_right else "AMX tiles that give the right sums"


def _multiply(target: Target, x: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.float32]:
    """Sums [TILE_ROWS, _NUM_ROWS] of x [TILE_ROWS, _WIDTH] and weights [_NUM_ROWS, _WIDTH], all scales 1."""
    planes = np.stack([x >> 7, x & 127]).astype(np.int8)
    q = np.concatenate([planes.reshape(-1), np.ones(TILE_ROWS, np.float32).view(np.int8)])
    columns = weights.reshape(-1, ROW_GROUP, _WIDTH // 4, 4).transpose(0, 2, 1, 3).astype(np.int8).copy()
    scales, sums = np.ones(_NUM_ROWS, np.float32), _whole_lines(_NUM_ROWS * TILE_ROWS)
    code, entry = _code(target)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(np.frombuffer(code, np.uint8).ctypes.data + entry)
    function(*(array.ctypes.data for array in (columns, scales, q, sums)))
    return sums.reshape(-1, TILE_ROWS, ROW_GROUP).transpose(1, 0, 2).reshape(TILE_ROWS, _NUM_ROWS)


def _whole_lines(count: int) -> NDArray[np.float32]:
    """f32 [count] that begins at a cache line, as sums do."""
    return np.frombuffer(mmap.mmap(-1, count * 4), np.float32)


def _code(target: Target) -> tuple[mmap.mmap, int]:
    """Machine code of `void probe(weights, scales, x, sums)`, and where it begins."""
    module = Module(ATTRIBUTES)

    def write(f: Function) -> None:
        counts = [f.constant(I64, number) for number in (_NUM_ROWS // ROW_GROUP, 0, TILE_ROWS)]
        products = products_function(module, _WIDTH, TILE_ROWS)
        f.run(products, f["weights"], f["scales"], counts[0], f["x"], *counts[1:], f["sums"])

    parameters = [(PTR, name) for name in ("weights", "scales", "x", "sums")]
    module.define("probe", parameters, write, "a product on tiles", linkage="", inline=False)
    return mapped(module, "probe", target)


def mapped(module: Module, name: str, target: Target) -> tuple[mmap.mmap, int]:
    """Machine code of a module, ready to run, and where one of its functions begins."""
    blob, symbols = compile_module(module.text(), target)
    with tempfile.TemporaryFile(dir=cache_root()) as file:
        file.write(blob)
        file.flush()
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC), symbols[name]


if __name__ == "__main__":
    sys.exit(request_tiles() or try_product(find_target("amx-int8")) or None)
