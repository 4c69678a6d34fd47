import pytest

from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.types import Dim, TensorType, paired, paired_head_dim
from unsay.isa.formats import DType

_TYPE = TensorType((8,), DType.F32)


def _weight(graph: Graph, name: str, tensor_type: TensorType = _TYPE) -> Value:
    return graph.add("weight", (), {"tensor": name}, [(name, tensor_type)]).result


def test_names_are_made_unique():
    graph = Graph("g", ())
    assert [_weight(graph, "a").name for _ in range(3)] == ["a", "a.1", "a.2"]


def test_uses_count_every_operand():
    graph = Graph("g", ())
    a = _weight(graph, "a")
    both = graph.add("add", (a, a), {}, [("b", _TYPE)])
    assert a.uses == [both, both]
    graph.erase(both)
    assert a.uses == [] and graph.operations == [a.producer]


def test_substitute_hands_over_uses_and_name_and_erases():
    graph = Graph("g", ())
    a = _weight(graph, "a")
    old = graph.add("silu", (a,), {}, [("y", _TYPE)])
    user = graph.add("silu", (old.result,), {}, [("z", _TYPE)])
    new = graph.add("silu_mul", (a, a), {}, [("y", _TYPE)], before=old)
    graph.substitute(old, new.results)
    assert user.operands == (new.result,) and new.result.name == "y"
    assert graph.operations == [a.producer, new, user]
    assert _weight(graph, "y.1").name == "y.1", "the name of what was erased is free again"


def test_a_value_that_is_read_cannot_be_erased():
    graph = Graph("g", ())
    a = _weight(graph, "a")
    graph.add("silu", (a,), {}, [("y", _TYPE)])
    with pytest.raises(AssertionError):
        graph.erase(a.producer)


def test_a_value_is_only_replaced_by_one_of_its_type():
    graph = Graph("g", ())
    a, b = _weight(graph, "a"), _weight(graph, "b", TensorType((9,), DType.F32))
    with pytest.raises(AssertionError):
        graph.replace(a, b)


def test_types_print_what_is_not_the_default():
    dim = Dim("T", 1, 8)
    assert str(TensorType((dim, 64), DType.Q8A)) == "tensor<T x 64 x q8a>"
    assert str(TensorType((dim, 64), DType.Q8W)) == "tensor<T x 64 x q8w>"
    assert str(TensorType((64, 32), DType.Q4_1, paired(32))) == 'tensor<64 x 32 x q4_1, layout = "paired:32">'


def test_layouts_name_their_head_size():
    assert paired_head_dim(paired(64)) == 64
    assert paired_head_dim("row") is paired_head_dim("paired:0") is None
