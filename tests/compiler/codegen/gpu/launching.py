"""Runs a GpuStep over the memory of a hand-made step, launch by launch, on whatever runs one kernel."""

from __future__ import annotations

import ctypes
import mmap
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.compiler.codegen.steps import Memory, StepBuilder
from unsay.compiler.codegen.gpu.lanes import Kernel
from unsay.compiler.codegen.gpu.llvm_text import CPU, llvm_module
from unsay.compiler.codegen.gpu.plan import GpuStep, Place
from unsay.compiler.codegen.translate import compile_module
from unsay.core import Batch
from unsay.isa.formats import padded_rows
from unsay.isa.targets import find_target

Bytes = NDArray[np.uint8]


class Device(Protocol):
    """Runs one kernel."""

    def run(self, kernel: Kernel, grid: tuple[int, int], buffers: Sequence[Bytes]) -> None:
        """Run it on a grid; the buffers it writes are changed in place."""
        ...


class CpuDevice:
    """The LLVM text of the kernels, one group at a time, on this machine."""

    def __init__(self, kernels: Sequence[Kernel], mutate: Callable[[str], str] = str) -> None:
        blob, self._entry = compile_module(mutate(llvm_module(kernels, CPU)), find_target("avx2"))
        with tempfile.TemporaryFile() as file:
            file.write(blob)
            file.flush()
            self._code = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        self._start = np.frombuffer(self._code, np.uint8).ctypes.data

    def run(self, kernel: Kernel, grid: tuple[int, int], buffers: Sequence[Bytes]) -> None:
        """One call a group."""
        assert all(buffer.flags.c_contiguous for buffer in buffers)
        kinds = [ctypes.c_void_p] * len(buffers) + [ctypes.c_int32] * 2
        function = ctypes.CFUNCTYPE(None, *kinds)(self._start + self._entry[kernel.name])
        for row in range(grid[1]):
            for group in range(grid[0]):
                function(*(buffer.ctypes.data for buffer in buffers), group, row)


def run_gpu(step: StepBuilder, batch: Batch, pages: Bytes, plan: GpuStep, device: Device) -> Memory:
    """The step's launches on a device."""
    arena, pages = np.frombuffer(bytearray(step.arena), np.uint8), pages.copy()
    regions = {
        "persistent": np.frombuffer(bytes(step.weights), np.uint8),
        "arena": arena,
        "scratch": np.zeros(plan.scratch_bytes, np.uint8),
        "kv_pool": pages.reshape(-1),
        **_inputs(batch),
    }
    launch_all(plan, regions, batch, device)
    return Memory(arena, pages)


def _inputs(batch: Batch) -> dict[str, Bytes]:
    """The regions that a batch fills."""
    arrays = {
        "page_tables": batch.page_tables, "sequence": batch.sequence, "positions": batch.positions,
        "token_ids": batch.token_ids, "logit_rows": batch.logit_rows,
        "sizes": np.array([len(batch.token_ids), batch.page_tables.shape[1]], np.int32),
    }  # fmt: skip
    return {name: np.ascontiguousarray(values).view(np.uint8).reshape(-1) for name, values in arrays.items()}


def launch_all(plan: GpuStep, regions: Mapping[str, Bytes], batch: Batch, device: Device) -> None:
    """Every launch, over regions by name."""
    counts = {"tokens": len(batch.token_ids), "logit_rows": len(batch.logit_rows)}
    for launch in plan.launches:
        rows = launch.rows if isinstance(launch.rows, int) else counts[launch.rows]
        buffers = [_bytes(regions, place) for place in launch.places]
        device.run(plan.kernels[launch.kernel], (launch.groups, rows), buffers)


def _bytes(regions: Mapping[str, Bytes], place: Place) -> Bytes:
    region = regions[place.region]
    end = place.offset + place.num_bytes if place.num_bytes else len(region)
    assert end <= len(region), (place, len(region))
    return region[place.offset : end]


def run_model(image: Any, plan: GpuStep, batch: Batch, pages: Bytes, device: Device) -> NDArray[np.float32]:
    """Logits [R, V] of a packed model; pages [num_pages, page_bytes] get the keys and values."""
    assert plan.logits is not None
    logits = np.zeros(plan.logits.num_bytes, np.uint8)
    regions = {
        "persistent": image.weights,
        "arena": np.zeros(image.manifest.arena_bytes, np.uint8),
        "scratch": np.zeros(plan.scratch_bytes, np.uint8),
        "kv_pool": pages.reshape(-1),
        "logits": logits,
        **_inputs(batch),
    }
    launch_all(plan, regions, batch, device)
    vocabulary = image.manifest.spec.vocab_size
    rows = logits.view(np.float32).reshape(-1, padded_rows(vocabulary))
    assert not rows[:, vocabulary:].any(), "padding rows of the weights give zeros"
    return rows[: len(batch.logit_rows), :vocabulary]
