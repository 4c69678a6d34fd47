"""Hand-made steps, run by the native code and by the reference's definition over the same memory."""

from __future__ import annotations

import ctypes
import mmap
import tempfile
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import ENTRIES, step_text
from unsay.compiler.codegen.kernels.dot import DotUnit, dot_unit
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.codegen.translate import compile_module
from unsay.core import Batch
from unsay.image import ModelSpec
from unsay.isa.abi import StepArgs, sync_bytes
from unsay.isa.formats import QUANTISED_WEIGHTS, DType, activation_bytes, group_block_bytes, weight_bytes
from unsay.isa.opcodes import Region
from unsay.isa.program import Instruction, Program, make
from unsay.isa.targets import Target, find_target
from unsay.runtime.reference import TensorUnit
from unsay.runtime.threads import WorkerPool

AVX2 = find_target("avx2")

UNITS: dict[str, DotUnit] = {
    "avx2": dot_unit(AVX2),
    "vnni-256": DotUnit("vpdpbusd", vector_bytes=32, tiles=(4, 2, 1), emulated=True),
    "vnni-512": DotUnit("vpdpbusd", vector_bytes=64, tiles=(8, 2, 1), emulated=True),
}
"""What this machine runs: AVX2 itself, and the code of the VNNI targets with vpdpbusd by its definition."""

CAPACITY, MAX_ROWS, MAX_THREADS = 24, 4, 4


def tiny_spec(**changes: object) -> ModelSpec:
    """A model to which hand-made steps belong."""
    sizes: dict[str, object] = {
        "name": "hand-made", "architecture": "llama", "num_layers": 2, "embedding_size": 96, "num_heads": 4,
        "num_kv_heads": 2, "head_dim": 32, "ffn_size": 64, "vocab_size": 80, "context_length": 1024,
        "norm_eps": 1e-5, "rope_base": 10000.0,
    }  # fmt: skip
    return ModelSpec(**{**sizes, **changes})  # type: ignore[arg-type]


@dataclass
class StepBuilder:
    """Collects instructions, and the memory they name: registers 1.. are given out and reused by the caller."""

    rng: np.random.Generator
    spec: ModelSpec = field(default_factory=tiny_spec)
    instructions: list[Instruction] = field(default_factory=list)
    weights: bytearray = field(default_factory=bytearray)
    arena: bytearray = field(default_factory=bytearray)

    def activation(
        self,
        register: int,
        dtype: DType,
        width: int,
        values: NDArray[np.float32] | None = None,
        flag: str = "DIM_TOKENS",
    ) -> int:
        """A tensor [T, width] in GLOBAL, filled with `values` or noise; its offset."""
        offset, size = len(self.arena), activation_bytes(dtype, CAPACITY, width)
        filling = self.rng.integers(0, 256, size, np.uint8)
        if dtype is DType.F32:
            floats = self.rng.standard_normal((CAPACITY, width)).astype(np.float32) if values is None else values
            filling = floats.reshape(-1).view(np.uint8)
        self.arena += filling.tobytes() + bytes(-size % 64)
        self._tensor(register, dtype, (CAPACITY, width), offset, [flag])
        return offset

    def vector(self, register: int, width: int) -> int:
        """F32 [width] in PERSISTENT; its offset."""
        return self._constant(register, DType.F32, (width,), self.rng.standard_normal(width).astype(np.float32))

    def table(self, register: int, head_dim: int) -> int:
        """A rope table of random turns; its offset."""
        angles = self.rng.uniform(0, 7, (self.spec.context_length, head_dim // 2))
        values = np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
        return self._constant(register, DType.F32, values.shape, values)

    def matrix(self, register: int, dtype: DType, num_rows: int, width: int) -> int:
        """A packed matrix of random bits, extremes included, with scales of either sign; its offset."""
        return self._constant(register, dtype, (num_rows, width), self._packed(dtype, num_rows, width))

    def add(self, name: str, *registers: int, flags: tuple[str, ...] = (), **fields: float) -> None:
        """Append an instruction."""
        self.instructions.append(make(name, *registers, flags=flags, **fields))

    @property
    def program(self) -> Program:
        """What was collected."""
        return Program(tuple(self.instructions))

    def _packed(self, dtype: DType, num_rows: int, width: int) -> NDArray[np.generic]:
        size = weight_bytes(dtype, num_rows, width)
        if dtype is DType.BF16:
            return (self.rng.standard_normal(size // 2).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        if dtype not in QUANTISED_WEIGHTS:
            kind = np.float32 if dtype is DType.F32 else np.float16
            return self.rng.standard_normal(size // np.dtype(kind).itemsize).astype(kind)
        blocks = self.rng.integers(0, 256, (size // group_block_bytes(dtype), group_block_bytes(dtype)), np.uint8)
        blocks[0, :64], blocks[-1, :64] = 0xFF, 0x80
        scales_at = 512 if dtype is DType.Q8_0 else 256
        scales = self.rng.standard_normal(blocks[:, scales_at:].size // 2).astype(np.float16)
        blocks[:, scales_at:] = scales.view(np.uint8).reshape(len(blocks), -1)
        return blocks

    def _constant(self, register: int, dtype: DType, dims: tuple[int, ...], values: NDArray[np.generic]) -> int:
        offset = len(self.weights)
        self.weights += values.tobytes() + bytes(-values.nbytes % 64)
        self._tensor(register, dtype, dims, offset, ["REGION1"])
        return offset

    def _tensor(self, register: int, dtype: DType, dims: tuple[int, ...], offset: int, flags: list[str]) -> None:
        sizes = {f"dim{axis}": size for axis, size in enumerate((*dims, 1, 1, 1, 1)[:4])}
        self.instructions.append(
            make("TENSOR", register, flags=flags, dtype=int(dtype), rank=len(dims), offset=offset, **sizes)
        )


@dataclass(frozen=True)
class Memory:
    """What a step left: arena (without the native step's scratch) and KV pages."""

    arena: NDArray[np.uint8]
    pages: NDArray[np.uint8]

    def tensor(self, offset: int, width: int) -> NDArray[np.float32]:
        """An F32 activation."""
        return self.arena[offset : offset + CAPACITY * width * 4].view(np.float32).reshape(CAPACITY, width)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Memory)
        return bool(np.array_equal(self.arena, other.arena) and np.array_equal(self.pages, other.pages))


def make_batch(positions: list[int], sequence: list[int] | None = None, *, rows: list[int] | None = None) -> Batch:
    """Tokens at these positions; sequence s has the pages s, s + B, s + 2 B ... of the pool, backwards."""
    num_tokens = len(positions)
    of = np.zeros(num_tokens, np.int32) if sequence is None else np.array(sequence, np.int32)
    num_sequences, num_pages = int(of.max()) + 1, max(positions) // 16 + 1
    tables = np.arange(num_sequences * num_pages, dtype=np.int32)[::-1].reshape(num_pages, num_sequences).T
    return Batch(
        token_ids=((np.arange(num_tokens) * 37 + 5) % 80).astype(np.int32),
        positions=np.array(positions, np.int32),
        sequence=of,
        page_tables=np.ascontiguousarray(tables),
        logit_rows=np.array([num_tokens - 1] if rows is None else rows, np.int32),
    )


def random_pages(rng: np.random.Generator, spec: ModelSpec, batch: Batch) -> NDArray[np.uint8]:
    """Pages full of small numbers."""
    layout, shape = spec.kv_layout, (batch.page_tables.size, spec.kv_layout.page_bytes)
    if layout.is_scaled:
        pages = rng.integers(0, 256, shape, np.uint8)
        for layer, head in np.ndindex(layout.num_layers, layout.num_kv_heads):
            at = layout.scale_offset(layer, head)
            pages[:, at : at + 128] = (rng.random((len(pages), 32), np.float32) * 0.03).view(np.uint8)
        return pages
    kind = np.float16 if layout.dtype is DType.F16 else np.float32
    return rng.standard_normal((shape[0], shape[1] // layout.element_bytes)).astype(kind).view(np.uint8)


def run_reference(step: StepBuilder, batch: Batch, pages: NDArray[np.uint8]) -> Memory:
    """The step by the definition."""
    arena, weights, pages = (
        np.frombuffer(bytearray(step.arena), np.uint8),
        np.frombuffer(step.weights, np.uint8),
        pages.copy(),
    )
    memory = {Region.GLOBAL: arena, Region.PERSISTENT: weights}
    unit = TensorUnit(lambda region, offset: memory[region][offset:], pages, step.spec.kv_layout)
    registers = [0] * 16
    for instruction in step.program:
        unit.execute(instruction, registers, batch)
    return Memory(arena, pages)


def run_native(
    step: StepBuilder,
    batch: Batch,
    pages: NDArray[np.uint8],
    unit: DotUnit = UNITS["avx2"],
    num_threads: int = 1,
    is_interrupted: bool = False,
    target: Target = AVX2,
) -> Memory | None:
    """The step in machine code; None if it was interrupted."""
    code, entry = _mapped_code(step.program, step.spec, unit, len(step.arena), target)
    arena = np.zeros(len(step.arena) + step_scratch(step.spec, CAPACITY).num_bytes, np.uint8)
    arena[: len(step.arena)] = np.frombuffer(step.arena, np.uint8)
    weights, pages = _aligned(step.weights), pages.copy()
    sync = _aligned(bytes(sync_bytes(num_threads)))
    args = StepArgs(
        persistent=weights.ctypes.data, arena=arena.ctypes.data, kv_pool=pages.ctypes.data,
        token_ids=batch.token_ids.ctypes.data, positions=batch.positions.ctypes.data,
        sequence=batch.sequence.ctypes.data, page_tables=batch.page_tables.ctypes.data,
        logit_rows=batch.logit_rows.ctypes.data, sync=sync.ctypes.data,
        num_tokens=len(batch.token_ids), num_sequences=len(batch.page_tables), num_rows=len(batch.logit_rows),
        page_stride=batch.page_tables.shape[1],
    )  # fmt: skip
    pool = WorkerPool(code, entry, num_threads)
    if is_interrupted:
        pool.interrupt_word[0] = 1
    finished = pool.run(args)
    pool.close()
    return Memory(arena[: len(step.arena)], pages) if finished else None


@cache
def _mapped_code(
    program: Program, spec: ModelSpec, unit: DotUnit, scratch_at: int, target: Target
) -> tuple[mmap.mmap, dict[str, int]]:
    text = step_text(Step(program, spec, CAPACITY, MAX_ROWS, MAX_THREADS, scratch_at), unit)
    blob, symbols = compile_module(text, target)
    with tempfile.TemporaryFile() as file:
        file.write(blob)
        file.flush()
        code = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    return code, {name: symbols[name] for name in ENTRIES}


def _aligned(data: bytes | bytearray) -> NDArray[np.uint8]:
    """A copy at a multiple of 64."""
    room = np.zeros(len(data) + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return room[start : start + len(data)]


assert ctypes.sizeof(StepArgs) % 8 == 0
