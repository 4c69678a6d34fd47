"""AVM program -> machine code of one native step.

    i32 step(StepArgs* args, i32 thread)     thread's part of the whole program; 1 if all stopped at an interrupt
        kernel(args, thread, threads, count, tensors ...)        one call or a few per instruction,
        if barrier(args, threads): return 1                      a barrier after each call

The step is straight-line; kernels are functions made for a format and shape and shared by all layers. Barriers, of
which the last is the end of the step: one for each of EMBED, NORM, QKV, MATMUL, ROPE, QUANT, SILU_MUL, ADD; two for
FFN (hidden complete, out complete); three for LOGITS (look.py), and for ATTN (keys visible, parts complete, output
complete), four where heads do not fill whole Q8A blocks. A llama layer of NORM QKV ATTN MATMUL NORM FFN has nine. In a
step of a row or two every thread normalises, appends keys and values and merges parts for itself: a NORM has none and
an ATTN one, if the kernel after it leaves what it reads and writes alone. Then a layer has five.

Instructions that are not tensor work end here with ProgramError, except a HALT at the end.
"""

from __future__ import annotations

from unsay.compiler.codegen.backends import Code
from unsay.compiler.codegen.builder import BOOL, I32, I64, PTR, Function, Module, Value
from unsay.compiler.codegen.kernels import attention, elementwise, embed, ffn, look, matmul, norm, rope, tile
from unsay.compiler.codegen.kernels.dot import DotUnit, dot_unit
from unsay.compiler.codegen.kernels.scan import add_scan
from unsay.compiler.codegen.kernels.soft import SUBSTITUTES
from unsay.compiler.codegen.kernels.sync import add_sync
from unsay.compiler.codegen.kernels.vector import REPEATED_ROWS
from unsay.compiler.codegen.tensor import Tensor
from unsay.compiler.codegen.translate import ATTRIBUTES, machine_code
from unsay.errors import ProgramError, UnsupportedError
from unsay.image import ModelSpec
from unsay.isa.abi import StepArgs
from unsay.isa.formats import (
    FLOAT_WEIGHTS,
    QUANTISED_ACTIVATIONS,
    QUANTISED_WEIGHTS,
    ROW_GROUP,
    DType,
    padded_rows,
)
from unsay.isa.kv import MOST_INT8_DIM
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Channel, Dim0, Region
from unsay.isa.program import Instruction, Program
from unsay.isa.targets import find_target

_WEIGHTS = tuple(sorted(QUANTISED_WEIGHTS | FLOAT_WEIGHTS))
_QUANTISED = (DType.Q8A, DType.Q8W, DType.Q16)
_ELEMENTWISE_OUT = {"QUANT": _QUANTISED, "SILU_MUL": (DType.F32, *_QUANTISED), "ADD": (DType.F32,)}

ENTRIES = ("step", "run", "worker", "close", "survey", "race")


def emit(
    program: Program,
    spec: ModelSpec,
    target: str,
    *,
    max_tokens: int,
    max_rows: int,
    max_threads: int,
    scratch_offset: int,
    fast: Program | None = None,
) -> Code:
    """Machine code of the program's step. scratch_offset: where in the arena `scratch_bytes` are the step's own.

    fast: the program for steps whose tokens are of the fast class.

    Raises TargetError for an unknown target, ProgramError for a program that is not a step, UnsupportedError for
    a shape the kernels do not do.
    """
    chosen = find_target(target)
    text = step_text(program, spec, dot_unit(chosen), max_tokens, max_rows, max_threads, scratch_offset, fast)
    blob, symbols = machine_code(text, chosen)
    return Code(blob, {name: symbols[name] for name in ENTRIES})


def scratch_bytes(spec: ModelSpec, max_tokens: int, max_threads: int) -> int:
    """Bytes the step needs beside the program's tensors: attention states, and rows that an instruction quantises last:
    attention's output, or the hidden rows of an FFN."""
    return _states_bytes(spec, max_threads) + max_tokens * max(spec.num_heads * spec.head_dim, spec.ffn_size) * 4


def step_text(
    program: Program,
    spec: ModelSpec,
    unit: DotUnit,
    max_tokens: int,
    max_rows: int,
    max_threads: int,
    scratch_offset: int,
    fast: Program | None = None,
) -> str:
    """LLVM IR text of the step; of both classes with a `fast` program."""
    if spec.head_dim % ROW_GROUP:
        raise UnsupportedError(f"head size {spec.head_dim} is not a multiple of {ROW_GROUP}, which the kernels need")
    if spec.kv_layout.is_scaled and spec.head_dim > MOST_INT8_DIM:
        raise UnsupportedError(f"head size {spec.head_dim} is beyond {MOST_INT8_DIM} for int8 pages: use --kv f16")
    header = f"; {spec.name}: one step of up to {max_tokens} tokens, {max_rows} logit rows\n{ATTRIBUTES}"
    module = Module(header, SUBSTITUTES[unit.architecture])

    def define(name: str, program: Program, linkage: str) -> str:
        def write(f: Function) -> None:
            writer = _StepWriter(f, spec, unit, max_threads, scratch_offset, _logits_tensors(program))
            for index, instruction in enumerate(program):
                if instruction.row.name == "HALT":
                    break
                writer.write(index, instruction)
            writer.settle()
            f.result_value = f.constant(I32, 0)

        doc = "this thread's part of the program; 1 if stopped by the interrupt word"
        return module.define(name, _STEP, write, doc, result=I32, linkage=linkage, inline=not linkage)

    if fast is None:
        define("step", program, "")
    else:
        _define_choice(module, define("exact_step", program, "internal "), define("fast_step", fast, "internal "))
    add_sync(module, unit.architecture)
    add_scan(module)
    return module.text()


_STEP = [(PTR, "args"), (I32, "thread")]


def _define_choice(module: Module, exact: str, fast: str) -> None:
    """The step that is one of two."""

    def write(f: Function) -> None:
        result = f.slot(I32, 0)
        is_fast = f.load(I32, f["args"].at(StepArgs.is_fast.offset), align=4)
        for condition, name in (("eq", exact), ("ne", fast)):
            with f.when(is_fast.compare(condition, 0)):
                result.set(f.call(name, I32, f["args"], f["thread"]))
        f.result_value = result.get()

    module.define("step", _STEP, write, "the step of the class that the tokens are of", result=I32, linkage="")


def _states_bytes(spec: ModelSpec, max_threads: int) -> int:
    state = attention.state_bytes(spec.num_heads // spec.num_kv_heads, spec.head_dim)
    return attention.scratch_states(max_threads, spec.context_length) * state


def _logits_tensors(program: Program) -> frozenset[int]:
    """Indices of the TENSOR instructions whose tensor becomes the step's logits."""
    made: dict[int, int] = {}
    chosen: set[int] = set()
    for index, instruction in enumerate(program):
        if instruction.row.name == "TENSOR":
            made[instruction.registers[0]] = index
        if instruction.row.name == "STREAM" and instruction.integer("channel") == Channel.LOGITS:
            register = instruction.registers[1]
            if register not in made:
                raise ProgramError(f"instruction {index}: LOGITS of R{register}, which names no tensor")
            chosen.add(made[register])
    return frozenset(chosen)


class _StepWriter:
    """Writes the body of `step`, instruction by instruction; `tensors` is what each register names."""

    def __init__(
        self,
        f: Function,
        spec: ModelSpec,
        unit: DotUnit,
        max_threads: int,
        scratch_offset: int,
        logits: frozenset[int],
    ) -> None:
        self.f = f
        self.module = f.module
        self.spec = spec
        self.unit = unit
        self.logits = logits
        self.tensors: dict[int, Tensor] = {}
        self.persistent, self.arena, self.pool, self.logits_base, self.draws, self.seen = (
            f.load(PTR, f["args"].at(getattr(StepArgs, name).offset), align=8)
            for name in ("persistent", "arena", "kv_pool", "logits", "draws", "seen")
        )
        self.num_threads = f.load(I32, f["args"].at(StepArgs.num_threads.offset), align=4)
        self.thread, self.threads = f["thread"].cast("sext", I64), self.num_threads.cast("sext", I64)
        self.counts = {
            Dim0.TOKENS: f.load(I32, f["args"].at(StepArgs.num_tokens.offset), align=4).cast("sext", I64),
            Dim0.ROWS: f.load(I32, f["args"].at(StepArgs.num_rows.offset), align=4).cast("sext", I64),
        }
        self.num_seen = f.load(I32, f["args"].at(StepArgs.num_seen.offset), align=4).cast("sext", I64)
        self.states = self.arena.at(scratch_offset)
        self.unquantised = self.arena.at(scratch_offset + _states_bytes(spec, max_threads))
        self.where = ""
        self._owed: tuple[Value, Tensor, Tensor] | None = None

    def write(self, index: int, instruction: Instruction) -> None:
        """The calls of one instruction, each followed by a barrier."""
        name = instruction.row.name
        self.where = f"instruction {index} ({name})"
        self.f.comment(f"{index}: {name} " + " ".join(f"R{r}" for r in instruction.registers if r != NO_REGISTER))
        match name:
            case "TENSOR":
                self._tensor(index, instruction)
            case "STREAM":
                self._stream(instruction)
            case "NORM":
                self._norm(instruction)
            case "MATMUL":
                self._matmul(instruction)
            case "QKV":
                self._qkv(instruction)
            case "ROPE":
                self._rope(instruction)
            case "ATTN":
                self._attn(instruction)
            case "FFN":
                self._ffn(instruction)
            case "QUANT" | "SILU_MUL" | "ADD":
                self._elementwise(instruction)
            case _:
                raise ProgramError(f"{self.where}: not tensor work, it cannot be part of a native step")

    def settle(self, out: Tensor | None = None) -> None:
        """The barrier a NORM or ATTN still owes. out: what the next kernel writes, if that is rows in GLOBAL."""
        if self._owed is None:
            return
        count, *touched = self._owed
        self._owed = None
        if out is None or any(out.overlaps(tensor) for tensor in touched):
            self._meet()
        else:
            self._meet_if_many(count)

    def _meet_if_many(self, count: Value) -> None:
        """The barrier after what every thread does for itself where rows are few."""
        with self.f.when(count.compare("sgt", REPEATED_ROWS)):
            self._meet()

    def _call(self, kernel: str, count: Dim0, *pointers: Value, out: Tensor | None = None) -> None:
        self.settle(out)
        self._run(kernel, count, *pointers)
        self._meet()

    def _run(self, kernel: str, count: Dim0, *pointers: Value) -> None:
        if count not in self.counts:
            raise ProgramError(f"{self.where}: the result must count tokens or logit rows")
        self._run_for(self.counts[count], kernel, *pointers)

    def _run_for(self, count: Value, kernel: str, *pointers: Value) -> None:
        self.f.run(kernel, self.f["args"], self.thread, self.threads, count, *pointers)

    def _meet(self) -> None:
        f = self.f
        f.return_if(f.call("barrier", BOOL, f["args"], self.num_threads), "i32 1")

    def _operand(self, register: int, *dtypes: DType) -> Tensor:
        tensor = self.tensors.get(register)
        if tensor is None:
            raise ProgramError(f"{self.where}: R{register} names no tensor")
        if dtypes and tensor.dtype not in dtypes:
            allowed = " or ".join(dtype.name for dtype in dtypes)
            raise ProgramError(f"{self.where}: R{register} is {tensor.dtype.name}, it must be {allowed}")
        return tensor

    def _rows(self, register: int, *dtypes: DType) -> Tensor:
        """An activation: [tokens or rows, width]."""
        tensor = self._operand(register, *dtypes)
        if len(tensor.dims) != 2:
            raise ProgramError(f"{self.where}: R{register} has {len(tensor.dims)} dimensions, it must have 2")
        multiple = 32 if tensor.dtype in QUANTISED_ACTIVATIONS else ROW_GROUP
        if tensor.dims[1] % multiple and tensor.stride == tensor.dims[1]:
            raise UnsupportedError(f"{self.where}: rows of {tensor.dims[1]} are not whole vectors of {multiple}")
        return tensor

    def _same_rows(self, first: Tensor, *others: Tensor) -> None:
        if any(other.dims != first.dims for other in others):
            raise ProgramError(f"{self.where}: shapes differ: {[t.dims for t in (first, *others)]}")

    def _tensor(self, index: int, instruction: Instruction) -> None:
        if instruction.has("SPARSE"):
            raise UnsupportedError(f"{self.where}: sparse tensors are not supported by the native step")
        dims = tuple(instruction.integer(f"dim{axis}") for axis in range(instruction.integer("rank")))
        is_logits = index in self.logits
        address = self.logits_base if is_logits else self._place(instruction)
        count = Dim0.FIXED
        if instruction.has("DIM_TOKENS") or instruction.has("DIM_ROWS"):
            count = Dim0.TOKENS if instruction.has("DIM_TOKENS") else Dim0.ROWS
        stride = padded_rows(dims[-1]) if is_logits else dims[-1]
        in_arena = count is not Dim0.FIXED and not is_logits
        offset = instruction.integer("offset") if in_arena else None
        dtype = _dtype(instruction, self.where)
        self.tensors[instruction.registers[0]] = Tensor(dtype, dims, count, address, stride, offset)

    def _place(self, instruction: Instruction) -> Value:
        region, offset = Region(instruction.flags & 3), instruction.integer("offset")
        bases = {Region.GLOBAL: self.arena, Region.PERSISTENT: self.persistent}
        if region not in bases or offset == NO_OFFSET:
            raise ProgramError(f"{self.where}: a step's tensors have an offset in GLOBAL or PERSISTENT")
        return bases[region].at(offset)

    def _stream(self, instruction: Instruction) -> None:
        channel = instruction.integer("channel")
        if channel == Channel.LOGITS:
            logits = self._rows(instruction.registers[1], DType.F32)
            if not 0 < self.spec.vocab_size <= logits.stride:
                raise ProgramError(
                    f"{self.where}: {logits.stride} logits in a row, the vocabulary has {self.spec.vocab_size}"
                )
            for kernel in look.look(self.module, self.spec.vocab_size, logits.stride):
                self._run_for(self.num_seen, kernel, logits.address, self.draws, self.seen)
                self._meet()
            return
        if channel != Channel.EMBED:
            raise ProgramError(f"{self.where}: channel {channel} is not tensor work")
        out_register, table_register, *_ = instruction.registers
        out, table = self._rows(out_register, DType.F32), self._operand(table_register, *_WEIGHTS)
        if table.dims[1] != out.dims[1]:
            raise ProgramError(f"{self.where}: table of width {table.dims[1]}, output of width {out.dims[1]}")
        self._call(embed.embed(self.module, table.dtype, table.dims[1]), out.count, out.address, table.address)

    def _norm(self, instruction: Instruction) -> None:
        rd, ra, rb, rc = instruction.registers
        out, x = self._rows(rd, DType.F32, *_QUANTISED), self._rows(ra, DType.F32)
        vectors = [self._operand(register, DType.F32) for register in (rb, rc) if register != NO_REGISTER]
        eps = instruction.field("eps")
        shape = norm.Norm(
            x.dims[1], eps, instruction.has("LAYER"), instruction.has("ROWS"), len(vectors) == 2, out.dtype,
            out.capacity,
        )  # fmt: skip
        count = Dim0.ROWS if instruction.has("ROWS") else out.count
        addresses = [vector.address for vector in vectors]
        self.settle()
        self._run(norm.norm(self.module, shape), count, out.address, x.address, *addresses)
        self._owed = self.counts[count], out, x

    def _product(self, x: Tensor, weight: Tensor) -> tile.Product:
        if weight.dtype not in _WEIGHTS:
            raise ProgramError(f"{self.where}: a weight of {weight.dtype.name}, it must be of a format weights have")
        needed = (*_QUANTISED,) if weight.dtype in QUANTISED_WEIGHTS else (DType.F32, DType.Q16)
        if x.dtype not in needed or x.dims[1] != weight.dims[1]:
            allowed = " or ".join(dtype.name for dtype in needed)
            raise ProgramError(
                f"{self.where}: weight {weight.dtype.name} {weight.dims} needs x {allowed} of width "
                f"{weight.dims[1]}, it is {x.dtype.name} {x.dims}"
            )
        return tile.Product(weight.dtype, weight.dims[0], weight.dims[1], x.dtype, x.capacity)

    def _matmul(self, instruction: Instruction) -> None:
        rd, ra, rb, rc = instruction.registers
        out, x, weight = self._rows(rd, DType.F32), self._rows(ra), self._operand(rb)
        bias = [] if rc == NO_REGISTER else [self._operand(rc, DType.F32).address]
        product = self._product(x, weight)
        if padded_rows(product.num_rows) != padded_rows(out.dims[1]):
            raise ProgramError(f"{self.where}: {product.num_rows} rows of weights, output of width {out.dims[1]}")
        kernel = matmul.matmul(self.module, self.unit, product, bool(bias), instruction.has("ACCUMULATE"), out.stride)
        self._call(kernel, out.count, out.address, x.address, weight.address, *bias, out=out)

    def _qkv(self, instruction: Instruction) -> None:
        out_register, *others = instruction.registers
        out, (x, weight, table) = self._rows(out_register, DType.F32), (self._operand(other) for other in others)
        num_heads, num_kv_heads = instruction.integer("num_heads"), instruction.integer("num_kv_heads")
        heads = rope.Heads(num_heads + num_kv_heads, instruction.integer("head_dim"), 0, out.dims[1])
        offset = instruction.integer("bias")
        bias = [] if offset == NO_OFFSET else [self.persistent.at(offset)]
        kernel = rope.qkv(self.module, self.unit, self._product(x, weight), heads, bool(bias))
        self._call(kernel, out.count, out.address, x.address, weight.address, table.address, *bias, out=out)

    def _rope(self, instruction: Instruction) -> None:
        x, table = self._rows(instruction.registers[0], DType.F32), self._operand(instruction.registers[2], DType.F32)
        num_heads, head_dim, column = (instruction.integer(field) for field in ("num_heads", "head_dim", "column"))
        self._call(
            rope.rope(self.module, rope.Heads(num_heads, head_dim, column, x.dims[1])),
            x.count,
            x.address,
            table.address,
        )

    def _attn(self, instruction: Instruction) -> None:
        out_register, *inputs = instruction.registers
        out, (q, k, v) = (
            self._rows(out_register, DType.F32, DType.Q8A, DType.Q16),
            (self._rows(register, DType.F32) for register in inputs),
        )
        layout = self.spec.kv_layout
        given = tuple(instruction.integer(field) for field in ("num_heads", "num_kv_heads", "head_dim"))
        if given != (self.spec.num_heads, layout.num_kv_heads, layout.head_dim):
            raise ProgramError(f"{self.where}: heads {given} do not fit the KV cache of this model")
        at_once = out.dtype is DType.F32 or (out.dtype is DType.Q8A and layout.head_dim % 32 == 0)
        shape = attention.Attention(
            layout,
            self.spec.num_heads,
            float(instruction.field("scale")),
            q_column=instruction.integer("q_column"),
            k_column=instruction.integer("k_column"),
            v_column=instruction.integer("v_column"),
            q_width=q.dims[1],
            k_width=k.dims[1],
            v_width=v.dims[1],
            out_dtype=out.dtype if at_once else DType.F32,
            capacity=out.capacity,
        )
        pool = self.pool.at(layout.key_offset(instruction.integer("layer"), 0))
        goal = out.address if at_once else self.unquantised
        self.settle()
        self._run(attention.append(self.module, shape), out.count, k.address, v.address, pool)
        self._meet_if_many(self.counts[out.count])
        parts = attention.max_parts(self.spec.context_length)
        attend = attention.attend(self.module, self.unit, shape, parts)
        self._call(attend, out.count, goal, q.address, pool, self.states)
        self._run(attention.merge(self.module, shape, parts), out.count, goal, self.states)
        self._owed = self.counts[out.count], out, out
        if not at_once:
            kernel = elementwise.quantise(self.module, out.dtype, out.dims[1], out.capacity)
            self._call(kernel, out.count, out.address, self.unquantised)

    def _ffn(self, instruction: Instruction) -> None:
        rd, ra, rb, rc = instruction.registers
        out, x, weights, down = self._rows(rd, DType.F32), self._rows(ra), self._operand(rb), self._operand(rc)
        size, hidden_dtype = instruction.integer("ffn_size"), DType(instruction.integer("hidden_dtype"))
        if weights.dims[0] != 2 * size or size % 32:
            raise UnsupportedError(f"{self.where}: feed-forward size {size} must be a multiple of 32")
        offset = instruction.integer("hidden")
        address = self.arena.at(offset)
        if hidden_dtype not in (DType.F32, *_QUANTISED):
            raise ProgramError(f"{self.where}: hidden is {hidden_dtype.name}, it must be F32, Q8A, Q8W or Q16")
        hidden = Tensor(hidden_dtype, (x.capacity, size), x.count, address, size, offset)
        at_once = hidden_dtype is not DType.Q16
        goal, goal_dtype = (address, hidden_dtype) if at_once else (self.unquantised, DType.F32)
        gate_up = ffn.gate_up(self.module, self.unit, self._product(x, weights), goal_dtype)
        self._call(gate_up, out.count, goal, x.address, weights.address, out=hidden)
        if not at_once:
            kernel = elementwise.quantise(self.module, hidden_dtype, size, x.capacity)
            self._call(kernel, out.count, address, self.unquantised)
        product = self._product(hidden, down)
        kernel = matmul.matmul(self.module, self.unit, product, bias=False, accumulate=True, stride=out.stride)
        self._call(kernel, out.count, out.address, address, down.address)

    def _elementwise(self, instruction: Instruction) -> None:
        out_register, *inputs = (register for register in instruction.registers if register != NO_REGISTER)
        out = self._rows(out_register, *_ELEMENTWISE_OUT[instruction.row.name])
        sources = [self._rows(register, DType.F32) for register in inputs]
        self._same_rows(out, *sources)
        width, capacity = out.dims[1], out.capacity
        match instruction.row.name:
            case "QUANT":
                kernel = elementwise.quantise(self.module, out.dtype, width, capacity)
            case "SILU_MUL":
                kernel = elementwise.silu_times(self.module, out.dtype, width, capacity)
            case _:
                kernel = elementwise.add(self.module, width, capacity)
        self._call(kernel, out.count, out.address, *(source.address for source in sources))


def _dtype(instruction: Instruction, where: str) -> DType:
    try:
        return DType(instruction.integer("dtype"))
    except ValueError as error:
        raise ProgramError(f"{where}: element type 0x{instruction.integer('dtype'):02X} is not defined") from error
