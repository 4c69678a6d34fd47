"""Every operation of LLMIR, once: operands, attributes, shape rule, invariants.

Readers of this table: the verifier, the passes (through `emit`), lowering, docs/llmir.md, the SMT semantics.
A row is complete when a test of its rule is in tests/compiler/dialect/test_ops.py.

Arithmetic is that of docs/numerics.md, bit for bit; the section is named in `doc`. `attribute_invariants` are
Python expressions over the attributes. `value_invariants` are expressions over operands, results and the
names the row's doc defines, true for every finite input up to rounding; tests evaluate them with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

from unsay.compiler.dialect import shapes
from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.types import Dim, TensorType

Rule: TypeAlias = Callable[
    [Sequence[TensorType], Mapping[str, Any], Mapping[str, Dim]],
    tuple[TensorType, ...],
]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A required attribute: its type, and the values allowed where they are few."""

    name: str
    kind: type[int] | type[float] | type[str]
    choices: tuple[str, ...] = ()


class Invariant:
    """An attribute invariant: a Python expression, compiled once."""

    __slots__ = ("_code", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._code: CodeType = compile(text, "<invariant>", "eval")

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether the expression is true for these values."""
        return bool(eval(self._code, {"__builtins__": {}}, names))


@dataclass(frozen=True, slots=True)
class Op:
    """One row. An operand `x?` may be left out, with all after it. `rule` gives the types of the results, or is None
    where they are declared (weight). `in_place`: the operand whose memory the result takes over when lowered.
    `pure`: may be removed when unused and merged when equal."""

    name: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    results: tuple[str, ...]
    rule: Rule | None
    doc: str
    attribute_invariants: tuple[Invariant, ...] = ()
    value_invariants: tuple[str, ...] = ()
    in_place: int | None = None
    pure: bool = True
    fused: bool = False

    @property
    def min_operands(self) -> int:
        """Operands that may not be left out."""
        return sum(not name.endswith("?") for name in self.operands)


_HEADS = (Attribute("num_heads", int), Attribute("head_dim", int))
_KV_HEADS = (Attribute("num_heads", int), Attribute("num_kv_heads", int), Attribute("head_dim", int))
_ROPE = (Attribute("base", float), Attribute("pairing", str, ("adjacent", "halves")))
_OUTPUT = Attribute("output", str, ("f32", "q8a"))
_WIDE_OUTPUT = Attribute("output", str, ("f32", "q8w"))
_NORM = (Attribute("eps", float), _WIDE_OUTPUT)

_EPS = (Invariant("eps > 0"),)
_ROTATES = (Invariant("head_dim > 0 and head_dim % 2 == 0"), Invariant("num_heads > 0"), Invariant("base > 1"))
_GROUPS = (
    Invariant("num_kv_heads > 0 and num_heads % num_kv_heads == 0"),
    Invariant("head_dim > 0 and head_dim % 2 == 0"),
)

OPS: tuple[Op, ...] = (
    Op("weight", (), (Attribute("tensor", str),), ("w",), None,
       "a tensor of the model file, by its name there; matrices are [N, K], vectors f32",
       (Invariant("tensor != ''"),)),
    Op("tokens", (), (), ("ids",), shapes.tokens, "ids of the step's tokens"),
    Op("embed", ("ids", "w"), (), ("x",), shapes.embed, "x[t] = w[ids[t]] (N11)"),
    Op("rms_norm", ("x", "gamma"), _NORM, ("y",), shapes.rms_norm,
       "n = x / sqrt(mean(x*x) + eps), y = n * gamma, each row (N7)", _EPS, ("mean(n * n, axis=-1) <= 1",)),
    Op("layer_norm", ("x", "gamma", "beta?"), _NORM, ("y",), shapes.layer_norm,
       "c = x - mean(x), n = c / sqrt(mean(c*c) + eps), y = n * gamma + beta, each row (N7)", _EPS,
       ("mean(n * n, axis=-1) <= 1", "mean(n, axis=-1) == 0")),
    Op("linear", ("x", "w", "bias?"), (), ("y",), shapes.linear, "y = w x + bias (N4 or N5, N6)"),
    Op("rope", ("x",), (*_HEADS, *_ROPE), ("y",), shapes.rope,
       "rotate the pairs of every head by the token's position: pairs (2i, 2i+1) if adjacent, (i, i + D/2) if halves; "
       "a paired layout has made the latter adjacent (N8)", _ROTATES,
       ("sum(y * y, axis=-1) == sum(x * x, axis=-1)",), in_place=0),
    Op("attention", ("q", "k", "v"), (Attribute("layer", int), *_KV_HEADS, Attribute("scale", float), _OUTPUT), ("y",),
       shapes.attention,
       "append k, v to the cache of `layer`, then y = p V with p = softmax(scale * q K) over the token's own past (N9)",
       (*_GROUPS, Invariant("scale > 0"), Invariant("layer >= 0"), Invariant("output == 'f32' or head_dim % 32 == 0")),
       ("p >= 0", "sum(p, axis=-1) == 1", "min(V) <= y", "y <= max(V)"), pure=False),
    Op("add", ("a", "b"), (), ("y",), shapes.elementwise, "y = a + b"),
    Op("silu", ("x",), (), ("y",), shapes.elementwise, "y = x / (1 + exp(-x)) (N10)",
       (), ("y >= -0.2784645427610738",)),
    Op("mul", ("a", "b"), (), ("y",), shapes.elementwise, "y = a * b"),
    Op("quantise", ("x",), (Attribute("output", str, ("q8a", "q8w")),), ("y",), shapes.quantise,
       "y = x in blocks of 32, integers q up to most = 127 and an f32 scale (N3); 16256 in a wide one of q8w (N3w)",
       (), ("abs(q) <= most", "abs(x - q * scale) <= scale / 2")),
    Op("select_rows", ("x",), (), ("y",), shapes.select_rows, "y = the rows of x whose logits are wanted"),
    Op("output", ("logits",), (), (), shapes.output, "the result of the step", pure=False),
    Op("qkv", ("x", "wq", "wk", "wv", "bq?", "bk?", "bv?"), (*_KV_HEADS, *_ROPE), ("q", "k", "v"), shapes.qkv,
       "q = rope(linear(x, wq, bq)), k = rope(linear(x, wk, bk)), v = linear(x, wv, bv); one weight format",
       (*_GROUPS, Invariant("base > 1")), fused=True),
    Op("linear_add", ("residual", "x", "w", "bias?"), (), ("y",), shapes.linear_add,
       "y = residual + linear(x, w, bias) (N6)", in_place=0, fused=True),
    Op("silu_mul", ("gate", "up"), (_WIDE_OUTPUT,), ("y",), shapes.silu_mul, "y = silu(gate) * up (N10)", fused=True),
    Op("ffn", ("residual", "x", "gate", "up", "down"), (Attribute("hidden", str, ("f32", "q8w")),), ("y",), shapes.ffn,
       "y = residual + linear(silu_mul(linear(x, gate), linear(x, up)), down) (N10); gate and up of one format",
       in_place=0, fused=True),
)  # fmt: skip

BY_NAME: dict[str, Op] = {op.name: op for op in OPS}
assert len(BY_NAME) == len(OPS)

NORMS = frozenset({"rms_norm", "layer_norm"})


def emit(
    graph: Graph,
    kind: str,
    *operands: Value,
    name: str,
    before: Operation | None = None,
    **attributes: AttributeValue,
) -> Value:
    """Add an operation of one result, its type inferred; raises IrError where the operands do not fit."""
    return build(graph, kind, operands, attributes, (name,), before=before).result


def build(
    graph: Graph,
    kind: str,
    operands: Sequence[Value],
    attributes: Mapping[str, AttributeValue],
    names: Sequence[str],
    *,
    before: Operation | None = None,
) -> Operation:
    """Add an operation, its result types inferred and its results named."""
    rule = BY_NAME[kind].rule
    assert rule is not None, kind
    types = rule([operand.type for operand in operands], attributes, graph.dims)
    return graph.add(kind, operands, attributes, zip(names, types, strict=True), before=before)
