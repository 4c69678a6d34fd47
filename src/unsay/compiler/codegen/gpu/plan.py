"""An AVM program as kernel launches on a GPU: which kernel, on what grid, over which memory.

The launches run one after the other; each sees what those before it wrote. Memory is the step's (isa/abi.py): a Place
is a range of one of its regions, or of `scratch`, which is the launches' own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Literal, ParamSpec, TypeAlias

from unsay.compiler.codegen.gpu.attention import Attention, append, attention
from unsay.compiler.codegen.gpu.embed import embed
from unsay.compiler.codegen.gpu.functions import LANES
from unsay.compiler.codegen.gpu.lanes import Kernel
from unsay.compiler.codegen.gpu.products import Gemv, gemv
from unsay.compiler.codegen.gpu.rows import add, quantise, rms_norm, rope, silu_mul
from unsay.errors import ProgramError, UnsupportedError
from unsay.image import ModelSpec
from unsay.isa.formats import (
    QUANT_BLOCK,
    QUANTISED_ACTIVATIONS,
    QUANTISED_WEIGHTS,
    DType,
    activation_bytes,
    padded_rows,
    weight_bytes,
)
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Channel, Region
from unsay.isa.program import Instruction, Program

Rows: TypeAlias = Literal["tokens", "logit_rows"] | int
"""A number, or what the step counts."""

MAX_BUFFER_BYTES = 4 << 31
"""Kernels count words in an i32. Of the pool only the user knows the size: it may be no larger either."""

_Shape = ParamSpec("_Shape")

RegionName: TypeAlias = Literal[
    "persistent", "arena", "scratch", "kv_pool", "page_tables", "sequence", "positions", "token_ids", "logit_rows",
    "logits", "sizes",
]  # fmt: skip
"""Of StepArgs, but for `sizes`, i32 (tokens, pages in a row of page_tables), and `scratch`."""


@dataclass(frozen=True, slots=True)
class Place:
    """num_bytes from `offset` on; to the end where num_bytes is 0."""

    region: RegionName
    offset: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel on `groups` x rows; places in the order of its buffers. Elementwise ones may read where they write."""

    kernel: str
    groups: int
    rows: Rows
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class GpuStep:
    """kernels: by name. logits: where f32 [R][V] are after the last launch, None if the program makes none."""

    kernels: dict[str, Kernel]
    launches: list[Launch]
    logits: Place | None
    scratch_bytes: int

    def to_json(self) -> str:
        """The launches, a line each, for whoever runs them."""
        launches = [
            {"kernel": one.kernel, "grid": [one.groups, one.rows], "buffers": [astuple(place) for place in one.places]}
            for one in self.launches
        ]
        lines = ",\n".join(map(json.dumps, launches))
        logits = json.dumps(astuple(self.logits) if self.logits else None)
        return f'{{"scratch_bytes": {self.scratch_bytes}, "logits": {logits}, "launches": [\n{lines}\n]}}\n'


@dataclass(frozen=True, slots=True)
class _Tensor:
    dtype: DType
    dims: tuple[int, ...]
    rows: Rows
    place: Place

    @property
    def width(self) -> int:
        return self.dims[-1]


def plan_step(program: Program, spec: ModelSpec) -> GpuStep:
    """The launches of a program; raises UnsupportedError naming an instruction that has no GPU kernel."""
    planner = _Planner(spec)
    for index, instruction in enumerate(program):
        planner.where = f"instruction {index} ({instruction.row.name})"
        if instruction.row.name == "HALT":
            break
        handler = _HANDLERS.get(instruction.row.name)
        if handler is None:
            raise UnsupportedError(f"{planner.where}: no GPU kernel does this")
        planner.scratch_used = 0
        handler(planner, instruction)
    return GpuStep(planner.kernels, planner.launches, planner.logits, planner.scratch_bytes)


@dataclass(slots=True)
class _Planner:
    spec: ModelSpec
    made: dict[object, Kernel] = field(default_factory=dict[object, Kernel])
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    launches: list[Launch] = field(default_factory=list[Launch])
    tensors: dict[int, _Tensor] = field(default_factory=dict[int, _Tensor])
    logits: Place | None = None
    scratch_used: int = 0
    scratch_bytes: int = 0
    where: str = ""

    def kernel(self, make: Callable[_Shape, Kernel], *args: _Shape.args, **kwargs: _Shape.kwargs) -> Kernel:
        """make(...), once for equal arguments: layers share kernels."""
        key = (make, args, *kwargs.items())
        if key not in self.made:
            self.made[key] = make(*args, **kwargs)
        return self.made[key]

    def launch(self, kernel: Kernel, width: int, rows: Rows, *places: Place) -> None:
        """A kernel with a lane for each of `width`."""
        self.launch_groups(kernel, -(-width // LANES), rows, *places)

    def launch_groups(self, kernel: Kernel, groups: int, rows: Rows, *places: Place) -> None:
        """A kernel on so many groups."""
        assert len(places) == len(kernel.buffers), (kernel.name, places)
        for place in places:
            if place.num_bytes > MAX_BUFFER_BYTES:
                raise UnsupportedError(
                    f"{self.where}: a tensor of {place.num_bytes} bytes: GPU kernels index {MAX_BUFFER_BYTES} at most"
                )
        self.kernels.setdefault(kernel.name, kernel)
        self.launches.append(Launch(kernel.name, groups, rows, places))

    def tensor(self, register: int) -> _Tensor:
        """What a register names."""
        if register not in self.tensors:
            raise ProgramError(f"{self.where}: R{register} names no tensor")
        return self.tensors[register]

    def same_width(self, *tensors: _Tensor) -> None:
        """Refuse rows of different lengths."""
        if len({tensor.width for tensor in tensors}) > 1:
            raise ProgramError(f"{self.where}: shapes differ: {[tensor.dims for tensor in tensors]}")

    def temporary(self, rows: int, width: int) -> Place:
        """f32 [rows][width] of the launches' own, until the end of the instruction."""
        place = Place("scratch", self.scratch_used, rows * width * 4)
        self.scratch_used += -(-place.num_bytes // 256) * 256
        self.scratch_bytes = max(self.scratch_bytes, self.scratch_used)
        return place

    def product(
        self, w: _Tensor, x: _Tensor, y: _Tensor, bias: Place | None = None, *, accumulate: bool = False
    ) -> None:
        """y = W x (+ bias) (+ y). Without a bias y may be wider than W has rows, as the packed weights are."""
        needed = QUANTISED_ACTIVATIONS if w.dtype in QUANTISED_WEIGHTS else {DType.F32}
        num_rows, num_columns = w.dims
        same_rows = y.width == num_rows if bias else padded_rows(y.width) == padded_rows(num_rows)
        if x.dtype not in needed or y.dtype is not DType.F32 or x.width != num_columns or not same_rows:
            x_and_y = f"x {x.dtype.name} {x.dims}, y {y.dtype.name} {y.dims}"
            raise ProgramError(f"{self.where}: weights {w.dtype.name} {w.dims} do not fit {x_and_y}")
        shape = Gemv(w.dtype, y.width, num_columns, x.dtype, x.dims[0], bias is not None, accumulate)
        places = (w.place, x.place, y.place, *([] if bias is None else [bias]))
        self.launch(self.kernel(gemv, shape), y.width, y.rows, *places)

    def result(self, out: _Tensor) -> Place:
        """Where a kernel puts the f32 values of `out`: there, or where `finish` quantises them from."""
        return out.place if out.dtype is DType.F32 else self.temporary(out.dims[0], out.width)

    def finish(self, out: _Tensor, values: Place) -> None:
        """Quantise what is not f32."""
        if out.dtype is not DType.F32:
            kernel = self.kernel(quantise, out.dtype, out.width, out.dims[0])
            self.launch(kernel, out.width // QUANT_BLOCK, out.rows, values, out.place)


def _tensor(planner: _Planner, op: Instruction) -> None:
    dims = tuple(op.integer(f"dim{axis}") for axis in range(op.integer("rank")))
    dtype, region, offset = DType(op.integer("dtype")), Region(op.flags & 3), op.integer("offset")
    if region not in _REGIONS or offset == NO_OFFSET:
        raise ProgramError(f"{planner.where}: a step's tensors have an offset in {', '.join(r.name for r in _REGIONS)}")
    rows: Rows = "tokens" if op.has("DIM_TOKENS") else "logit_rows" if op.has("DIM_ROWS") else dims[0]
    if region is Region.PERSISTENT:
        size = weight_bytes(dtype, *dims) if len(dims) == 2 else 4 * math.prod(dims)
    else:
        size = activation_bytes(dtype, dims[0], math.prod(dims[1:]))
    planner.tensors[op.registers[0]] = _Tensor(dtype, dims, rows, Place(_REGIONS[region], offset, size))


def _stream(planner: _Planner, op: Instruction) -> None:
    channel = op.integer("channel")
    if channel == Channel.LOGITS:
        planner.logits = planner.tensor(op.registers[1]).place
    elif channel == Channel.EMBED:
        out, table = planner.tensor(op.registers[0]), planner.tensor(op.registers[1])
        planner.launch(
            planner.kernel(embed, table.dtype, table.width), table.width, out.rows, table.place, _TOKEN_IDS, out.place
        )
    else:
        raise UnsupportedError(f"{planner.where}: channel {channel} is not tensor work")


def _norm(planner: _Planner, op: Instruction) -> None:
    if op.has("LAYER"):
        raise UnsupportedError(f"{planner.where}: layer norm has no GPU kernel")
    out, x, gamma = (planner.tensor(register) for register in op.registers[:3])
    planner.same_width(out, x, gamma)
    values, chosen = planner.result(out), op.has("ROWS")
    kernel = planner.kernel(rms_norm, x.width, float(op.field("eps")), chosen_rows=chosen)
    planner.launch_groups(kernel, 1, out.rows, x.place, gamma.place, values, *([_LOGIT_ROWS] if chosen else []))
    planner.finish(out, values)


def _matmul(planner: _Planner, op: Instruction) -> None:
    out, x, w = (planner.tensor(register) for register in op.registers[:3])
    bias = None if op.registers[3] == NO_REGISTER else planner.tensor(op.registers[3]).place
    planner.product(w, x, out, bias, accumulate=op.has("ACCUMULATE"))


def _qkv(planner: _Planner, op: Instruction) -> None:
    out, x, w, table = (planner.tensor(register) for register in op.registers)
    offset = op.integer("bias")
    bias = None if offset == NO_OFFSET else Place("persistent", offset, out.width * 4)
    planner.product(w, x, out, bias)
    num_heads, num_kv_heads, dim = (op.integer(name) for name in ("num_heads", "num_kv_heads", "head_dim"))
    _turn(planner, out, table, num_heads + num_kv_heads, dim, 0)


def _rope(planner: _Planner, op: Instruction) -> None:
    x, table = planner.tensor(op.registers[0]), planner.tensor(op.registers[2])
    _turn(planner, x, table, *(op.integer(name) for name in ("num_heads", "head_dim", "column")))


def _turn(planner: _Planner, x: _Tensor, table: _Tensor, num_heads: int, dim: int, column: int) -> None:
    kernel = planner.kernel(rope, x.width, num_heads, dim, column)
    planner.launch(kernel, num_heads * dim // 2, x.rows, x.place, table.place, _POSITIONS)


def _attn(planner: _Planner, op: Instruction) -> None:
    out, q, k, v = (planner.tensor(register) for register in op.registers)
    layout = planner.spec.kv_layout
    pool = Place("kv_pool", layout.key_offset(op.integer("layer"), 0))
    columns = [op.integer(name) for name in ("k_column", "v_column")]
    num_pairs = layout.num_kv_heads * layout.head_dim // 2
    for source, part, column in zip((k, v), ("keys", "values"), columns, strict=True):
        kernel = planner.kernel(append, layout, part, source.width, column)
        planner.launch(kernel, num_pairs, 1, source.place, pool, *_WHERE, _SIZES)
    shape = Attention(layout, op.integer("num_heads"), float(op.field("scale")), q.width, op.integer("q_column"))
    values = planner.result(out)
    planner.launch_groups(
        planner.kernel(attention, shape), shape.num_heads, out.rows, q.place, pool, *_WHERE, _SIZES, values
    )
    planner.finish(out, values)


def _ffn(planner: _Planner, op: Instruction) -> None:
    out, x, gate_up, down = (planner.tensor(register) for register in op.registers)
    size, dtype = op.integer("ffn_size"), DType(op.integer("hidden_dtype"))
    both = _Tensor(DType.F32, (x.dims[0], 2 * size), x.rows, planner.temporary(x.dims[0], 2 * size))
    planner.product(gate_up, x, both)
    place = Place("arena", op.integer("hidden"), activation_bytes(dtype, x.dims[0], size))
    hidden = _Tensor(dtype, (x.dims[0], size), x.rows, place)
    values = planner.result(hidden)
    planner.launch(planner.kernel(silu_mul, size, "alternate"), size, x.rows, both.place, values)
    planner.finish(hidden, values)
    planner.product(down, hidden, out, accumulate=True)


def _silu_mul(planner: _Planner, op: Instruction) -> None:
    out, gate, up = (planner.tensor(register) for register in op.registers[:3])
    planner.same_width(out, gate, up)
    values = planner.result(out)
    planner.launch(planner.kernel(silu_mul, out.width, "separate"), out.width, out.rows, gate.place, up.place, values)
    planner.finish(out, values)


def _quant(planner: _Planner, op: Instruction) -> None:
    out, x = (planner.tensor(register) for register in op.registers[:2])
    planner.same_width(out, x)
    planner.finish(out, x.place)


def _add(planner: _Planner, op: Instruction) -> None:
    out, a, b = (planner.tensor(register) for register in op.registers[:3])
    planner.same_width(out, a, b)
    planner.launch(planner.kernel(add, out.width), out.width, out.rows, a.place, b.place, out.place)


_REGIONS: dict[Region, RegionName] = {
    Region.GLOBAL: "arena",
    Region.PERSISTENT: "persistent",
    Region.TEMPORAL: "logits",
}
_TOKEN_IDS, _POSITIONS, _LOGIT_ROWS, _SIZES = (
    Place("token_ids"), Place("positions"), Place("logit_rows"), Place("sizes"),
)  # fmt: skip
_WHERE = (Place("page_tables"), Place("sequence"), _POSITIONS)

_HANDLERS: dict[str, Callable[[_Planner, Instruction], None]] = {
    "TENSOR": _tensor,
    "STREAM": _stream,
    "NORM": _norm,
    "MATMUL": _matmul,
    "QKV": _qkv,
    "ROPE": _rope,
    "ATTN": _attn,
    "FFN": _ffn,
    "SILU_MUL": _silu_mul,
    "QUANT": _quant,
    "ADD": _add,
}
