"""What each AVM instruction is in a native step: its operands checked, the calls of its kernels.

Barriers, of which the last is the end of the step: one for each of EMBED, NORM, QKV, MATMUL, ROPE, QUANT, SILU_MUL and
ADD; two for FFN (hidden complete, out complete); three for LOGITS (look.py), and for ATTN (keys visible, parts
complete, output complete). One more where a kernel cannot quantise what it makes piece by piece, and a QUANT has to
follow: heads that do not fill whole Q8A blocks, rows of Q16 out of ATTN or as FFN's hidden. A llama layer of NORM QKV
ATTN MATMUL NORM FFN has nine, in the fast class eleven. In a step of a row or two every thread normalises, appends keys
and values and merges parts for itself: a NORM has none and an ATTN one, if the kernel after it leaves what it reads and
writes alone. Then a layer has five.

Instructions that are not tensor work end here with ProgramError, except a HALT at the end.
"""

from __future__ import annotations

from unsay.compiler.codegen.body import QUANTISED, WEIGHTS, StepBody
from unsay.compiler.codegen.kernels import attention, elementwise, embed, ffn, look, matmul, norm, rope
from unsay.compiler.codegen.tensor import Tensor
from unsay.compiler.codegen.turns import Named, Stretch, Work
from unsay.errors import ProgramError, UnsupportedError
from unsay.isa.formats import WHOLE_ACTIVATIONS, DType, padded_rows
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Channel, Dim0
from unsay.isa.program import Instruction

_ELEMENTWISE_OUT = {"QUANT": QUANTISED, "SILU_MUL": (DType.F32, *QUANTISED), "ADD": (DType.F32,)}


def write_stretch(body: StepBody, stretch: Stretch) -> None:
    """Write the instructions of a stretch, as a loop if it has several turns."""
    if stretch.times == 1:
        for work in stretch.works:
            _write(body, work)
        return
    body.settle()
    with body.f.loop("turn", 0, stretch.times) as turn:
        for work, moves in zip(stretch.works, stretch.moves, strict=True):
            body.move(turn, stretch.weight_stride, moves)
            _write(body, work, f" + {moves['position']} * turn")
        body.settle()
    body.stay()


def _write(body: StepBody, work: Work, later: str = "") -> None:
    """Write one instruction. later: how its position grows in a loop."""
    instruction, name = work.instruction, work.instruction.row.name
    body.where = f"instruction {work.position} ({name})"
    registers = [register for register in instruction.registers if register != NO_REGISTER]
    body.f.comment(f"{work.position}{later}: {name} " + " ".join(f"R{register}" for register in registers))
    if name not in _WRITERS:
        raise ProgramError(f"{body.where}: not tensor work, it cannot be part of a native step")
    body.tensors = {
        register: _tensor(body, work.tensors[register], place)
        for place, register in enumerate(instruction.registers)
        if register in work.tensors
    }
    _WRITERS[name](body, instruction)


def _tensor(body: StepBody, named: Named, place: int) -> Tensor:
    instruction, is_logits = named
    dims = tuple(instruction.integer(f"dim{axis}") for axis in range(instruction.integer("rank")))
    address = body.logits if is_logits else body.place(instruction, place)
    count = Dim0.FIXED
    if instruction.has("DIM_TOKENS") or instruction.has("DIM_ROWS"):
        count = Dim0.TOKENS if instruction.has("DIM_TOKENS") else Dim0.ROWS
    stride = padded_rows(dims[-1]) if is_logits else dims[-1]
    in_arena = count is not Dim0.FIXED and not is_logits
    offset = instruction.integer("offset") if in_arena else None
    return Tensor(_dtype(instruction, body.where), dims, count, address, stride, offset)


def _dtype(instruction: Instruction, where: str) -> DType:
    try:
        return DType(instruction.integer("dtype"))
    except ValueError as error:
        raise ProgramError(f"{where}: element type 0x{instruction.integer('dtype'):02X} is not defined") from error


def _stream(body: StepBody, instruction: Instruction) -> None:
    match instruction.integer("channel"):
        case Channel.LOGITS:
            _logits(body, body.rows(instruction.registers[1], DType.F32))
        case Channel.EMBED:
            _embed(body, instruction)
        case channel:
            raise ProgramError(f"{body.where}: channel {channel} is not tensor work")


def _logits(body: StepBody, logits: Tensor) -> None:
    vocab_size = body.spec.vocab_size
    if not 0 < vocab_size <= logits.stride:
        raise ProgramError(f"{body.where}: {logits.stride} logits in a row, the vocabulary has {vocab_size}")
    for kernel in look.look(body.module, vocab_size, logits.stride):
        body.run_for(body.num_seen, kernel, logits.address, body.draws, body.seen)
        body.meet()


def _embed(body: StepBody, instruction: Instruction) -> None:
    out_register, table_register, *_ = instruction.registers
    out, table = body.rows(out_register, DType.F32), body.operand(table_register, *WEIGHTS)
    if table.dims[1] != out.dims[1]:
        raise ProgramError(f"{body.where}: table of width {table.dims[1]}, output of width {out.dims[1]}")
    body.call(embed.embed(body.module, table.dtype, table.dims[1]), out.count, out.address, table.address)


def _norm(body: StepBody, instruction: Instruction) -> None:
    rd, ra, rb, rc = instruction.registers
    out, x = body.rows(rd, DType.F32, *QUANTISED), body.rows(ra, DType.F32)
    vectors = [body.operand(register, DType.F32) for register in (rb, rc) if register != NO_REGISTER]
    eps = instruction.field("eps")
    shape = norm.Norm(
        x.dims[1], eps, instruction.has("LAYER"), instruction.has("ROWS"), len(vectors) == 2, out.dtype,
        out.capacity,
    )  # fmt: skip
    count = Dim0.ROWS if instruction.has("ROWS") else out.count
    addresses = [vector.address for vector in vectors]
    body.settle()
    body.run(norm.norm(body.module, shape), count, out.address, x.address, *addresses)
    body.owe(count, out, x)


def _matmul(body: StepBody, instruction: Instruction) -> None:
    rd, ra, rb, rc = instruction.registers
    out, x, weight = body.rows(rd, DType.F32), body.rows(ra), body.operand(rb)
    bias = [] if rc == NO_REGISTER else [body.operand(rc, DType.F32).address]
    product = body.product(x, weight)
    if padded_rows(product.num_rows) != padded_rows(out.dims[1]):
        raise ProgramError(f"{body.where}: {product.num_rows} rows of weights, output of width {out.dims[1]}")
    kernel = matmul.matmul(body.module, body.unit, product, bool(bias), instruction.has("ACCUMULATE"), out.stride)
    body.call(kernel, out.count, out.address, x.address, weight.address, *bias, out=out)


def _qkv(body: StepBody, instruction: Instruction) -> None:
    out_register, *others = instruction.registers
    out, (x, weight, table) = body.rows(out_register, DType.F32), (body.operand(other) for other in others)
    num_heads, num_kv_heads = instruction.integer("num_heads"), instruction.integer("num_kv_heads")
    heads = rope.Heads(num_heads + num_kv_heads, instruction.integer("head_dim"), 0, out.dims[1])
    offset = instruction.integer("bias")
    bias = [] if offset == NO_OFFSET else [body.weights("bias").at(offset)]
    kernel = rope.qkv(body.module, body.unit, body.product(x, weight), heads, bool(bias))
    body.call(kernel, out.count, out.address, x.address, weight.address, table.address, *bias, out=out)


def _rope(body: StepBody, instruction: Instruction) -> None:
    x, table = body.rows(instruction.registers[0], DType.F32), body.operand(instruction.registers[2], DType.F32)
    num_heads, head_dim, column = (instruction.integer(field) for field in ("num_heads", "head_dim", "column"))
    kernel = rope.rope(body.module, rope.Heads(num_heads, head_dim, column, x.dims[1]))
    body.call(kernel, x.count, x.address, table.address)


def _attn(body: StepBody, instruction: Instruction) -> None:
    out_register, *inputs = instruction.registers
    out = body.rows(out_register, DType.F32, DType.Q8A, *sorted(WHOLE_ACTIVATIONS))
    q, k, v = (body.rows(register, DType.F32) for register in inputs)
    layout = body.spec.kv_layout
    given = tuple(instruction.integer(field) for field in ("num_heads", "num_kv_heads", "head_dim"))
    if given != (body.spec.num_heads, layout.num_kv_heads, layout.head_dim):
        raise ProgramError(f"{body.where}: heads {given} do not fit the KV cache of this model")
    heads_are_whole = out.dtype is DType.F32 or (out.dtype is DType.Q8A and layout.head_dim % 32 == 0)
    made = out if heads_are_whole else body.unquantised(out)
    shape = attention.Attention(
        layout,
        body.spec.num_heads,
        float(instruction.field("scale")),
        q_column=instruction.integer("q_column"),
        k_column=instruction.integer("k_column"),
        v_column=instruction.integer("v_column"),
        q_width=q.dims[1],
        k_width=k.dims[1],
        v_width=v.dims[1],
        out_dtype=made.dtype,
        capacity=out.capacity,
        on_tiles=body.unit.amx and layout.is_scaled,
    )
    pool = body.pages().at(layout.key_offset(instruction.integer("layer"), 0))
    body.settle()
    body.run(attention.append(body.module, shape), out.count, k.address, v.address, pool)
    body.meet_if_many(body.counts[out.count])
    parts = attention.max_parts(body.spec.context_length)
    attend = attention.attend(body.module, body.unit, shape, parts)
    body.call(attend, out.count, made.address, q.address, pool, body.states)
    body.run(attention.merge(body.module, shape, parts), out.count, made.address, body.states)
    body.owe(out.count, made, made)
    _quantise(body, out, made)


def _ffn(body: StepBody, instruction: Instruction) -> None:
    rd, ra, rb, rc = instruction.registers
    out, x, weights, down = body.rows(rd, DType.F32), body.rows(ra), body.operand(rb), body.operand(rc)
    size, dtype = instruction.integer("ffn_size"), DType(instruction.integer("hidden_dtype"))
    if weights.dims[0] != 2 * size or size % 32:
        raise UnsupportedError(f"{body.where}: feed-forward size {size} must be a multiple of 32")
    if dtype not in (DType.F32, *QUANTISED):
        raise ProgramError(f"{body.where}: hidden is {dtype.name}, it must be F32, Q8A, Q8W, Q16 or Q16P")
    offset = instruction.integer("hidden")
    hidden = Tensor(dtype, (x.capacity, size), x.count, body.arena.at(offset), size, offset)
    made = body.unquantised(hidden) if dtype in WHOLE_ACTIVATIONS else hidden
    gate_up = ffn.gate_up(body.module, body.unit, body.product(x, weights), made.dtype)
    body.call(gate_up, out.count, made.address, x.address, weights.address, out=made)
    _quantise(body, hidden, made)
    product = body.product(hidden, down)
    kernel = matmul.matmul(body.module, body.unit, product, bias=False, accumulate=True, stride=out.stride)
    body.call(kernel, out.count, out.address, hidden.address, down.address)


def _quantise(body: StepBody, out: Tensor, made: Tensor) -> None:
    """Make `out` of what was made instead of it, if that is something else."""
    if made is not out:
        kernel = elementwise.quantise(body.module, out.dtype, out.dims[1], out.capacity)
        body.call(kernel, out.count, out.address, made.address)


def _elementwise(body: StepBody, instruction: Instruction) -> None:
    out_register, *inputs = (register for register in instruction.registers if register != NO_REGISTER)
    out = body.rows(out_register, *_ELEMENTWISE_OUT[instruction.row.name])
    sources = [body.rows(register, DType.F32) for register in inputs]
    if any(source.dims != out.dims for source in sources):
        raise ProgramError(f"{body.where}: shapes differ: {[t.dims for t in (out, *sources)]}")
    width, capacity = out.dims[1], out.capacity
    match instruction.row.name:
        case "QUANT":
            kernel = elementwise.quantise(body.module, out.dtype, width, capacity)
        case "SILU_MUL":
            kernel = elementwise.silu_times(body.module, out.dtype, width, capacity)
        case _:
            kernel = elementwise.add(body.module, width, capacity)
    body.call(kernel, out.count, out.address, *(source.address for source in sources))


_WRITERS = {
    "STREAM": _stream,
    "NORM": _norm,
    "MATMUL": _matmul,
    "QKV": _qkv,
    "ROPE": _rope,
    "ATTN": _attn,
    "FFN": _ffn,
    "QUANT": _elementwise,
    "SILU_MUL": _elementwise,
    "ADD": _elementwise,
}
