"""T1 on whole graphs: what the pipeline does is proved, what a wrong pass does is refuted and shown."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.ir.graphs import graphs
from tests.compiler.shapes import SMOLLM2, TINY, TINY_QWEN2, tensor_types
from tests.seen import seen
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.cse import cse
from unsay.compiler.passes.pipeline import BY_NAME, PIPELINE, UNFUSED, Pass, run_passes
from unsay.compiler.verify.spec import Level
from unsay.compiler.verify.validate import PassProof, Validator, proofs_to_json
from unsay.errors import PassError
from unsay.isa.formats import DType


def validated(graph: Graph, passes=PIPELINE, level: Level = Level.SEMANTIC) -> list[PassProof]:
    validator = Validator(graph, level)
    run_passes(graph, passes, after=validator.after_pass)
    return validator.proofs


@pytest.mark.parametrize("passes", [PIPELINE, UNFUSED], ids=["pipeline", "unfused"])
@pytest.mark.parametrize("dtype", [DType.Q4_1, DType.F16])
@pytest.mark.parametrize("spec", [TINY, TINY_QWEN2], ids=lambda spec: spec.architecture)
def test_every_pass_of_the_pipeline_is_proved(spec, dtype, passes):
    proofs = validated(build_graph(spec, tensor_types(spec, dtype), 32, 4), passes)
    assert [(proof.name, proof.status) for proof in proofs] == [(step.name, "proved") for step in passes]


def test_a_model_of_thirty_layers_is_proved_with_an_instance_for_every_fusion():
    proofs = {proof.name: proof for proof in validated(build_graph(SMOLLM2, tensor_types(SMOLLM2), 512, 64))}
    assert {proof.status for proof in proofs.values()} == {"proved"}
    assert proofs["fuse_ffn"].instances == 30
    assert proofs["fuse_qkv_rope"].instances == 90
    assert proofs["quantise_activations"].keeps == "nothing"
    assert proofs["fuse_residual"].keeps == "bits"


def test_reordered_heads_are_equal_as_real_numbers_only():
    proof = validated(build_graph(TINY_QWEN2, tensor_types(TINY_QWEN2), 32, 4))[0]
    assert (proof.name, proof.status, proof.keeps) == ("pair_rope_rows", "proved", "reals")


def test_proofs_are_kept_without_their_times():
    proof = PassProof("cse", "proved", "same terms", "bits", (), 0, 1.25)
    assert json.loads(proofs_to_json([proof])) == json.loads(proofs_to_json([replace(proof, seconds=2.5)]))


_TEXT = """graph g(T: 1..8, R: 1..2) {
  %x = weight() {tensor = "x"} : tensor<T x 32 x f32>
  %u = weight() {tensor = "u"} : tensor<T x 32 x f32>
  %f = weight() {tensor = "f"} : tensor<32 x 32 x f16>
  %s = silu(%x) : tensor<T x 32 x f32>
  %y = mul(%s, %u) : tensor<T x 32 x f32>
  %p = linear(%y, %f) : tensor<T x 32 x f32>
  %z = add(%y, %p) : tensor<T x 32 x f32>
  output(%z)
}"""


def _refusal(change, level: Level = Level.FUSED, text: str = _TEXT) -> str:
    graph = parse(text)
    validator = Validator(graph, level)
    change(graph)
    with pytest.raises(PassError) as caught:
        validator.after_pass(Pass(change), graph, 1)
    return str(caught.value)


def test_a_refuted_pass_is_named_and_both_sides_are_shown_as_ir():
    def drops_the_activation(graph: Graph) -> None:
        silu = graph.operations[3]
        graph.replace(silu.result, graph.operations[0].result)
        graph.erase(silu)

    message = _refusal(drops_the_activation)
    assert message.startswith("drops_the_activation is refuted: %y")
    assert "silu(%x) : tensor<T x 32 x f32>" in message
    assert "mul(%x, %u) : tensor<T x 32 x f32>" in message
    assert "at T = 2, element [0, 0] is " in message and " before and " in message


def test_a_rewrite_that_no_axiom_of_its_pass_covers_is_refused_and_has_no_values():
    def swaps_a_sum(graph: Graph) -> None:
        z = graph.operations[6]
        z.operands = z.operands[::-1]

    assert "no values found that show it" in _refusal(swaps_a_sum)


def test_a_lost_output_is_refuted():
    message = _refusal(lambda graph: graph.erase(graph.operations[-1]))
    assert message.endswith("output 0 is in only one of the graphs")


def test_an_operation_in_place_that_overwrites_what_is_read_later_is_refuted():
    text = _TEXT.replace("output(%z)", "output(%y)")

    def fuse_residual(graph: Graph) -> None:
        y, p, z = (graph.operations[index] for index in (4, 5, 6))
        fused = graph.add(
            "linear_add", (y.result, *p.operands), {}, [("fused", z.result.type)], before=graph.operations[-1]
        )
        graph.substitute(z, fused.results)

    assert _refusal(fuse_residual, text=text).startswith("fuse_residual is refuted")


def test_an_axiom_is_of_use_only_to_its_own_pass():
    graph = build_graph(TINY, tensor_types(TINY), 32, 4)
    validator = Validator(graph, Level.SEMANTIC)
    run_passes(graph, PIPELINE[:4], after=validator.after_pass)
    fuse = PIPELINE[4]
    fuse.run(graph)

    def cse(graph: Graph) -> int:
        return 0

    with pytest.raises(PassError, match="cse is refuted"):
        validator.after_pass(Pass(cse, fuse.entry, fuse.exit), graph, 0)


def test_a_definition_is_put_into_the_graph_before_only():
    """A product left as it was is not what quantise_activations defines."""
    graph = build_graph(TINY, tensor_types(TINY), 32, 4)
    validator = Validator(graph, Level.SEMANTIC)

    def quantise_activations(graph: Graph) -> int:
        return 0

    with pytest.raises(PassError, match=r"quantise_activations is refuted: %blk\.0\.attn"):
        validator.after_pass(Pass(quantise_activations), graph, 0)


_SIZED = """graph g(B: 1..8, T: 1..8, N: 1..64 = B*T) where T <= 4 sema {batch = 2, dynamic_batch = "B"} {
  %x = input() {name = "x"} : tensor<B x T x 4 x f32>
  %n = size() {dim = "B"} : tensor<i64>
  %c = cast(%n) {dtype = "f32"} : tensor<f32>
  %y = mul(%x, %c) : tensor<B x T x 4 x f32>
  %z = reshape(%y) : tensor<N x 4 x f32>
  output(%z)
}"""


def test_a_batch_fixed_as_wanted_is_proved_and_another_is_refuted():
    step = BY_NAME["specialise_batch"]
    right, wrong = parse(_SIZED), parse(_SIZED)
    validator = Validator(right, Level.TENSOR)
    step.run(right)
    validator.after_pass(step, right, 1)
    assert validator.proofs[-1].status == "proved" and "B" not in right.dims
    validator = Validator(wrong, Level.TENSOR)
    wrong.sema["batch"] = 3
    step.run(wrong)
    with pytest.raises(PassError, match="specialise_batch is refuted: dimensions were"):
        validator.after_pass(step, wrong, 1)


@pytest.mark.parametrize(("text", "message"), [
    ("T: 1..4, N", "dimensions were"),
    ("T: 1..8, N: 1..64 = B*T) where T <= 4, T % 2 == 0 //", "it holds only where"),
])  # fmt: skip
def test_a_pass_that_narrows_sizes_is_refuted(text: str, message: str):
    validator = Validator(parse(_SIZED), Level.TENSOR)
    narrowed = _SIZED.replace("T: 1..8, N" if "//" not in text else "T: 1..8, N: 1..64 = B*T) where T <= 4", text)
    narrowed = narrowed.replace(" //", "")
    with pytest.raises(PassError, match=message):
        validator.after_pass(Pass(cse), parse(narrowed), 0)


def test_a_graph_of_which_nothing_is_seen_says_so():
    graph = parse("graph g() {\n}")
    validator = Validator(graph, Level.TENSOR)
    validator.after_pass(Pass(cse), graph, 0)
    assert validator.proofs[-1].method == "nothing is seen"


@settings(max_examples=25, deadline=None)
@given(graph=graphs(), step=st.sampled_from(PIPELINE))
def test_passes_are_proved_on_any_graph(graph: Graph, step: Pass):
    """At level fused, since not every such graph may work in place."""
    graph = seen(graph)
    validator = Validator(graph, Level.FUSED)
    count = step.run(graph)
    validator.after_pass(replace(step, exit=Level.FUSED), graph, count)
    validator.close()
