"""Every case of tests/ir/<pass>.llmir: the pass turns the first graph into the second, or leaves it as it is.

// case: what is claimed
graph ...
// becomes            or: // unchanged
graph ...
"""

import re
from pathlib import Path

import pytest

from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.pipeline import BY_NAME

_FILES = sorted((Path(__file__).parents[2] / "ir").glob("*.llmir"))
_CASE = re.compile(r"// case: (?P<claim>[^\n]*)\n(?P<before>.*?\n)// (?:unchanged|becomes\n(?P<after>.*))", re.DOTALL)


def _cases() -> list[object]:
    found = []
    for path in _FILES:
        for text in path.read_text().split("// case: ")[1:]:
            match = _CASE.match("// case: " + text)
            assert match, (path.name, text)
            before, after = match["before"], match["after"] or match["before"]
            found.append(pytest.param(path.stem, before, after, id=f"{path.stem}: {match['claim']}"))
    return found


@pytest.mark.parametrize(("name", "before", "after"), _cases())
def test_pass_gives_the_graph_beside_it(name: str, before: str, after: str):
    graph, expected = parse(before), parse(after)
    verify(graph)
    verify(expected)
    count = BY_NAME[name].run(graph)
    verify(graph)
    assert print_graph(graph) == print_graph(expected)
    assert (count > 0) == (print_graph(expected) != print_graph(parse(before)))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_every_file_has_a_case_where_its_pass_must_not_apply(path: Path):
    assert "// becomes" in path.read_text() and "// unchanged" in path.read_text()


def test_every_pass_has_a_file():
    assert {path.stem for path in _FILES} == BY_NAME.keys()
