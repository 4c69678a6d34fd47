from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.ir.content import content
from tests.compiler.ir.graphs import graphs
from tests.compiler.ir.tensor_graphs import tensor_graphs
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.errors import IrError


@settings(max_examples=20, deadline=None)
@given(graphs() | tensor_graphs())
def test_printing_and_parsing_gives_the_same_graph_back(graph: Graph):
    verify(graph)
    again = parse(print_graph(graph))
    verify(again)
    assert content(again) == content(graph)
    assert print_graph(again) == print_graph(graph)


@settings(max_examples=10, deadline=None)
@given(graphs() | tensor_graphs())
def test_a_copy_says_the_same_and_shares_no_operation(graph: Graph):
    copy = graph.copy()
    verify(copy)
    assert content(copy) == content(graph)
    assert not set(copy.operations) & set(graph.operations)


def test_comments_and_spacing_do_not_matter():
    text = (
        'graph g(T:1..4){// a\n  %x=weight(){tensor="a\\n"}:tensor\n'
        '<T x 2 x f32, // c\ndevice="cpu",layout="row"> // b\n}// c'
    )
    graph = parse(text)
    assert print_graph(graph) == 'graph g(T: 1..4) {\n  %x = weight() {tensor = "a\\n"} : tensor<T x 2 x f32>\n}\n'


_WEIGHT = '%x = weight() {tensor = "x"} : tensor<T x 4 x f32>'


@pytest.mark.parametrize(
    ("body", "line", "column", "message"),
    [
        ("%y = silu(%z) : tensor<T x 4 x f32>", 3, 13, "%z is used before it is defined"),
        (_WEIGHT, 3, 3, "%x is defined twice"),
        ("%y = silu(%x)", 3, 3, "1 results and 0 types"),
        ("%y = silu(%x) : tensor<T x 4 x f31>", 3, 34, "element type 'f31'"),
        ("%y = silu(%x) : tensor<S x 4 x f32>", 3, 26, "dimension 'S'"),
        ("%y = silu(%x) : tensor<T x 0 x f32>", 3, 30, "a dimension of 0"),
        ('%y = silu(%x) : tensor<T x 4 x f32, layout = "column">', 3, 48, "layout 'column' is not known"),
        ('%y = silu(%x) : tensor<T x 4 x f32, colour = "red">', 3, 39, "a type has no 'colour'"),
        ("%y = silu(%x) {a = 1, a = 2} : tensor<T x 4 x f32>", 3, 18, "an attribute is given twice"),
        ("%y = silu(%x) {a = b} : tensor<T x 4 x f32>", 3, 22, "expected a number or a string, found 'b'"),
        ("%y = silu(%x) {a = " + "9" * 5000 + "} : tensor<T x 4 x f32>", 3, 22, "an integer of 5000 digits"),
        ("%y = silu(%x) {a = 9223372036854775808} : tensor<T x 4 x f32>", 3, 22, "has more than 64 bits"),
        ('%y = silu(%x) {a = "\\q"} : tensor<T x 4 x f32>', 3, 22, "not a JSON string"),
        ("%y = silu(%x) : tensor<T x 4 x f32", 3, 19, "expected a type, found 'tensor'"),
        ('%y = silu(%x) : tensor<T x 4 x f32, layout = "\\q">', 3, 48, "not a JSON string"),
        ("%y = silu(%x) ; tensor<T x 4 x f32>", 3, 17, "no token begins with ';'"),
        ("%y = silu(%x", 4, 1, "expected ',', found '}'"),
        ("%y, %y = silu(%x) : tensor<T x 4 x f32>, tensor<T x 4 x f32>", 3, 12, "two results alike"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_column(body: str, line: int, column: int, message: str):
    with pytest.raises(IrError) as caught:
        parse(f"graph g(T: 1..8) {{\n  {_WEIGHT}\n  {body}\n}}\n")
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'graph'"),
        ("graph g(T: 1..8) {} x", "text after the graph"),
        ("graph g(T: 1..8) {", "expected a name"),
        ("graph g(T: 8..1) {}", "is not a range of sizes"),
        ("graph g(x: 1..8) {}", "is not a range of sizes"),
        ("graph g(T: 1..8, T: 1..9) {}", "1:18: dimension T: a dimension is declared twice"),
        ("graph g(S: 1..8 = T, T: 1..8) {}", "1:19: dimension 'T', known are "),
        ("graph g(T: 1..8) where T = 3 {}", "1:26: expected one of == != <= < >= >, found '='"),
        ("graph g(T: 1..8) where T % 0 == 0 {}", "1:28: a remainder by 0"),
        ("graph g(T: 1..8) where T + 1 % 2 == 0 {}", "1:30: a sum before % needs brackets"),
        ("graph g(T: 1..8) where (T + 1 % 2 == 0 {}", "1:31: expected '\\)', found '%'"),
        (
            "graph g(T: 1..8, S: 1..8 = T" + "*T" * 40 + ") {}",
            "1:28: a formula of more than 256 terms",
        ),
        ("graph g() sema {a = [1, 0.5]} {}", "1:22: a list has integers or floats, not both"),
        ("graph g() sema {a = [1, true]} {}", "1:25: expected a number or a string, found 'true'"),
        (
            'graph g() {\n%x = input() {name = "x"} : tensor<2 x f32, layout = "nhwc">}',
            "2:35: layout 'nhwc' does not fit",
        ),
    ],
)
def test_a_text_that_is_no_graph_is_refused(text: str, message: str):
    with pytest.raises(IrError, match=message):
        parse(text)


def test_everything_a_head_may_say():
    text = (
        "graph g(B: 1..8, P: 0..9, S: 1..99 = 2*B*P + P - 1) where (B + P) % 2 == 0, -S + 1 < B, 3*B*B % 4 != P"
        ' sema {device = "gpu", dynamic_batch = "B"} {\n}\n'
    )
    assert print_graph(parse(text)) == text


@pytest.mark.parametrize(
    ("sema", "message"),
    [
        ('{colour = "red"}', "no such remark: colour, known are dynamic_batch, "),
        ('{device.nothing = "gpu"}', "no such remark: device.nothing"),
        ('{dynamic_batch = "B"}', "dynamic_batch must be a dimension of the graph, got 'B'"),
        ("{device = 1}", "device must be one of cpu, gpu, npu, got 1"),
    ],
)
def test_a_remark_that_is_not_known_is_refused_at_its_place(sema: str, message: str):
    with pytest.raises(IrError, match=message) as caught:
        verify(parse(f"graph g(T: 1..8)\n  sema {sema} {{}}"))
    assert (caught.value.line, caught.value.column) == (2, 3)


@settings(max_examples=20, deadline=None)
@given(graphs() | tensor_graphs(), st.integers(0, 10**6), st.integers(0, 30))
def test_a_damaged_text_is_read_or_refused_and_nothing_else(graph: Graph, start: int, length: int):
    text = print_graph(graph)
    start %= len(text)
    with suppress(IrError):
        verify(parse(text[:start] + text[start + length :]))
