"""A lowerable graph to an AVM program, the plan of its weights, and the size of its arena.

One instruction per operation (`EMIT`, keyed by the table of operations), TENSOR instructions before it where no
register names its tensors, STREAM LOGITS and HALT at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import DTYPES
from unsay.compiler.lower.arena import Arena, is_selected
from unsay.compiler.lower.memory import Persistent
from unsay.compiler.lower.plan import PackingPlan
from unsay.compiler.lower.registers import Registers
from unsay.image import ModelSpec
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Channel
from unsay.isa.program import Instruction, Program, make


@dataclass(frozen=True, slots=True)
class Lowered:
    """What lowering gives: the program, where its weights go, and the bytes of GLOBAL its activations take."""

    program: Program
    plan: PackingPlan
    arena_bytes: int


def lower(graph: Graph, spec: ModelSpec, max_tokens: int, max_rows: int) -> Lowered:
    """Lower a graph built for steps of up to `max_tokens` tokens and `max_rows` logit rows.

    Precondition: `verify.spec.verify(graph)`, which `run_passes` has also seen to.
    """
    assert (graph.dims["T"].high, graph.dims["R"].high) == (max_tokens, max_rows), graph.dims
    lowering = _Lowering(graph, spec)
    for operation in graph.operations:
        EMIT[operation.kind](lowering, operation)
    lowering.code.append(make("HALT"))
    return Lowered(Program(tuple(lowering.code)), lowering.weights.plan(), lowering.arena.num_bytes)


class _Lowering:
    """The state of one lowering: code so far, and who is where."""

    def __init__(self, graph: Graph, spec: ModelSpec) -> None:
        self.code: list[Instruction] = []
        self.arena = Arena(graph)
        self.weights = Persistent(spec.context_length)
        self.registers = Registers(self.code)

    def activation(self, value: Value) -> int:
        """A register naming the tensor that holds an activation."""
        source = value.producer.operands[0] if is_selected(value) else value
        return self.registers.name(self.arena.tensor(source))

    def matrix(self, weight: Value) -> int:
        """A register naming a packed weight."""
        return self.registers.name(self.weights.matrix(weight))

    def vector(self, *vectors: Value) -> int:
        """A register naming a vector, or NO_REGISTER if there is none."""
        return self.registers.name(self.weights.vector(*vectors)) if vectors else NO_REGISTER


_Emit: TypeAlias = Callable[[_Lowering, Operation], None]


def _nothing(_lowering: _Lowering, _operation: Operation) -> None:
    """No instruction: the value is named where it is read."""


def _embed(lowering: _Lowering, operation: Operation) -> None:
    out = lowering.activation(operation.result)
    table = lowering.matrix(operation.operands[1])
    lowering.code.append(make("STREAM", out, table, channel=Channel.EMBED))


def _norm(lowering: _Lowering, operation: Operation) -> None:
    x, gamma, *beta = operation.operands
    flags = ["LAYER"] * (operation.kind == "layer_norm") + ["ROWS"] * is_selected(x)
    registers = (
        lowering.activation(operation.result),
        lowering.activation(x),
        lowering.vector(gamma),
        lowering.vector(*beta),
    )
    lowering.code.append(make("NORM", *registers, flags=flags, eps=_f32(operation, "eps")))


def _linear(lowering: _Lowering, operation: Operation) -> None:
    x, weight, *bias = operation.operands
    out = lowering.activation(operation.result)
    registers = (lowering.activation(x), lowering.matrix(weight), lowering.vector(*bias))
    lowering.code.append(make("MATMUL", out, *registers))


def _linear_add(lowering: _Lowering, operation: Operation) -> None:
    _, x, weight, *bias = operation.operands
    out = lowering.activation(operation.result)
    registers = (lowering.activation(x), lowering.matrix(weight), lowering.vector(*bias))
    lowering.code.append(make("MATMUL", out, *registers, flags=["ACCUMULATE"]))


def _rope(lowering: _Lowering, operation: Operation) -> None:
    x, num_heads, head_dim = lowering.activation(operation.result), *_integers(operation, "num_heads", "head_dim")
    table = lowering.registers.name(lowering.weights.rope_table(head_dim, operation.number("base")))
    lowering.code.append(make("ROPE", x, x, table, num_heads=num_heads, head_dim=head_dim, column=0))


def _qkv(lowering: _Lowering, operation: Operation) -> None:
    x, wq, wk, wv, *biases = operation.operands
    num_heads, num_kv_heads, head_dim = _integers(operation, "num_heads", "num_kv_heads", "head_dim")
    bias = lowering.weights.vector(*biases).offset if biases else NO_OFFSET
    registers = (
        lowering.activation(operation.results[0]),
        lowering.activation(x),
        lowering.registers.name(lowering.weights.matrix(wq, wk, wv)),
        lowering.registers.name(lowering.weights.rope_table(head_dim, operation.number("base"))),
    )
    lowering.code.append(
        make("QKV", *registers, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, bias=bias)
    )


def _attention(lowering: _Lowering, operation: Operation) -> None:
    layer, num_heads, num_kv_heads, head_dim = _integers(operation, "layer", "num_heads", "num_kv_heads", "head_dim")
    out = lowering.activation(operation.result)
    q, k, v = operation.operands
    lowering.code.append(
        make(
            "ATTN", out, lowering.activation(q), lowering.activation(k), lowering.activation(v),
            layer=layer, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
            scale=_f32(operation, "scale"), q_column=lowering.arena.column(q),
            k_column=lowering.arena.column(k), v_column=lowering.arena.column(v),
        )
    )  # fmt: skip


def _add(lowering: _Lowering, operation: Operation) -> None:
    a, b = operation.operands
    out = lowering.activation(operation.result)
    lowering.code.append(make("ADD", out, lowering.activation(a), lowering.activation(b)))


def _silu_mul(lowering: _Lowering, operation: Operation) -> None:
    gate, up = operation.operands
    out = lowering.activation(operation.result)
    lowering.code.append(make("SILU_MUL", out, lowering.activation(gate), lowering.activation(up)))


def _quantise(lowering: _Lowering, operation: Operation) -> None:
    out = lowering.activation(operation.result)
    lowering.code.append(make("QUANT", out, lowering.activation(operation.operands[0])))


def _ffn(lowering: _Lowering, operation: Operation) -> None:
    _, x, gate, up, down = operation.operands
    out = lowering.activation(operation.result)
    gate_up = lowering.weights.matrix(gate, up, order="alternate")
    registers = (lowering.activation(x), lowering.registers.name(gate_up), lowering.matrix(down))
    dtype = DTYPES[operation.string("hidden")]
    hidden = lowering.arena.hidden_offset(operation)
    ffn_size = gate_up.dims[0] // 2
    lowering.code.append(make("FFN", out, *registers, ffn_size=ffn_size, hidden=hidden, hidden_dtype=dtype))


def _output(lowering: _Lowering, operation: Operation) -> None:
    logits = lowering.activation(operation.operands[0])
    lowering.code.append(make("STREAM", ra=logits, channel=Channel.LOGITS))


def _f32(operation: Operation, name: str) -> float:
    """The attribute as the instruction can hold it, so that a program equals itself read back."""
    return float(np.float32(operation.number(name)))


def _integers(operation: Operation, *names: str) -> tuple[int, ...]:
    return tuple(operation.integer(name) for name in names)


EMIT: dict[str, _Emit] = {
    "weight": _nothing,
    "tokens": _nothing,
    "select_rows": _nothing,
    "embed": _embed,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "linear": _linear,
    "linear_add": _linear_add,
    "rope": _rope,
    "qkv": _qkv,
    "attention": _attention,
    "add": _add,
    "silu_mul": _silu_mul,
    "quantise": _quantise,
    "ffn": _ffn,
    "output": _output,
}
"""A row for every operation of level lowerable."""
