import pytest
from hypothesis import given, settings

from tests.compiler.ir.graphs import graphs
from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.pipeline import PIPELINE


@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
@settings(max_examples=25, deadline=None)
@given(graph=graphs())
def test_a_pass_leaves_any_graph_well_formed_and_reaches_an_end(step, graph: Graph):
    effects = [operation.attributes.get("layer") for operation in graph.operations if not BY_NAME[operation.kind].pure]
    for _ in range(len(graph.operations) + 1):
        before = print_graph(graph)
        count = step.run(graph)
        verify(graph)
        assert count >= 0
        if count == 0:
            assert print_graph(graph) == before
            break
    else:
        pytest.fail(f"{step.name} never stops applying")
    assert [op.attributes.get("layer") for op in graph.operations if not BY_NAME[op.kind].pure] == effects
