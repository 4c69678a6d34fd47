"""Graphs of front ends drawn at random: every pass is proved on them, and they compute what they did."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from tests.compiler.ir.tensor_graphs import tensor_graphs
from unsay.compiler.dialect.domains import FLOAT
from unsay.compiler.extension.samples import at_some_sizes, inputs_of
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.passes.pipeline import TENSOR_PIPELINE
from unsay.compiler.verify.validate import run_validated

_BF16_ULPS = 2e-2


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tensor_graphs(runs=True))
def test_the_pipeline_is_proved_on_any_graph_and_keeps_its_results(graph: Graph):
    given_arrays = inputs_of(at_some_sizes(graph), FLOAT, seed=3)
    before = evaluate(graph, *given_arrays)
    run_validated(graph, TENSOR_PIPELINE)
    for a, b in zip(before, evaluate(graph, *given_arrays), strict=True):
        if a.dtype.kind != "f":
            assert np.array_equal(a, b)
            continue
        finite = np.isfinite(a) & np.isfinite(b)
        np.testing.assert_allclose(a[finite].astype(float), b[finite].astype(float), _BF16_ULPS, _BF16_ULPS)
