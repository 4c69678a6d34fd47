"""Random well-typed graphs of tensor operations, over dimensions with formulas, constraints and remarks."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from unsay.compiler.dialect.ops import build, declare, emit
from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.dims import RELATIONS, Constraint, Dim, Formula
from unsay.compiler.ir.types import DEVICES, FLOATS, TensorType
from unsay.isa.formats import DType

_NAMES = st.text("abcxyz0123456789_.-", min_size=1, max_size=6)
_FLOATS = st.floats(allow_nan=False)
_UNARY = ["exp", "log", "sqrt", "rsqrt", "sin", "tanh", "erf", "sigmoid", "relu", "silu", "floor", "neg", "abs"]
_BINARY = ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "less", "equal"]
_ATTRIBUTES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), _FLOATS, st.text(max_size=6), st.booleans(),
    st.lists(st.integers(-99, 99), max_size=3).map(tuple), st.lists(_FLOATS, max_size=3).map(tuple),
)  # fmt: skip


@st.composite
def tensor_graphs(draw: st.DrawFn, runs: bool = False) -> Graph:
    """A graph of up to 20 operations, with an output. One that `runs` is of small sizes and makes no promises."""
    dims = [Dim("B", 1, 4), Dim("T", 1, 4)] if runs else draw(_dims())
    constraints = [] if runs else draw(st.lists(_constraint(dims), max_size=3))
    remarks = {} if runs else draw(_sema(dims))
    graph = Graph(draw(st.sampled_from(["g", "cnn", "a.b-c_1"])), dims, constraints, remarks)
    values = [_input(draw, graph) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(0, 20))):
        values.append(draw(st.sampled_from(_MAKERS))(draw, graph, draw(st.sampled_from([values[-1], *values]))))
    build(graph, "output", draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)), {}, ())
    return graph


@st.composite
def _dims(draw: st.DrawFn) -> list[Dim]:
    dims = [Dim("B", 0, draw(st.integers(0, 10**6))), Dim("T", 2, 64)]
    for name in draw(st.sampled_from(["", "S", "SN", "SNM"])):
        low = draw(st.integers(0, 9))
        dims.append(Dim(name, low, low + draw(st.integers(0, 9999)), draw(_formula(dims))))
    return dims


@st.composite
def _formula(draw: st.DrawFn, dims: list[Dim]) -> Formula:
    monomials = st.lists(st.sampled_from(dims), max_size=3).map(tuple)
    return formulas.formula(draw(st.lists(st.tuples(monomials, st.integers(-20, 20)), max_size=4)))


@st.composite
def _constraint(draw: st.DrawFn, dims: list[Dim]) -> Constraint:
    modulus = draw(st.none() | st.integers(1, 64))
    relation = draw(st.sampled_from(sorted(RELATIONS)))
    return Constraint(draw(_formula(dims)), modulus, relation, draw(_formula(dims)))


def _sema(dims: list[Dim]) -> st.SearchStrategy[dict[str, AttributeValue]]:
    names = st.sampled_from([dim.name for dim in dims])
    devices = st.sampled_from(sorted(DEVICES))
    return st.fixed_dictionaries({}, optional={"dynamic_batch": names, "device": devices, "device.conv2d": devices})


def _input(draw: st.DrawFn, graph: Graph) -> Value:
    extents = draw(st.lists(st.sampled_from([*graph.dims.values(), 1, 2, 3]), min_size=1, max_size=4))
    layout = draw(st.sampled_from(["row", "nchw", "nhwc", "blocked:8"])) if len(extents) == 4 else "row"
    tensor_type = TensorType(tuple(extents), draw(st.sampled_from(sorted(FLOATS))), layout, draw(_DEVICE))
    name = draw(st.text(max_size=6))
    return graph.add("input", (), {"name": f"{name}{len(graph.operations)}"}, [(draw(_NAMES), tensor_type)]).result


_DEVICE = st.sampled_from(sorted(DEVICES))


def _unary(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    if x.type.dtype not in FLOATS:
        return emit(graph, "cast", x, name=draw(_NAMES), dtype="f32")
    remark = draw(st.dictionaries(st.sampled_from(["sema.a", "sema.b"]), _ATTRIBUTES, max_size=2))
    return emit(graph, draw(st.sampled_from(_UNARY)), x, name=draw(_NAMES), **remark)  # pyright: ignore


def _binary(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    if x.type.dtype not in FLOATS:
        return emit(graph, "cast", x, name=draw(_NAMES), dtype="bf16")
    scalar = replace(x.type, dims=(), layout="row")
    number = draw(st.sampled_from([0.0, 1.0, -1.0, 0.5]) if graph.dims["B"].high < 5 else _FLOATS)
    other = declare(graph, "constant", name=draw(_NAMES), type=scalar, value=(number,))
    a, b = draw(st.permutations([x, draw(st.sampled_from([x, other]))]))
    return emit(graph, draw(st.sampled_from(_BINARY)), a, b, name=draw(_NAMES))


def _reduction(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    if x.type.dtype is DType.BOOL:
        return emit(graph, "not", x, name=draw(_NAMES))
    axis = draw(st.integers(-x.type.rank, x.type.rank - 1))
    return emit(graph, "reduce_sum", x, name=draw(_NAMES), axes=(axis,), keepdims=True)


def _movement(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    if x.type.layout != "row":
        return emit(graph, "reorder", x, name=draw(_NAMES), layout="row")
    perm = tuple(draw(st.permutations(range(x.type.rank))))
    turned = emit(graph, "transpose", x, name=draw(_NAMES), perm=perm)
    flat = replace(x.type, dims=(*reversed(x.type.dims), 1))
    return draw(st.sampled_from([turned, declare(graph, "reshape", turned, name=draw(_NAMES), type=flat)]))


def _transfer(draw: st.DrawFn, graph: Graph, x: Value) -> Value:
    return emit(graph, "transfer", x, name=draw(_NAMES), device=draw(_DEVICE))


_MAKERS: list[Callable[[st.DrawFn, Graph, Value], Value]] = [_unary, _binary, _reduction, _movement, _transfer]
