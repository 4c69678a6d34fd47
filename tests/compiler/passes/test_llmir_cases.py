"""Every case of tests/ir: the pass turns the first graph into the second, or leaves it as it is."""

from pathlib import Path

import pytest

from tests.compiler.passes.cases import FILES, Case, cases
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.pipeline import BY_NAME


@pytest.mark.parametrize("case", cases(), ids=str)
def test_pass_gives_the_graph_beside_it(case: Case):
    graph, expected = parse(case.before), parse(case.after)
    verify(graph)
    verify(expected)
    count = BY_NAME[case.name].run(graph)
    verify(graph)
    assert print_graph(graph) == print_graph(expected)
    assert (count > 0) == (print_graph(expected) != print_graph(parse(case.before)))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_after_the_pass_it_applies_no_more(case: Case):
    graph = parse(case.after)
    assert BY_NAME[case.name].run(graph) == 0
    assert print_graph(graph) == print_graph(parse(case.after))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_has_a_case_where_its_pass_must_not_apply(path: Path):
    assert "// becomes" in path.read_text() and "// unchanged" in path.read_text()


def test_every_pass_has_a_file():
    assert {path.stem for path in FILES} == BY_NAME.keys()
