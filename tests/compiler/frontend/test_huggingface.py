"""Hugging Face directories: read as a GGUF file of the same model is, and refused by name where they ask for more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import unsay
from tests.images import plain_image
from tests.tiny import write_tiny_gguf
from tests.tiny_hf import stored, write_json, write_tiny_hf, write_weights
from unsay.cachedir import cache_root
from unsay.cli.main import main
from unsay.compiler.cache import files_digest
from unsay.compiler.frontend.arrays import FileWeights
from unsay.compiler.frontend.hf_config import read_config
from unsay.compiler.frontend.hf_files import model_files
from unsay.compiler.frontend.huggingface import open_huggingface
from unsay.compiler.frontend.source import import_model, open_model
from unsay.errors import ModelFileError, ModelNotFoundError, UnsupportedError
from unsay.image import ModelSpec

QWEN2_ON = {"use_sliding_window": True, "max_window_layers": 0}

UNSUPPORTED: dict[str, tuple[str, dict[str, object], str]] = {
    "another architecture": ("gpt_neox", {}, "model_type 'gpt_neox'; supported are llama, qwen2, mistral"),
    "a classifier": ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    "experts": ("mistral", {"num_local_experts": 8}, "the key 'num_local_experts'"),
    "a key nobody knows": ("llama", {"logit_scale": 0.5}, r"'logit_scale' \(0\.5\) is not known"),
    "a quantised model": ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
    "code of its own": ("llama", {"auto_map": {"AutoModel": "m.M"}}, "auto_map"),
    "rope scaling, old key": (
        "llama",
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        "rope_scaling of type 'lin",
    ),
    "rope scaling, new key": (
        "llama",
        {"rope_parameters": {"rope_type": "llama3"}},
        "rope_parameters of type 'llama3'",
    ),
    "a rope parameter": (
        "llama",
        {"rope_parameters": {"rope_type": "default", "beta": 1}},
        "rope_parameters: .*'beta'",
    ),
    "partly rotated": ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    "another activation": ("llama", {"hidden_act": "gelu"}, "hidden_act = gelu; supported is silu"),
    "a window": ("mistral", {"sliding_window": 512}, r"of 512 tokens, the context has 1024\) is not supported"),
    "the default window": ("mistral", {"sliding_window": None, "max_position_embeddings": 8192}, "of 4096 tokens"),
    "a window of qwen2": ("qwen2", {"sliding_window": 64, **QWEN2_ON}, "of 64 tokens"),
    "a window on a llama": ("llama", {"sliding_window": 64}, "'sliding_window'"),
    "layers of two kinds": ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    "biases of mistral": ("mistral", {"attention_bias": True}, "attention_bias = True"),
    "a head of 24": ("llama", {"head_dim": 24}, "head size 24; supported are multiples of 16 up to 256"),
}

WRONG: dict[str, tuple[dict[str, object], str]] = {
    "no hidden_size": ({"hidden_size": None}, "the key hidden_size is missing"),
    "no context": ({"max_position_embeddings": None}, "max_position_embeddings is missing"),
    "0 layers": ({"num_hidden_layers": 0}, r"num_hidden_layers is 0, it must be an integer in 1\.\.1024"),
    "2^40 layers": ({"num_hidden_layers": 1 << 40}, "num_hidden_layers is 1099511627776"),
    "layers as text": ({"num_hidden_layers": "2"}, "num_hidden_layers is 2, it must be an integer"),
    "true layers": ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    "eps of 0": ({"rms_norm_eps": 0}, "rms_norm_eps is 0, it must be a number between 0 and 1"),
    "eps of 1e999": ({"rms_norm_eps": float("inf")}, "config.json is no JSON: Infinity"),
    "heads that do not divide": ({"num_key_value_heads": 4}, "6 heads cannot share 4 key/value heads"),
    "a tie of text": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is yes, it must be true or false"),
    "two bases": ({"rope_parameters": {"rope_theta": 5e5}}, "stated as 10000 and as 500000"),
    "another vocabulary": (
        {"vocab_size": 512},
        r"model\.embed_tokens\.weight is \[293, 96\], config.json makes it \[512",
    ),
    "fewer tokens": ({"vocab_size": 100}, r"model\.embed_tokens\.weight"),
    "more layers": ({"num_hidden_layers": 3}, r"model\.layers\.2\.\S+ \(9 in all\) is missing"),
    "biases that are not there": ({"attention_bias": True}, r"k_proj\.bias \(8 in all\) is missing"),
    "an untied head that is not there": ({"tie_word_embeddings": False}, r"lm_head\.weight \(1 in all\) is missing"),
}


def test_every_key_of_a_config_is_in_the_spec(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "tiny", rope_base=5e5, layers=3, kv_heads=3)
    spec = open_model(directory).spec
    assert spec == ModelSpec(
        name="tiny", architecture="llama", num_layers=3, embedding_size=96, num_heads=6, num_kv_heads=3, head_dim=16,
        ffn_size=160, vocab_size=293, context_length=1024, norm_eps=1e-5, rope_base=5e5, rope_pairing="halves",
        kv_format="f32",
    )  # fmt: skip


PUBLISHED: dict[str, dict[str, object]] = {
    "SmolLM2-135M": {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
        "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
        "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "model_type": "llama",
        "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True,
        "vocab_size": 49152,
    },
    "Qwen2.5-0.5B": {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
    },
    "Mistral-7B-v0.2": {
        "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.36.0", "use_cache": True,
        "vocab_size": 32000,
    },
}  # fmt: skip
"""config.json of published models: no key of theirs is unknown."""


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_config_of_a_published_model_is_known_to_its_last_key(tmp_path: Path, model: str) -> None:
    fields = PUBLISHED[model]
    spec = read_config(tmp_path / model / "config.json", fields).spec
    heads = fields["num_attention_heads"], fields["num_key_value_heads"]
    assert (spec.name, spec.num_heads, spec.num_kv_heads) == (model, *heads)
    assert spec.head_dim == {"SmolLM2-135M": 64, "Qwen2.5-0.5B": 64, "Mistral-7B-v0.2": 128}[model]


def test_rope_parameters_of_transformers_5_and_defaults_of_older_files(tmp_path: Path) -> None:
    newer = {"rope_theta": None, "rope_parameters": {"rope_theta": 2e4, "rope_type": "default"}}
    assert open_model(write_tiny_hf(tmp_path / "5", config=newer)).spec.rope_base == 2e4
    older = {"rope_theta": None, "head_dim": None, "num_key_value_heads": None, "rope_scaling": None}
    spec = open_model(write_tiny_hf(tmp_path / "3", kv_heads=6, config=older)).spec
    assert (spec.rope_base, spec.head_dim, spec.num_kv_heads) == (1e4, 16, 6)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("mistral", {}), ("mistral", {"sliding_window": 1024}), ("qwen2", {"use_sliding_window": False}),
     ("qwen2", {"sliding_window": 1024, **QWEN2_ON}), ("qwen2", {"layer_types": ["full_attention"] * 2})],
)  # fmt: skip
def test_a_window_as_long_as_the_context_or_switched_off_is_none(
    tmp_path: Path, model_type: str, changes: dict
) -> None:
    assert open_model(write_tiny_hf(tmp_path / "m", model_type=model_type, config=changes)).spec.context_length == 1024


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_is_not_built_in_is_refused_by_name(tmp_path: Path, case: str) -> None:
    model_type, changes, message = UNSUPPORTED[case]
    known = model_type if model_type in ("llama", "qwen2", "mistral") else "llama"
    directory = write_tiny_hf(tmp_path / "m", model_type=known, config={**changes, "model_type": model_type})
    with pytest.raises(UnsupportedError, match=message):
        open_model(directory)


@pytest.mark.parametrize("case", WRONG)
def test_a_config_that_contradicts_itself_or_the_tensors_is_refused(tmp_path: Path, case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(ModelFileError, match=message):
        open_model(write_tiny_hf(tmp_path / "m", config=changes))


# tensors


def test_a_tensor_without_a_place_is_refused_by_its_own_name(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    tensors = stored(directory)
    write_weights(directory, {**tensors, "model.layers.0.self_attn.k_norm.weight": np.ones(16, np.float32)})
    with pytest.raises(
        UnsupportedError, match=r"'model\.layers\.0\.self_attn\.k_norm\.weight' \(1 in all\) has no place"
    ):
        open_model(directory)


def test_a_stored_rope_table_is_passed_over_if_it_is_the_one_the_config_states(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    tensors, name = stored(directory), "model.layers.0.self_attn.rotary_emb.inv_freq"
    table = (1e4 ** -(np.arange(0, 16, 2) / 16)).astype(np.float32)
    write_weights(directory, {**tensors, name: table})
    assert len(open_model(directory).file.tensors) == len(tensors)
    write_weights(directory, {**tensors, name: table * 2})
    with pytest.raises(UnsupportedError, match=r"rotary_emb\.inv_freq' \(1 in all\) has no place"):
        open_model(directory)


def test_a_tied_head_may_be_stored_but_must_be_the_embedding(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    tensors = stored(directory)
    embedding = tensors["model.embed_tokens.weight"]
    write_weights(directory, {**tensors, "lm_head.weight": embedding.copy()})
    assert "output.weight" not in open_model(directory).file.tensors
    write_weights(directory, {**tensors, "lm_head.weight": embedding + 1})
    with pytest.raises(ModelFileError, match=r"lm_head\.weight is not the embedding, though config\.json ties them"):
        open_model(directory)


def test_shards_hold_the_same_tensors(tmp_path: Path) -> None:
    single, sharded = write_tiny_hf(tmp_path / "1"), write_tiny_hf(tmp_path / "3", num_shards=3)
    one, three = (FileWeights(open_model(directory).file) for directory in (single, sharded))
    assert set(one) == set(three)
    assert all(np.array_equal(one[name], three[name]) for name in one)
    assert len(model_files(sharded)) == 3 + 1 + 3


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({}, "weight_map must be an object"),
        ({"a": "../model.safetensors"}, r"'a' is in '\.\./model\.safetensors', no \.safetensors file beside it"),
        ({"a": "/etc/passwd"}, "no .safetensors file beside it"),
        ({"a": 1}, "no .safetensors file beside it"),
        ({"a": "s.safetensors", "b": "s.safetensors"}, "has the tensor 'b' for s.safetensors, s.safetensors has not"),
        ({}.fromkeys("xyz", "s.safetensors"), "tensor"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, weight_map: dict, message: str) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    (directory / "model.safetensors").unlink()
    write_weights(tmp_path, {"a": np.zeros(2, np.float32)})
    (tmp_path / "model.safetensors").rename(directory / "s.safetensors")
    write_json(directory / "model.safetensors.index.json", {"weight_map": weight_map})
    with pytest.raises(ModelFileError, match=message):
        open_model(directory)


def test_pickles_and_empty_directories_are_refused(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(UnsupportedError, match="is a pickle, which can run code"):
        open_model(directory)
    (directory / "pytorch_model.bin").unlink()
    with pytest.raises(ModelNotFoundError, match=r"has neither model\.safetensors nor"):
        model_files(directory)
    with pytest.raises(ModelNotFoundError, match=r"directory without config\.json"):
        unsay.load(tmp_path)


# the engine


@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_a_directory_and_a_file_of_one_model_become_the_same_image(tmp_path: Path, model_type: str) -> None:
    """Rows of Q and K lie in halves in the one and (a llama's) adjacent in the other; packed they are the same."""
    directory = write_tiny_hf(tmp_path / "hf", model_type=model_type, num_shards=2, layers=1)
    file = write_tiny_gguf(tmp_path / "m.gguf", architecture=model_type, dtype="F32", layers=1)
    ours, theirs = plain_image(directory), plain_image(file)
    assert ours.program == theirs.program
    assert np.array_equal(ours.weights, theirs.weights)


def test_a_change_of_any_file_of_a_directory_makes_another_model(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m", num_shards=2, layers=1)
    digests = {files_digest(cache_root(), model_files(directory))}
    for count, path in enumerate(model_files(directory), 2):
        with path.open("ab") as file:
            file.write(b" ")
        digests.add(files_digest(cache_root(), model_files(directory)))
        assert len(digests) == count, path.name


def test_unsay_run_takes_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_tiny_hf(tmp_path / "m", layers=1)
    options = ["--model", str(directory), "--max-tokens", "3", "--temperature", "0", "--ignore-eos", "--json"]
    assert main(["run", "pandas", *options]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["tokens"] == 3


def test_half_precision_weights_are_handed_on_as_they_are(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m", dtype=np.float16, layers=1)
    weights, _, _ = open_huggingface(directory)
    assert {tensor.dtype.name for tensor in weights.tensors.values()} == {"F16"}
    assert import_model(directory).weights["blk.0.ffn_up.weight"].dtype == np.float16
