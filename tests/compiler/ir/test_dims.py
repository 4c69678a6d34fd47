"""Formulas over dimensions, constraints, and graphs at fixed sizes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.dims import Constraint, Dim, Formula, extent_of, free, number, of, same
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.ir.specialise import at_sizes
from unsay.errors import IrError, RequestError

P, T = Dim("P", 0, 99), Dim("T", 1, 9)
S = Dim("S", 1, 108, of(P) + of(T))
DOUBLE = Dim("N", 1, 216, number(2) * of(S))


def test_extents_are_the_same_when_they_are_for_all_sizes():
    assert same(DOUBLE, Dim("M", 1, 216, of(S) + of(P) + of(T)))
    assert same(3, 3) and not same(3, 4) and not same(S, 3)
    assert not same(P, T) and not same(S, Dim("R", 1, 108, of(P) + of(P)))
    assert free([S, S]) == of(P) * of(P) + number(2) * of(P) * of(T) + of(T) * of(T)


def test_an_extent_that_is_computed_is_a_dimension_of_the_graph():
    dims = {dim.name: dim for dim in (P, T, S)}
    assert extent_of(of(T) + of(P), dims) is S
    assert extent_of(of(S) + number(-1) * of(P), dims) is T
    assert extent_of(of(S) + number(-1) * of(P) + number(2) + number(-1) * of(T), dims) == 2
    with pytest.raises(IrError, match=r"no dimension of 2\*P: declare one"):
        extent_of(of(P) + of(P), dims)


def _nested(depth: int) -> Dim:
    """A dimension that is the square of one that is the square of one ..."""
    below = of(P) + of(T) + number(1) if depth == 0 else of(_nested(depth - 1))
    return Dim(f"D{depth}", 0, 9, below * below)


def test_formulas_of_formulas_do_not_grow_without_end():
    assert len(of(_nested(2)).free().terms) == 45
    with pytest.raises(IrError, match="a formula of more than 256 terms"):
        of(_nested(4)).free()


_DIMS = st.sampled_from([P, T, Dim("A", 0, 5), Dim("B", 0, 5)])
_FORMULAS = st.lists(st.tuples(st.lists(_DIMS, max_size=3).map(tuple), st.integers(-9, 9)), max_size=4).map(
    formulas.formula
)
_SIZES = st.fixed_dictionaries({name: st.integers(0, 50) for name in "ABPT"})


@settings(max_examples=30, deadline=None)
@given(_FORMULAS, _FORMULAS, _FORMULAS, _SIZES)
def test_formulas_are_a_ring_and_values_follow(a: Formula, b: Formula, c: Formula, sizes: dict[str, int]):
    assert a + b == b + a and a * b == b * a
    assert a * (b + c) == a * b + a * c
    assert (a * b + c).value(sizes) == a.value(sizes) * b.value(sizes) + c.value(sizes)


def test_a_constraint_holds_or_not():
    constraint = Constraint(of(P) + of(T), 4, "==", number(0))
    assert str(constraint) == "(P + T) % 4 == 0"
    assert constraint.holds({"P": 3, "T": 5}) and not constraint.holds({"P": 3, "T": 4})


_GRAPH = """graph g(B: 1..8, P: 0..90, T: 1..9, S: 1..99 = P + T, N: 1..792 = B*S) where T % 2 == 0, B*T <= 40 {
  %x = input() {name = "x"} : tensor<B x S x 4 x f32>
  %y = reshape(%x) : tensor<N x 4 x f32>
  %n = size() {dim = "S"} : tensor<i64>
  output(%y, %n)
}
"""


def test_a_graph_at_a_fixed_size_keeps_what_is_free():
    fixed = at_sizes(parse(_GRAPH), {"B": 4})
    verify(fixed)
    expected = _GRAPH.replace("B: 1..8, ", "").replace("tensor<B", "tensor<4").replace("B*S", "4*S")
    assert print_graph(fixed) == expected.replace("B*T", "4*T")


def test_a_graph_at_all_sizes_has_numbers_alone():
    fixed = at_sizes(parse(_GRAPH), {"B": 2, "P": 3, "T": 4})
    verify(fixed)
    assert (fixed.dims, fixed.constraints) == ({}, ())
    assert "tensor<14 x 4 x f32>" in print_graph(fixed)
    assert fixed.operations[2].kind == "constant" and fixed.operations[2].attributes == {"value": (7,)}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"Q": 1}, "g has no dimension Q, it has B, P, T, S, N"),
        ({"B": 9}, r"B must be in 1\.\.8, got 9"),
        ({"T": 3}, r"must hold: T % 2 == 0; got {'T': 3}"),
        ({"B": 8, "T": 8}, r"must hold: B\*T <= 40"),
        ({"P": 3, "T": 4, "S": 8}, r"S = P \+ T is 7, not 8"),
    ],
)
def test_sizes_that_break_a_promise_are_refused(sizes: dict[str, int], message: str):
    with pytest.raises(RequestError, match=message):
        at_sizes(parse(_GRAPH), sizes)
