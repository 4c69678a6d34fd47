import pytest

from tests.compiler.shapes import TINY, TINY_QWEN2, tensor_types
from unsay.compiler.ir.types import TensorType
from unsay.compiler.models import ARCHITECTURES, build_graph
from unsay.compiler.verify.spec import Level, check
from unsay.errors import ModelFileError, UnsupportedError
from unsay.isa.formats import DType

_LAYER = [
    "rms_norm", "linear", "linear", "linear", "rope", "rope", "attention", "linear", "add",
    "rms_norm", "linear", "linear", "silu", "mul", "linear", "add",
]  # fmt: skip


def _kinds(spec=TINY, **options):
    graph = build_graph(spec, tensor_types(spec, **options), 32, 4)
    check(graph, Level.SEMANTIC)
    return [operation.kind for operation in graph.operations if operation.kind != "weight"]


@pytest.mark.parametrize("spec", [TINY, TINY_QWEN2], ids=lambda spec: spec.architecture)
def test_graph_is_the_unfused_model(spec):
    assert _kinds(spec) == ["tokens", "embed", *_LAYER, *_LAYER, "select_rows", "rms_norm", "linear", "output"]


def test_a_tied_head_is_the_embedding_weight_itself():
    graph = build_graph(TINY, tensor_types(TINY), 32, 4)
    embed, head = (next(op for op in graph.operations if op.kind == kind) for kind in ("embed", "output"))
    assert head.operands[0].producer.operands[1] is embed.operands[1]


def test_an_untied_head_is_its_own_weight():
    graph = build_graph(TINY, tensor_types(TINY, tied=False), 32, 4)
    logits = graph.operations[-1].operands[0]
    assert logits.producer.operands[1].producer.attributes == {"tensor": "output.weight"}


def test_qwen2_rotates_halves_and_adds_biases_to_q_k_v_only():
    graph = build_graph(TINY_QWEN2, tensor_types(TINY_QWEN2), 32, 4)
    assert {op.attributes["pairing"] for op in graph.operations if op.kind == "rope"} == {"halves"}
    biased = [op.result.name for op in graph.operations if op.kind == "linear" and len(op.operands) == 3]
    assert biased == [f"blk.{layer}.attn_{role}" for layer in range(2) for role in "qkv"]


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"'gpt2'.*llama, qwen2"):
        build_graph(TINY._replace(architecture="gpt2"), {}, 32, 4)
    assert list(ARCHITECTURES) == ["llama", "qwen2"]


def test_a_tensor_the_architecture_does_not_use_is_refused_by_name():
    types = tensor_types(TINY) | {"rope_freqs.weight": TensorType((16,), DType.F32)}
    with pytest.raises(UnsupportedError, match=r"rope_freqs\.weight"):
        build_graph(TINY, types, 32, 4)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.ffn_up.weight", "blk.0.attn_norm.weight"])
def test_a_missing_tensor_is_named(name):
    types = tensor_types(TINY)
    del types[name]
    with pytest.raises(ModelFileError, match=name):
        build_graph(TINY, types, 32, 4)


def test_qwen2_without_a_bias_is_refused():
    types = tensor_types(TINY_QWEN2)
    del types["blk.1.attn_k.bias"]
    with pytest.raises(ModelFileError, match=r"blk\.1\.attn_k\.bias"):
        build_graph(TINY_QWEN2, types, 32, 4)


def test_a_tensor_of_a_wrong_shape_is_named_with_both_shapes():
    types = tensor_types(TINY) | {"blk.0.attn_v.weight": TensorType((32, 64), DType.Q4_1)}
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_v\.weight has shape \(32, 64\).*\(64, 64\)"):
        build_graph(TINY, types, 32, 4)


def test_a_half_precision_vector_is_read_as_f32_and_a_quantised_one_refused():
    name = "blk.0.attn_norm.weight"
    graph = build_graph(TINY, tensor_types(TINY) | {name: TensorType((64,), DType.BF16)}, 32, 4)
    assert next(v for op in graph.operations for v in op.results if v.name == name).type.dtype is DType.F32
    with pytest.raises(UnsupportedError, match=r"attn_norm.*Q8_0"):
        build_graph(TINY, tensor_types(TINY) | {name: TensorType((64,), DType.Q8_0)}, 32, 4)


@pytest.mark.parametrize("field", ["embedding_size", "ffn_size", "head_dim"])
def test_a_size_that_is_no_multiple_of_16_is_refused_by_name(field):
    spec = TINY._replace(**{field: getattr(TINY, field) + 8})
    with pytest.raises(UnsupportedError, match=r"size \d+ is not supported: it must be a multiple of 16"):
        build_graph(spec, tensor_types(spec, DType.F16, DType.F16), 32, 4)
