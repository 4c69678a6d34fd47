from itertools import pairwise

import pytest

from tests.compiler.shapes import TINY, TINY_QWEN2, tensor_types
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import PIPELINE, UNFUSED, Pass, run_passes
from unsay.compiler.verify.spec import Level, check, is_last_use
from unsay.errors import IrError, PassError
from unsay.isa.formats import DType

_HEAD = 'graph g(T: 1..8, R: 1..2) {\n  %x = weight() {tensor = "x"} : tensor<T x 32 x f32>\n'
_TAIL = """
  %w0 = weight() {tensor = "w0"} : tensor<40 x 32 x f16>
  %rows = select_rows(%x) : tensor<R x 32 x f32>
  %g0 = weight() {tensor = "g0"} : tensor<32 x f32>
  %n0 = rms_norm(%rows, %g0) {eps = 1e-05, output = "f32"} : tensor<R x 32 x f32>
  %logits = linear(%n0, %w0) : tensor<R x 40 x f32>
  output(%logits)
}"""
_ROPE = 'base = 10000.0, head_dim = 32, num_heads = 1, pairing = "halves"'
_ATTENTION = 'head_dim = 32, num_heads = 1, num_kv_heads = 1, output = "f32", scale = 0.5'


def _graph(body: str = "") -> Graph:
    return parse(_HEAD + body + _TAIL)


@pytest.mark.parametrize("level", Level)
def test_a_small_legal_graph_passes_every_level(level: Level):
    check(_graph(), level)


@pytest.mark.parametrize(
    ("level", "body", "message"),
    [
        (Level.SEMANTIC, '%q = quantise(%x) {output = "q8a"} : tensor<T x 32 x q8a>', "not allowed at level semantic"),
        (Level.SEMANTIC, '%q = rms_norm(%x, %g) {eps = 1e-05, output = "q8w"} : tensor<T x 32 x q8w>',
         "no quantised activations"),
        (Level.QUANTISED, '%y = silu_mul(%x, %x) {output = "f32"} : tensor<T x 32 x f32>', "at level quantised"),
        (Level.QUANTISED, "%y = linear(%x, %w) : tensor<T x 16 x f32>", "%x must be quantised"),
        (Level.FUSED, "%y = linear_add(%x, %x, %v) : tensor<T x 32 x f32>", "%x must be quantised"),
        (Level.LOWERABLE, "%y = silu(%x) : tensor<T x 32 x f32>", "not allowed at level lowerable"),
        (Level.LOWERABLE, "%y = linear_add(%x, %x, %f) : tensor<T x 32 x f32>", "writes over %x"),
        (Level.LOWERABLE, "%z = add(%x, %x) : tensor<T x 32 x f32>\n%y = linear_add(%x, %z, %f) : tensor<T x 32 x f32>",
         "writes over %x, which is read again"),
        (Level.LOWERABLE, f"%z = add(%x, %x) : tensor<T x 32 x f32>\n%y = rope(%z) {{{_ROPE}}} : tensor<T x 32 x f32>",
         "run pair_rope_rows"),
        (Level.LOWERABLE, "%y = select_rows(%x) : tensor<R x 32 x f32>\n%z = add(%y, %y) : tensor<R x 32 x f32>",
         "only norms can read selected rows"),
        (Level.LOWERABLE, "%y = linear(%x, %h) : tensor<T x 8 x f32>", "must be a multiple of 16"),
        (Level.SEMANTIC, f"%y = attention(%x, %x, %x) {{layer = 1, {_ATTENTION}}} : tensor<T x 32 x f32>",
         r"must be 0\.\.0, each once, got \[1\]"),
        (Level.SEMANTIC, "%y = silu(%g) : tensor<32 x f32>", "f32 matrices of one type only"),
    ],
)  # fmt: skip
def test_what_a_level_forbids_is_refused(level: Level, body: str, message: str):
    weights = """
  %g = weight() {tensor = "g"} : tensor<32 x f32>
  %w = weight() {tensor = "w"} : tensor<16 x 32 x q4_1>
  %v = weight() {tensor = "v"} : tensor<32 x 32 x q4_1>
  %f = weight() {tensor = "f"} : tensor<32 x 32 x f16>
  %h = weight() {tensor = "h"} : tensor<8 x 32 x f16>
"""
    with pytest.raises(IrError, match=message):
        check(_graph(weights + body), level)


def test_a_graph_ends_in_its_only_output():
    with pytest.raises(IrError, match="must end in its only output, it has 0"):
        check(parse(_HEAD + "}"), Level.SEMANTIC)
    twice = _graph()
    twice.add("output", twice.operations[-1].operands)
    with pytest.raises(IrError, match="it has 2"):
        check(twice, Level.SEMANTIC)


def test_logits_come_from_a_product_that_only_output_reads():
    text = _TAIL.replace("output(%logits)", "output(%n0)")
    with pytest.raises(IrError, match="must be a linear that only output reads"):
        check(parse(_HEAD + text), Level.LOWERABLE)


def test_last_use_counts_readers_of_selected_rows():
    graph = _graph("%y = add(%x, %x) : tensor<T x 32 x f32>\n%z = silu(%x) : tensor<T x 32 x f32>")
    x = graph.operations[0].result
    assert not is_last_use(graph, x, graph.operations[1]), "read twice, and again later"
    assert not is_last_use(graph, x, graph.operations[2]), "its rows are read by the last norm"


@pytest.mark.parametrize("passes", [PIPELINE, UNFUSED], ids=["pipeline", "unfused"])
@pytest.mark.parametrize("dtype", [DType.Q4_1, DType.Q8_0, DType.F16])
@pytest.mark.parametrize("spec", [TINY, TINY_QWEN2], ids=lambda spec: spec.architecture)
def test_pipelines_end_lowerable(spec, dtype, passes):
    graph = build_graph(spec, tensor_types(spec, dtype), 32, 4)
    check(run_passes(graph, passes), Level.LOWERABLE)


def test_the_pipeline_leaves_only_fused_operations():
    graph = run_passes(build_graph(TINY, tensor_types(TINY), 32, 4))
    kinds = [op.kind for op in graph.operations if op.kind != "weight"]
    layer = ["rms_norm", "qkv", "attention", "linear_add", "rms_norm", "ffn"]
    assert kinds == ["tokens", "embed", *layer, *layer, "select_rows", "rms_norm", "linear", "output"]


def test_passes_of_the_pipeline_join():
    levelled = [step for step in PIPELINE if step.entry is not None]
    assert all(left.exit == right.entry for left, right in pairwise(levelled))


def test_a_pass_that_breaks_the_graph_is_named():
    def move_a_product_up(graph: Graph) -> int:
        graph.operations.insert(0, graph.operations.pop(6))
        return 1

    broken = Pass(move_a_product_up, Level.SEMANTIC, Level.SEMANTIC)
    with pytest.raises(PassError, match=r"after move_a_product_up: .*is not defined before"):
        run_passes(build_graph(TINY, tensor_types(TINY), 32, 4), [broken])


def test_what_a_pass_broke_is_told_with_the_line_it_came_from():
    def square_all(graph: Graph) -> int:
        for operation in [op for op in graph.operations if op.kind == "exp"]:
            x = operation.operands[0]
            graph.add("mul", (x,), {}, [(x.name, x.type)], before=operation)
        return 1

    text = 'graph g() {\n %x = input() {name = "x"} : tensor<4 x f32>\n %y = exp(%x) : tensor<4 x f32>\n output(%y)\n}'
    with pytest.raises(PassError, match=r"after square_all: mul: takes \(a, b\), got 1") as caught:
        run_passes(parse(text), [Pass(square_all)])
    assert (caught.value.line, caught.value.column) == (3, 2)


def test_an_illegal_graph_is_refused_before_any_pass_runs():
    graph = run_passes(build_graph(TINY, tensor_types(TINY), 32, 4))
    with pytest.raises(IrError, match="at level semantic"):
        run_passes(graph)


_PICTURE = """graph g(B: 1..8) {
  %x = input() {name = "x"} : tensor<B x 4 x 8 x 8 x f32, device = "gpu">
  %y = max_pool2d(%x) {kernel = [2, 2], pads = [0, 0, 0, 0], sema.device = "gpu", strides = [2, 2]} : \
tensor<B x 4 x 4 x 4 x f32, device = "gpu">
  output(%y)
}"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", "3:3: .* is not how its device takes pictures; run insert_reorders"),
        ('sema.device = "gpu"', 'sema.device = "npu"', "is for the npu, and runs on the gpu; run insert_reorders"),
        ('sema.device = "gpu"', 'sema.device = "tpu"', "sema.device must be one of cpu, gpu, npu"),
        ('name = "x"', 'name = "x", sema.device = "gpu"', "2:3: .*on an operation with operands"),
        ('sema.device = "gpu"', "sema.stage = 1", "2:3: .*all operations or none have a sema.stage"),
    ],
)
def test_a_graph_that_is_not_placed_is_refused_with_its_line(old: str, new: str, message: str):
    with pytest.raises(IrError, match=message):
        check(parse(_PICTURE.replace(old, new)), Level.PLACED)


def test_a_picture_as_its_device_takes_it_is_placed():
    check(parse(_PICTURE.replace('device = "gpu">', 'layout = "nhwc", device = "gpu">')), Level.PLACED)


@pytest.mark.parametrize("stages", [(0, 0, 1), (0, 1, 1), (1, 0, 2), (-1, 0, 1), (0, 2.0, 3)])
def test_a_schedule_that_does_not_hold_is_refused(stages: tuple[float, float, float]):
    x, y, z = stages
    text = f"""graph g() {{
      %x = input() {{name = "x", sema.stage = {x}}} : tensor<4 x f32>
      %y = exp(%x) {{sema.stage = {y}}} : tensor<4 x f32>
      output(%y) {{sema.stage = {z}}}
    }}"""
    with pytest.raises(IrError, match="run schedule"):
        check(parse(text), Level.TENSOR)


@pytest.mark.parametrize("output", ["output(%x)", "output(%logits, %logits)", "output(%x, %logits)"])
def test_what_is_no_row_of_logits_each_is_no_result_of_a_step(output: str):
    graph = parse((_HEAD + _TAIL).replace("output(%logits)", output))
    check(graph, Level.TENSOR)
    with pytest.raises(IrError, match="logits must be R rows of f32") as caught:
        check(graph, Level.SEMANTIC)
    assert caught.value.line == 9


def test_a_step_without_a_result_is_refused_where_its_head_is():
    with pytest.raises(IrError, match="must end in its only output, it has 0") as caught:
        check(parse("graph g(T: 1..8,\n  R: 1..2) {\n}"), Level.SEMANTIC)
    assert (caught.value.line, caught.value.column) == (2, 12)
