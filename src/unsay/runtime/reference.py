"""The definition: every tensor instruction in NumPy, bit for bit as docs/numerics.md says. Slow and obvious.

`TensorUnit` executes one instruction; `ReferenceExecutor` runs the program of an image through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.core import Batch, Float32Array, Float32View
from unsay.errors import MachineError
from unsay.image import ModelSpec
from unsay.isa.address import address_tag, make_address
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_ACTIVATIONS, QUANTISED_WEIGHTS, ROW_GROUP, padded_rows
from unsay.isa.kv import KvLayout
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, NUM_REGISTERS, Channel, Dim0, Region
from unsay.isa.program import Instruction
from unsay.runtime import arithmetic
from unsay.runtime.arithmetic import f32
from unsay.runtime.attention import KvRows, attend
from unsay.runtime.interpreted import ArrayBatch, InterpretedRuns, in_arrays, in_rows
from unsay.runtime.tensors import Tensor, embedding, product, tensor_dtype

if TYPE_CHECKING:
    from unsay.runtime.image import Image

Find: TypeAlias = Callable[[Region, int], NDArray[np.uint8]]
"""Memory from a byte offset to the end of its region; raises MachineError where there is none."""


class TensorUnit:
    """Executes tensor instructions over memory that `find` gives, and over KV pages [num_pages, page_bytes].

    TENSOR puts a tagged address into its register (isa/address.py); the tag is an index of `tensors`.
    """

    tensor = Tensor
    """What a TENSOR instruction makes."""

    def __init__(self, find: Find, kv_memory: memoryview, layout: KvLayout) -> None:
        self.find = find
        self.kv_memory = np.asarray(kv_memory)
        self.layout = layout
        self.tensors: list[Tensor | None] = [None]
        self._tags: dict[Instruction, int] = {}

    def execute(self, instruction: Instruction, registers: list[int], batch: ArrayBatch) -> Float32Array | None:
        """Run one instruction; the logits [R, N] if it is STREAM LOGITS. `registers` is read, and written by TENSOR."""
        handler = HANDLERS.get(instruction.row.name)
        if handler is None:
            raise MachineError(f"{instruction.row.name} is not a tensor instruction")
        try:
            with np.errstate(all="ignore"):
                return handler(self, instruction, registers, batch)
        except (ValueError, IndexError) as error:  # NumPy's words for shapes that do not fit and positions out of range
            raise MachineError(f"{instruction.row.name}: its operands do not fit together: {error}") from error

    def operand(self, instruction: Instruction, registers: list[int], place: int) -> Tensor:
        """The tensor named by register field `place` (0..3: rd, ra, rb, rc)."""
        register = instruction.registers[place]
        tag = address_tag(registers[register]) if register != NO_REGISTER else 0
        tensor = self.tensors[tag] if tag < len(self.tensors) else None
        if tensor is None:
            field = ("rd", "ra", "rb", "rc")[place]
            raise MachineError(f"{instruction.row.name}: {field} (R{register}) names no tensor")
        return tensor

    def tag(self, instruction: Instruction) -> int:
        """The tag of what a TENSOR instruction names; the same for an equal instruction."""
        key = replace(instruction, registers=(0, 0, 0, 0))
        if key not in self._tags:
            self._tags[key] = len(self.tensors)
            self.tensors.append(_read_tensor(instruction, self.find, self.tensor))
        return self._tags[key]

    def operands(self, instruction: Instruction, registers: list[int], count: int) -> list[Tensor]:
        """The tensors of the first `count` register fields."""
        return [self.operand(instruction, registers, place) for place in range(count)]


Handler: TypeAlias = Callable[[TensorUnit, Instruction, list[int], ArrayBatch], "Float32Array | None"]


_BLOCKED = QUANTISED_WEIGHTS | QUANTISED_ACTIVATIONS


def _read_tensor(op: Instruction, find: Find, make: type[Tensor]) -> Tensor:
    rank = op.integer("rank")
    if not 1 <= rank <= 4:
        raise MachineError(f"TENSOR of rank {rank}: it must be 1..4")
    if op.has("SPARSE"):
        raise MachineError("TENSOR: this version computes no sparse tensors")
    dims = tuple(op.integer(f"dim{axis}") for axis in range(rank))
    dtype = tensor_dtype(op.integer("dtype"))
    if 0 in dims or (dtype in _BLOCKED and math.prod(dims[1:]) % QUANT_BLOCK):
        raise MachineError(
            f"TENSOR {dims} of {dtype.name}: no dimension may be 0, and blocks are {QUANT_BLOCK} columns"
        )
    extent = Dim0.TOKENS if op.has("DIM_TOKENS") else Dim0.ROWS if op.has("DIM_ROWS") else Dim0.FIXED
    return make(dtype, dims, extent, find(tensor_region(op), op.integer("offset")))


def tensor_region(op: Instruction) -> Region:
    """The region a TENSOR instruction names."""
    return Region(op.flags & 3)


def _tensor(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    if op.registers[0] == 0:
        raise MachineError("TENSOR: R0 reads zero and cannot name a tensor")
    registers[op.registers[0]] = make_address(tensor_region(op), op.integer("offset"), unit.tag(op))


def _stream(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> Float32Array | None:
    channel = op.integer("channel")
    if channel == Channel.LOGITS:
        return unit.operand(op, registers, 1).rows(batch)
    if channel != Channel.EMBED:
        raise MachineError(f"STREAM channel {channel} is not a tensor instruction")
    out, table = unit.operands(op, registers, 2)
    out.write(embedding(table, batch.token_ids), batch)
    return None


def _norm(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, x, gamma = unit.operands(op, registers, 3)
    values = x.rows(batch)
    if op.has("ROWS"):
        values = values[batch.logit_rows]
    n = f32(x.num_columns)
    if op.has("LAYER"):
        mean: Float32Array = (arithmetic.sum16(values) / n)[:, None]
        values = values - mean
    deviation: Float32Array = np.sqrt(arithmetic.dot16(values) / n + f32(op.field("eps")))
    gain: Float32Array = (f32(1) / deviation)[:, None]
    result = (values * gain) * gamma.vector()
    if op.registers[3] != NO_REGISTER:
        result = result + unit.operand(op, registers, 3).vector()
    out.write(result, batch)


def _matmul(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, x, weight = unit.operands(op, registers, 3)
    result = product(x, weight, batch)[:, : out.num_columns]
    if op.registers[3] != NO_REGISTER:
        bias = unit.operand(op, registers, 3).vector()
        result[:, : len(bias)] += bias
    out.write(out.rows(batch) + result if op.has("ACCUMULATE") else result, batch)


def _qkv(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, x, weight, table = unit.operands(op, registers, 4)
    num_heads, num_kv_heads, head_dim = (op.integer(name) for name in ("num_heads", "num_kv_heads", "head_dim"))
    width = (num_heads + 2 * num_kv_heads) * head_dim
    result = product(x, weight, batch, (num_heads + num_kv_heads) * head_dim)[:, :width]
    if op.integer("bias") != NO_OFFSET:
        result = result + unit.find(Region.PERSISTENT, op.integer("bias"))[: 4 * width].view(np.float32)
    _rotate_heads(result, 0, num_heads + num_kv_heads, head_dim, table, batch)
    out.write(result, batch)


def _rope(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    x, table = unit.operand(op, registers, 0), unit.operand(op, registers, 2)
    values = x.rows(batch).copy()
    _rotate_heads(values, op.integer("column"), op.integer("num_heads"), op.integer("head_dim"), table, batch)
    x.write(values, batch)


def _rotate_heads(
    x: Float32Array, column: int, num_heads: int, head_dim: int, table: Tensor, batch: ArrayBatch
) -> None:
    """N8, in place: heads of x [T, ...] from `column` on, by the table [context][D/2] of (cos, sin)."""
    angles = table.vector().reshape(-1, 1, head_dim // 2, 2)[batch.positions]
    heads = x[:, column : column + num_heads * head_dim].reshape(len(x), num_heads, head_dim)
    turned = arithmetic.rotate(heads, angles[..., 0], angles[..., 1])
    x[:, column : column + num_heads * head_dim] = turned.reshape(len(x), -1)


def _attn(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, q, k, v = unit.operands(op, registers, 4)
    num_heads, num_kv_heads, head_dim = (op.integer(name) for name in ("num_heads", "num_kv_heads", "head_dim"))
    layout = unit.layout
    if (num_kv_heads, head_dim) != (layout.num_kv_heads, layout.head_dim) or op.integer("layer") >= layout.num_layers:
        raise MachineError(f"ATTN: the KV cache is {layout}, the instruction says {op.payload}")
    queries = _heads(q, op.integer("q_column"), num_heads, head_dim, batch)
    cache = KvRows(unit.kv_memory, unit.layout, op.integer("layer"))
    cache.append(_heads(k, op.integer("k_column"), num_kv_heads, head_dim, batch),
                 _heads(v, op.integer("v_column"), num_kv_heads, head_dim, batch), batch)  # fmt: skip
    result = np.empty((len(queries), num_heads, head_dim), np.float32)
    for row in np.unique(batch.sequence):
        own = np.flatnonzero(batch.sequence == row)
        positions = batch.positions[own]
        past = cache.read(batch.page_tables[row], int(positions[-1]) + 1)
        result[own] = attend(queries[own], past, positions, op.field("scale"))
    out.write(result.reshape(len(queries), -1), batch)


def _heads(x: Tensor, column: int, num_heads: int, head_dim: int, batch: ArrayBatch) -> Float32Array:
    """[T, heads, D] of the columns from `column` on."""
    rows = x.rows(batch)[:, column : column + num_heads * head_dim]
    return rows.reshape(len(rows), num_heads, head_dim)


def _ffn(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, x, gate_up, down = unit.operands(op, registers, 4)
    size = op.integer("ffn_size")
    both = product(x, gate_up, batch).reshape(-1, size // ROW_GROUP, 2, ROW_GROUP)
    gate, up = both[:, :, 0].reshape(-1, size), both[:, :, 1].reshape(-1, size)
    memory = unit.find(Region.GLOBAL, op.integer("hidden"))
    hidden = unit.tensor(tensor_dtype(op.integer("hidden_dtype")), (x.dims[0], size), x.extent, memory)
    hidden.write(arithmetic.silu_mul(gate, up), batch)
    out.write(out.rows(batch) + product(hidden, down, batch)[:, : out.num_columns], batch)


def _quant(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, x = unit.operands(op, registers, 2)
    out.write(x.rows(batch), batch)


def _silu_mul(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, gate, up = unit.operands(op, registers, 3)
    out.write(arithmetic.silu_mul(gate.rows(batch), up.rows(batch)), batch)


def _add(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch) -> None:
    out, a, b = unit.operands(op, registers, 3)
    out.write(a.rows(batch) + b.rows(batch), batch)


HANDLERS: dict[str, Handler] = {
    "TENSOR": _tensor,
    "ATTN": _attn,
    "STREAM": _stream,
    "NORM": _norm,
    "FFN": _ffn,
    "MATMUL": _matmul,
    "ROPE": _rope,
    "QKV": _qkv,
    "QUANT": _quant,
    "SILU_MUL": _silu_mul,
    "ADD": _add,
}


class ReferenceExecutor(InterpretedRuns):
    """An Executor (see runtime.executor) that runs an image's program one instruction at a time."""

    unit = TensorUnit
    """What executes an instruction."""

    def __init__(self, image: Image, kv_memory: memoryview, num_threads: int = 1) -> None:
        super().__init__()
        self._manifest = image.manifest
        self._programs = (image.program, image.fast)
        self._memory = {
            Region.GLOBAL: np.zeros(self._manifest.arena_bytes, np.uint8),
            Region.TEMPORAL: np.zeros(self.max_rows * padded_rows(self.spec.vocab_size) * 4, np.uint8),
            Region.PERSISTENT: np.frombuffer(image.weights, np.uint8),
        }
        self._unit = self.unit(self._find, kv_memory, self.spec.kv_layout)

    @property
    def spec(self) -> ModelSpec:
        """Shape of the model that runs here."""
        return self._manifest.spec

    @property
    def max_tokens(self) -> int:
        """Most tokens (T) one batch may hold."""
        return self._manifest.max_tokens

    @property
    def max_rows(self) -> int:
        """Most logit rows (R) one batch may ask for: the least room of a DIM_ROWS tensor."""
        tensors = (op for op in self._programs[0] if op.row.name == "TENSOR" and op.has("DIM_ROWS"))
        return min((op.integer("dim0") for op in tensors), default=self.max_tokens)

    def run(self, batch: Batch) -> list[Float32View] | None:
        """R rows of logits [V]; None if interrupted, seen between instructions."""
        arrays, registers = in_arrays(batch), [0] * NUM_REGISTERS
        logits = None
        program = self._programs[batch.is_fast]
        assert program is not None, "the image has no program for the fast class"
        for instruction in program:
            if self.interrupt_word[0]:
                return None
            if instruction.row.name == "HALT":
                break
            result = self._unit.execute(instruction, registers, arrays)
            logits = logits if result is None else result
        assert logits is not None, "the program of a model ends with STREAM LOGITS"
        return in_rows(logits[:, : self.spec.vocab_size])

    def _find(self, region: Region, offset: int) -> NDArray[np.uint8]:
        memory = self._memory.get(region)
        if memory is None or offset >= len(memory):
            raise MachineError(f"a tensor at offset {offset} of {region.name}: nothing is there")
        return memory[offset:]
