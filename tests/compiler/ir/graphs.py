"""Random well-typed graphs: operations of the table, drawn one after the other over the values there are."""

from collections.abc import Callable

from hypothesis import strategies as st

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.types import Dim, TensorType, paired
from unsay.isa.formats import FLOAT_WEIGHTS, QUANTISED_ACTIVATIONS, QUANTISED_WEIGHTS, DType

_HEAD_DIM = 32
_WIDTHS = (32, 64, 96)
_NAMES = st.text("abcxyz0123456789_.-", min_size=1, max_size=6)
_EPS = st.floats(min_value=1e-30, max_value=1.0, exclude_min=True)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A graph of up to 30 operations over matrices of T rows."""
    high = draw(st.integers(1, 10**6))
    graph = Graph(draw(st.sampled_from(["g", "llama", "a.b-c_1"])), (Dim("T", 1, high), Dim("R", 0, high)))
    values = [_weight(draw, graph, TensorType((graph.dims["T"], width), DType.F32)) for width in _WIDTHS]
    for _ in range(draw(st.integers(0, 30))):
        x = draw(st.sampled_from(values))
        makers = _FLOAT_MAKERS if x.type.dtype is DType.F32 else _QUANTISED_MAKERS
        values.append(draw(st.sampled_from(makers))(draw, graph, x))
        alike = [value for value in values if value.type == x.type and x.type.dtype is DType.F32]
        if alike and draw(st.booleans()):
            values.append(_binary(draw, graph, values[-1] if values[-1] in alike else x, draw(st.sampled_from(alike))))
    return graph


def _weight(draw: st.DrawFn, graph: Graph, tensor_type: TensorType) -> Value:
    tensor = draw(st.text(min_size=1, max_size=8))
    return graph.add("weight", (), {"tensor": tensor}, [(draw(_NAMES), tensor_type)]).result


def _columns(x: Value) -> int:
    width = x.type.dims[1]
    assert isinstance(width, int)
    return width


def _linear(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    formats = QUANTISED_WEIGHTS if x.type.dtype in QUANTISED_ACTIVATIONS else QUANTISED_WEIGHTS | FLOAT_WEIGHTS
    dtype = draw(st.sampled_from(sorted(formats)))
    width = draw(st.sampled_from(_WIDTHS))
    w = _weight(draw, graph, TensorType((width, _columns(x)), dtype))
    bias = [_weight(draw, graph, TensorType((width,), DType.F32))] if draw(st.booleans()) else []
    return emit(graph, "linear", x, w, *bias, name=draw(_NAMES))


def _norm(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    gamma = _weight(draw, graph, TensorType((_columns(x),), DType.F32))
    kind, output = draw(st.sampled_from(["rms_norm", "layer_norm"])), draw(st.sampled_from(["f32", "q8w"]))
    return emit(graph, kind, x, gamma, name=draw(_NAMES), eps=draw(_EPS), output=output)


def _silu(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    return emit(graph, "silu", x, name=draw(_NAMES))


def _binary(draw: st.DrawFn, graph: Graph, a: Value, b: Value) -> Value:
    return emit(graph, draw(st.sampled_from(["add", "mul"])), a, b, name=draw(_NAMES))


def _quantise(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    return emit(graph, "quantise", x, name=draw(_NAMES), output=draw(st.sampled_from(["q8a", "q8w"])))


def _rope(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    base = draw(st.floats(1.5, 1e9))
    pairing = draw(st.sampled_from(["adjacent", "halves"]))
    num_heads = _columns(x) // _HEAD_DIM
    return emit(
        graph, "rope", x, name=draw(_NAMES), num_heads=num_heads, head_dim=_HEAD_DIM, base=base, pairing=pairing
    )


def _paired_rope(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    w = _weight(draw, graph, TensorType((64, _columns(x)), DType.F16, paired(_HEAD_DIM)))
    y = emit(graph, "linear", x, w, name=draw(_NAMES))
    y = emit(graph, "rope", y, name=draw(_NAMES), num_heads=2, head_dim=_HEAD_DIM, base=1e4, pairing="halves")
    v = _weight(draw, graph, TensorType((graph.dims["T"], 64), DType.F32))
    return emit(
        graph, "attention", y, y, v, name=draw(_NAMES), layer=draw(st.integers(0, 99)), num_heads=2, num_kv_heads=2,
        head_dim=_HEAD_DIM, scale=draw(_EPS), output=draw(st.sampled_from(["f32", "q8a"])),
    )  # fmt: skip


_Maker = Callable[[st.DrawFn, Graph, Value], Value]
_FLOAT_MAKERS: list[_Maker] = [_linear, _norm, _silu, _quantise, _rope, _paired_rope]
_QUANTISED_MAKERS: list[_Maker] = [_linear]
