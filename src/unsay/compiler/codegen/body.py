"""The body of a step while it is written: what registers name, where memory is, and where threads meet.

Every thread calls the kernels one after the other (kernels/vector.py says how), with a barrier behind each. Where every
thread does all of a kernel's work for itself in a step of few rows, the barrier is left owing: `settle` writes it
before the next kernel, for all steps if that touches the same memory, else only for steps of many rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.builder import BOOL, I32, I64, PTR, Function, Value
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.codegen.kernels.vector import REPEATED_ROWS
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.codegen.tensor import Tensor
from unsay.compiler.codegen.turns import Place
from unsay.errors import ProgramError, UnsupportedError
from unsay.isa.abi import StepArgs
from unsay.isa.formats import (
    FLOAT_WEIGHTS,
    QUANTISED_ACTIVATIONS,
    QUANTISED_WEIGHTS,
    ROW_GROUP,
    WHOLE_ACTIVATIONS,
    DType,
)
from unsay.isa.opcodes import Dim0, Region
from unsay.isa.program import Instruction

WEIGHTS = tuple(sorted(QUANTISED_WEIGHTS | FLOAT_WEIGHTS))
QUANTISED = tuple(sorted(QUANTISED_ACTIVATIONS | WHOLE_ACTIVATIONS))


class StepBody:
    """`tensors` is what each register names, `where` the instruction that is being written."""

    def __init__(self, f: Function, step: Step, unit: DotUnit) -> None:
        self.f = f
        self.module = f.module
        self.spec = step.spec
        self.unit = unit
        self.tensors: dict[int, Tensor] = {}
        self.where = ""
        self.persistent, self.arena, self.pool, self.logits, self.draws, self.seen = (
            self._pointer(name) for name in ("persistent", "arena", "kv_pool", "logits", "draws", "seen")
        )
        self._num_threads = self._integer("num_threads")
        self._thread, self._threads = f["thread"].cast("sext", I64), self._num_threads.cast("sext", I64)
        self.counts = {Dim0.TOKENS: self._count("num_tokens"), Dim0.ROWS: self._count("num_rows")}
        self.num_seen = self._count("num_seen")
        self.states = self.arena.at(step.scratch_offset)
        self._rows = self.states.at(step_scratch(step.spec, step.max_tokens).states_bytes)
        self._owed: tuple[Value, Tensor, Tensor] | None = None
        self.stay()

    def _pointer(self, name: str) -> Value:
        return self.f.load(PTR, self.f["args"].at(getattr(StepArgs, name).offset), align=8)

    def _integer(self, name: str) -> Value:
        return self.f.load(I32, self.f["args"].at(getattr(StepArgs, name).offset), align=4)

    def _count(self, name: str) -> Value:
        return self._integer(name).cast("sext", I64)

    def call(self, kernel: str, count: Dim0, *pointers: Value, out: Tensor | None = None) -> None:
        """A kernel and its barrier. out: what it writes, where it reads and writes nothing else that others wrote."""
        self.settle(out)
        self.run(kernel, count, *pointers)
        self.meet()

    def run(self, kernel: str, count: Dim0, *pointers: Value) -> None:
        """A kernel, without a barrier."""
        if count not in self.counts:
            raise ProgramError(f"{self.where}: the result must count tokens or logit rows")
        self.run_for(self.counts[count], kernel, *pointers)

    def run_for(self, count: Value, kernel: str, *pointers: Value) -> None:
        """The same for any number of rows."""
        self.f.run(kernel, self.f["args"], self._thread, self._threads, count, *pointers)

    def meet(self) -> None:
        """A barrier; where the step was interrupted, its end."""
        f = self.f
        f.return_if(f.call("barrier", BOOL, f["args"], self._num_threads), "i32 1")

    def meet_if_many(self, count: Value) -> None:
        """The barrier after what every thread does for itself where rows are few."""
        with self.f.when(count.compare("sgt", REPEATED_ROWS)):
            self.meet()

    def owe(self, count: Dim0, out: Tensor, x: Tensor) -> None:
        """Leave the barrier after such work to `settle`. out, x: what it wrote and read."""
        self._owed = self.counts[count], out, x

    def settle(self, out: Tensor | None = None) -> None:
        """The barrier still owed. out: what the next kernel writes, if that is rows in GLOBAL."""
        if self._owed is None:
            return
        count, *touched = self._owed
        self._owed = None
        if out is None or any(out.overlaps(tensor) for tensor in touched):
            self.meet()
        else:
            self.meet_if_many(count)

    def unquantised(self, out: Tensor) -> Tensor:
        """Rows f32 of the same shape in the step's own memory, to be made into `out` by a QUANT."""
        return Tensor(DType.F32, out.dims, out.count, self._rows, out.dims[1], None)

    def operand(self, register: int, *dtypes: DType) -> Tensor:
        """What a register names, of one of these types if any are given."""
        tensor = self.tensors.get(register)
        if tensor is None:
            raise ProgramError(f"{self.where}: R{register} names no tensor")
        if dtypes and tensor.dtype not in dtypes:
            allowed = " or ".join(dtype.name for dtype in dtypes)
            raise ProgramError(f"{self.where}: R{register} is {tensor.dtype.name}, it must be {allowed}")
        return tensor

    def rows(self, register: int, *dtypes: DType) -> Tensor:
        """An activation: [tokens or rows, width]."""
        tensor = self.operand(register, *dtypes)
        if len(tensor.dims) != 2:
            raise ProgramError(f"{self.where}: R{register} has {len(tensor.dims)} dimensions, it must have 2")
        multiple = 32 if tensor.dtype in QUANTISED_ACTIVATIONS else ROW_GROUP
        if tensor.dims[1] % multiple and tensor.stride == tensor.dims[1]:
            raise UnsupportedError(f"{self.where}: rows of {tensor.dims[1]} are not whole vectors of {multiple}")
        return tensor

    def product(self, x: Tensor, weight: Tensor) -> Product:
        """The product of a weight with an activation."""
        if weight.dtype not in WEIGHTS:
            raise ProgramError(f"{self.where}: a weight of {weight.dtype.name}, it must be of a format weights have")
        needed = QUANTISED if weight.dtype in QUANTISED_WEIGHTS else (DType.F32, *sorted(WHOLE_ACTIVATIONS))
        if x.dtype not in needed or x.dims[1] != weight.dims[1]:
            allowed = " or ".join(dtype.name for dtype in needed)
            raise ProgramError(
                f"{self.where}: weight {weight.dtype.name} {weight.dims} needs x {allowed} of width "
                f"{weight.dims[1]}, it is {x.dtype.name} {x.dims}"
            )
        return Product(weight.dtype, weight.dims[0], weight.dims[1], x.dtype, x.capacity)

    def place(self, tensor: Instruction, field: int) -> Value:
        """The address that a TENSOR names. field: the register field that names the tensor."""
        base = self.arena if Region(tensor.flags & 3) is Region.GLOBAL else self.weights(field)
        return base.at(tensor.integer("offset"))

    def move(self, turn: Value, weight_stride: int, moves: Mapping[Place, int]) -> None:
        """In turn `turn` of a stretch: where weights and pages are counted from, for the instruction of these moves."""
        layer = self.spec.kv_layout.key_offset(1, 0)
        self._turn = turn, {place: weight_stride if place != "layer" else layer for place, by in moves.items() if by}

    def stay(self) -> None:
        """Outside of stretches."""
        self._turn: tuple[Value, Mapping[Place, int]] | None = None

    def weights(self, place: Place) -> Value:
        """What the offset of a weight is counted from."""
        return self._moved(self.persistent, place)

    def pages(self) -> Value:
        """What the offset of a layer in the pool is counted from."""
        return self._moved(self.pool, "layer")

    def _moved(self, base: Value, place: Place) -> Value:
        if self._turn is None or place not in self._turn[1]:
            return base
        turn, strides = self._turn
        return base.at(turn * strides[place])
