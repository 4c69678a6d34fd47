"""ModelSpec and VocabSpec from a file's values: the right ones are read, what would run a little wrong is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.frontend.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U32,
    array,
    gguf,
    key,
    tensor,
)
from tests.tiny import CHAT_TEMPLATE, write_tiny_gguf
from unsay.compiler.frontend.describe import check_vocabulary, model_spec, vocab_spec
from unsay.compiler.frontend.gguf import open_gguf
from unsay.compiler.frontend.model_file import ModelFile
from unsay.errors import ModelFileError, UnsupportedError
from unsay.image import ModelSpec, VocabSpec

SHAPE: dict[str, tuple[int, object]] = {
    "general.architecture": (STRING, "llama"),
    "llama.block_count": (U32, 1),
    "llama.embedding_length": (U32, 64),
    "llama.attention.head_count": (U32, 2),
    "llama.feed_forward_length": (U32, 32),
    "llama.context_length": (U32, 64),
    "llama.attention.layer_norm_rms_epsilon": (F32, 2.0**-17),
}
VOCABULARY: dict[str, tuple[int, object]] = {
    "tokenizer.ggml.model": (STRING, "gpt2"),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, ["a", "b"])),
}
Changes = dict[str, tuple[int, object] | None]


def made(tmp_path: Path, changes: Changes, extra_tensor: str | None = None, rows: int = 2) -> ModelFile:
    """A small valid file with some keys changed, added or (None) left out."""
    values = {name: given for name, given in {**SHAPE, **VOCABULARY, **changes}.items() if given is not None}
    keys = [
        array(name, *given) if kind == ARRAY else key(name, kind, given)  # type: ignore[misc]
        for name, (kind, given) in values.items()
    ]
    tensors = [tensor("token_embd.weight", [64, rows])]
    if extra_tensor is not None:
        tensors.append(tensor(extra_tensor, [8], offset=64 * rows * 4))
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(keys, tensors, bytes(64 * rows * 4 + 32)))
    return open_gguf(path)


def test_every_field_of_a_llama_file_is_read(tiny_path: Path) -> None:
    assert model_spec(open_gguf(tiny_path)) == ModelSpec(
        name="tiny", architecture="llama", num_layers=2, embedding_size=96, num_heads=6, num_kv_heads=2, head_dim=16,
        ffn_size=160, vocab_size=293, context_length=1024, norm_eps=pytest.approx(1e-5), rope_base=10000.0,
    )  # fmt: skip


def test_qwen2_keys_carry_their_own_prefix(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "q.gguf", architecture="qwen2", rope_base=1e6, layers=3)
    spec = model_spec(open_gguf(path))
    assert (spec.architecture, spec.num_layers, spec.rope_base) == ("qwen2", 3, 1e6)


def test_head_size_may_differ_from_embedding_over_heads(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "d.gguf", head_dim=32)
    spec = model_spec(open_gguf(path))
    assert (spec.embedding_size, spec.num_heads, spec.head_dim) == (96, 6, 32)


def test_defaults_of_the_format(tmp_path: Path) -> None:
    file = made(tmp_path, {})
    spec = model_spec(file)
    assert (spec.num_kv_heads, spec.head_dim, spec.rope_base, spec.name) == (2, 32, 10000.0, "small")
    assert vocab_spec(file) == VocabSpec(
        kind="gpt2", pre="default", tokens=("a", "b"), token_types=(1, 1), merges=(), bos_id=None, eos_id=None,
        eot_id=None, unk_id=None, pad_id=None, add_bos=False, chat_template=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": (STRING, "gemma3")}, "gemma3"),
        ({"llama.expert_count": (U32, 8)}, "expert_count"),
        ({"llama.attention.sliding_window": (U32, 32)}, "sliding window"),
        ({"llama.attention.causal": (BOOL, 0)}, "causal"),
        ({"llama.rope.scaling.type": (STRING, "yarn")}, "yarn"),
        ({"llama.rope.scaling.type": (STRING, "linear"), "llama.rope.scaling.factor": (F32, 2.0)}, "linear"),
        ({"llama.rope.scale_linear": (F32, 4.0)}, "rope scaling"),
        ({"llama.rope.dimension_count": (U32, 16)}, "16 of 32"),
        ({"llama.attention.value_length": (U32, 64)}, "64"),
        ({"llama.attention.key_length": (U32, 24)}, "24"),
        ({"llama.attention.key_length": (U32, 512)}, "512"),
        ({"llama.attention.scale": (F32, 0.5)}, "attention.scale"),
        ({"llama.final_logit_softcapping": (F32, 30.0)}, "softcapping"),
        ({"split.count": (U32, 2)}, "2 parts"),
    ],
)
def test_what_would_change_the_arithmetic_is_refused_by_name(tmp_path: Path, changes: Changes, named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        model_spec(made(tmp_path, changes))


def test_scaled_rotary_frequencies_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="rope_freqs"):
        model_spec(made(tmp_path, {}, extra_tensor="rope_freqs.weight"))


@pytest.mark.parametrize(
    "changes",
    [
        {"llama.expert_count": (U32, 0)},
        {"llama.attention.sliding_window": (U32, 64)},
        {"llama.attention.causal": (BOOL, 1)},
        {"llama.rope.scaling.type": (STRING, "none")},
        {"llama.rope.scaling.type": (STRING, "linear"), "llama.rope.scaling.factor": (F32, 1.0)},
        {"llama.rope.dimension_count": (U32, 32)},
        {"llama.attention.value_length": (U32, 32)},
        {"split.count": (U32, 1)},
    ],
)
def test_the_same_keys_saying_nothing_new_are_read(tmp_path: Path, changes: Changes) -> None:
    model_spec(made(tmp_path, changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        *[({name: None}, name) for name in SHAPE],
        *[({name: (STRING, "7")}, name) for name in SHAPE if name != "general.architecture"],
        ({"general.architecture": (U32, 1)}, "general.architecture"),
        ({"llama.block_count": (U32, 0)}, "block_count is 0"),
        ({"llama.block_count": (I32, -1)}, "block_count is -1"),
        ({"llama.block_count": (U32, 2**31)}, "block_count"),
        ({"llama.context_length": (U32, 0)}, "context_length"),
        ({"llama.context_length": (U32, 2**31)}, "context_length"),
        ({"llama.attention.head_count": (U32, 0)}, "head_count"),
        ({"llama.attention.head_count": (U32, 3)}, "3 heads"),
        ({"llama.attention.head_count": (ARRAY, (U32, [2]))}, "head_count"),
        ({"llama.attention.head_count_kv": (U32, 0)}, "head_count_kv"),
        ({"llama.attention.head_count_kv": (U32, 4)}, "head_count_kv"),
        ({"llama.attention.head_count": (U32, 4), "llama.attention.head_count_kv": (U32, 3)}, "share"),
        ({"llama.embedding_length": (U32, 32)}, "token_embd"),
        ({"llama.vocab_size": (U32, 3)}, "vocab_size"),
        ({"llama.attention.layer_norm_rms_epsilon": (F32, float("nan"))}, "nan"),
        ({"llama.attention.layer_norm_rms_epsilon": (F32, -1.0)}, "epsilon"),
        ({"llama.rope.freq_base": (F32, 0.0)}, "freq_base"),
        ({"llama.rope.freq_base": (F32, float("inf"))}, "freq_base"),
    ],
)
def test_an_impossible_shape_is_refused_with_the_key_named(tmp_path: Path, changes: Changes, named: str) -> None:
    with pytest.raises(ModelFileError, match=named):
        model_spec(made(tmp_path, changes))


def test_a_vocabulary_alone_is_read_but_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    tokens = array("tokenizer.ggml.tokens", STRING, ["a", "b"])
    path.write_bytes(
        gguf([*(key(n, *v) for n, v in SHAPE.items()), key("tokenizer.ggml.model", STRING, "gpt2"), tokens])
    )
    assert vocab_spec(open_gguf(path)).tokens == ("a", "b")
    with pytest.raises(ModelFileError, match="vocabulary alone"):
        model_spec(open_gguf(path))


def test_the_vocabulary_is_read_whole(tiny_path: Path) -> None:
    vocab = vocab_spec(open_gguf(tiny_path))
    assert (vocab.kind, vocab.pre, len(vocab.tokens), len(vocab.merges)) == ("gpt2", "smollm", 293, 33)
    assert vocab.token_types[:5] == (3, 3, 3, 3, 1) and vocab.merges[0] == "Ġ t"
    assert (vocab.bos_id, vocab.eos_id, vocab.unk_id, vocab.pad_id, vocab.eot_id) == (1, 2, 0, 2, None)
    assert vocab.add_bos is False and vocab.chat_template == CHAT_TEMPLATE


@pytest.mark.parametrize(("pre", "add_bos"), [("llama-bpe", True), ("smollm", False), ("qwen2", False)])
def test_whether_a_text_begins_with_bos_follows_the_kind_unless_stated(tmp_path: Path, pre: str, add_bos: bool) -> None:
    assert vocab_spec(made(tmp_path, {"tokenizer.ggml.pre": (STRING, pre)})).add_bos is add_bos
    stated: Changes = {"tokenizer.ggml.pre": (STRING, pre), "tokenizer.ggml.add_bos_token": (BOOL, not add_bos)}
    assert vocab_spec(made(tmp_path, stated)).add_bos is not add_bos


@pytest.mark.parametrize(("given", "read"), [(0, 0), (1, 1), (2**32 - 1, None)])
def test_a_token_id_inside_the_vocabulary_or_none(tmp_path: Path, given: int, read: int | None) -> None:
    assert vocab_spec(made(tmp_path, {"tokenizer.ggml.eos_token_id": (U32, given)})).eos_id == read


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": (ARRAY, (U32, [1]))}, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.token_type": (ARRAY, (I32, [1]))}, "1 token types"),
        ({"tokenizer.ggml.eos_token_id": (U32, 2)}, "eos_token_id is 2"),
        ({"tokenizer.ggml.eos_token_id": (I32, -2)}, "eos_token_id is -2"),
        ({"tokenizer.ggml.merges": (STRING, "a b")}, "merges"),
        ({"tokenizer.chat_template": (U32, 1)}, "chat_template"),
    ],
)
def test_a_wrong_vocabulary_is_refused_with_the_key_named(tmp_path: Path, changes: Changes, named: str) -> None:
    with pytest.raises(ModelFileError, match=named):
        vocab_spec(made(tmp_path, changes))


def test_a_vocabulary_of_another_size_than_the_embedding_is_refused(tmp_path: Path) -> None:
    file = made(tmp_path, {}, rows=3)
    with pytest.raises(ModelFileError, match="2 tokens, the embedding 3 rows"):
        check_vocabulary(file, model_spec(file), vocab_spec(file))
