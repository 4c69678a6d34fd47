from dataclasses import replace
from functools import partial

import pytest

from tests.compiler.shapes import SMOLLM2, TINY, TINY_QWEN2, tensor_types
from tests.work import num_lines
from unsay.compiler.lower import Lowered, lower
from unsay.compiler.lower.plan import PackedMatrix, PackedVector, RopeTable, Source
from unsay.compiler.models import build_graph
from unsay.compiler.passes import run_passes
from unsay.compiler.passes.pipeline import PIPELINE, UNFUSED
from unsay.compiler.verify.spec import verify
from unsay.image import ModelSpec
from unsay.isa.formats import DType, padded_rows
from unsay.isa.opcodes import NO_OFFSET, Region
from unsay.isa.program import Program


def _lower(spec: ModelSpec, passes=PIPELINE, max_tokens: int = 512, max_rows: int = 64, **options) -> Lowered:
    graph = run_passes(build_graph(spec, tensor_types(spec, **options), max_tokens, max_rows), passes)
    verify(graph)
    return lower(graph, spec, max_tokens, max_rows)


def _names(lowered: Lowered) -> list[str]:
    return [op.row.name for op in lowered.program if op.row.name != "TENSOR"]


def test_smollm2_is_six_instructions_a_layer():
    lowered = _lower(SMOLLM2)
    layer = ["NORM", "QKV", "ATTN", "MATMUL", "NORM", "FFN"]
    assert _names(lowered) == ["STREAM", *layer * 30, "NORM", "MATMUL", "STREAM", "HALT"]


def test_the_unfused_program_does_the_same_with_single_operations():
    layer = ["NORM", "QUANT", "MATMUL", "MATMUL", "MATMUL", "ROPE", "ROPE", "ATTN", "QUANT", "MATMUL", "ADD",
             "NORM", "QUANT", "MATMUL", "MATMUL", "SILU_MUL", "MATMUL", "ADD"]  # fmt: skip
    assert _names(_lower(TINY, UNFUSED)) == ["STREAM", *layer * 2, "NORM", "QUANT", "MATMUL", "STREAM", "HALT"]


def test_a_program_equals_itself_read_back():
    program = _lower(SMOLLM2).program
    assert Program.from_bytes(program.to_bytes()) == program


def test_lowering_twice_gives_the_same_bytes_and_plan():
    first, second = _lower(TINY), _lower(TINY)
    assert first.program.to_bytes() == second.program.to_bytes()
    assert first.plan.digest() == second.plan.digest()


def test_the_plan_holds_every_tensor_and_entries_do_not_overlap():
    for spec in (SMOLLM2, TINY, TINY_QWEN2):
        plan = _lower(spec, tied=False).plan
        end = 0
        for entry in plan.entries:
            assert entry.offset == end and entry.offset % 64 == 0
            end += entry.num_bytes
        assert plan.total_bytes == end
        packed = [
            source.tensor for entry in plan.entries if not isinstance(entry, RopeTable) for source in entry.sources
        ]
        assert sorted(packed) == sorted(tensor_types(spec, tied=False))


def test_a_tied_embedding_is_packed_once():
    plan = _lower(TINY).plan
    names = [source.tensor for entry in plan.entries if isinstance(entry, PackedMatrix) for source in entry.sources]
    assert names.count("token_embd.weight") == 1


def test_gate_and_up_alternate_and_q_k_v_follow_each_other():
    matrices = [entry for entry in _lower(TINY).plan.entries if isinstance(entry, PackedMatrix)]
    orders = {tuple(source.tensor for source in entry.sources): entry.order for entry in matrices}
    assert orders["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"] == "alternate"
    assert orders["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"] == "concat"


@pytest.mark.parametrize("passes", [PIPELINE, UNFUSED], ids=["pipeline", "unfused"])
def test_rows_that_rotate_in_halves_are_reordered_with_their_biases(passes):
    entries = _lower(TINY_QWEN2, passes).plan.entries
    weights = [entry for entry in entries if not isinstance(entry, RopeTable)]
    reordered = {source.tensor: source for entry in weights for source in entry.sources if source.rope_heads}
    for layer in range(2):
        for name, heads in (("attn_q", 4), ("attn_k", 2)):
            for kind in ("weight", "bias"):
                tensor = f"blk.{layer}.{name}.{kind}"
                assert reordered.pop(tensor) == Source(tensor, heads * 32, heads, 32)
    assert reordered == {}


def test_qkv_names_its_bias_by_offset():
    lowered = _lower(TINY_QWEN2)
    vectors = {entry.offset: entry for entry in lowered.plan.entries if isinstance(entry, PackedVector)}
    qkv = [op for op in lowered.program if op.row.name == "QKV"]
    assert [len(vectors[op.integer("bias")].sources) for op in qkv] == [3, 3]
    assert {op.integer("bias") for op in _lower(TINY).program if op.row.name == "QKV"} == {NO_OFFSET}


def test_one_rope_table_serves_all_layers():
    tables = [entry for entry in _lower(TINY).plan.entries if isinstance(entry, RopeTable)]
    assert [replace(table, offset=0) for table in tables] == [RopeTable(0, 64, 32, 100000.0)]


def test_q_k_v_are_columns_of_one_tensor():
    attention = next(op for op in _lower(TINY).program if op.row.name == "ATTN")
    assert len(set(attention.registers[1:])) == 1
    assert [attention.integer(f"{role}_column") for role in "qkv"] == [0, 128, 192]
    alone = next(op for op in _lower(TINY, UNFUSED).program if op.row.name == "ATTN")
    assert len(set(alone.registers[1:])) == 3
    assert [alone.integer(f"{role}_column") for role in "qkv"] == [0, 0, 0]


def test_logits_are_rows_of_the_padded_vocabulary_in_temporal_memory():
    program = _lower(TINY, max_tokens=32, max_rows=4).program
    (logits,) = [op for op in program if op.row.name == "TENSOR" and op.flags & 3 == Region.TEMPORAL]
    assert logits.has("DIM_ROWS")
    assert (logits.integer("dim0"), logits.integer("dim1"), logits.integer("offset")) == (4, padded_rows(293), 0)


def test_a_float_down_weight_leaves_the_hidden_floats():
    types = tensor_types(TINY) | {
        f"blk.{layer}.ffn_down.weight": replace(tensor_types(TINY)["blk.0.ffn_down.weight"], dtype=DType.F16)
        for layer in range(2)
    }
    graph = run_passes(build_graph(TINY, types, 32, 4))
    program = lower(graph, TINY, 32, 4).program
    assert {op.integer("hidden_dtype") for op in program if op.row.name == "FFN"} == {DType.F32}


def test_every_activation_lies_inside_the_arena_and_every_weight_inside_the_plan():
    lowered = _lower(SMOLLM2)
    for op in lowered.program:
        if op.row.name == "TENSOR" and op.flags & 3 != Region.TEMPORAL:
            ends = {Region.GLOBAL: lowered.arena_bytes, Region.PERSISTENT: lowered.plan.total_bytes}
            assert op.integer("offset") < ends[Region(op.flags & 3)]
    assert lowered.arena_bytes % 64 == 0


def test_the_arena_reuses_bytes_over_the_layers():
    shallow = TINY._replace(num_layers=1)
    assert _lower(TINY).arena_bytes == _lower(shallow).arena_bytes


def test_graph_to_program_takes_as_much_work_for_each_layer():
    """No pass looks at the whole graph once for each operation; benchmarks/startup.py has the time."""
    shallow, middle, deep = (num_lines(partial(_lower, SMOLLM2._replace(num_layers=layers))) for layers in (4, 8, 12))
    assert abs((deep - middle) - (middle - shallow)) < 0.01 * shallow
