"""What a model file says about itself: the model's shape (ModelSpec) and its text side (VocabSpec).

Whatever would change the arithmetic and is not built in is refused here by name, so that nothing runs a little wrong.
Keys of the shape begin with the architecture's name: `llama.block_count`, `qwen2.block_count`.
"""

from __future__ import annotations

import math
from typing import TypeVar

from unsay.compiler.frontend.model_file import ModelFile
from unsay.errors import ModelFileError, UnsupportedError
from unsay.image import ModelSpec, VocabSpec

ARCHITECTURES = ("llama", "qwen2")
MAX_CONTEXT = 1 << 20
MAX_HEAD_DIM = 256
HEAD_DIM_STEP = 16

_REFUSED_NUMBERS = (
    "expert_count", "attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale", "logit_scale",
    "residual_scale", "embedding_scale", "attn_logit_softcapping", "final_logit_softcapping",
)  # fmt: skip
"""Features that are off when the key is absent or 0."""
_REFUSED_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_PRE_WITH_BOS = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"})
_NO_ID = 0xFFFFFFFF
_DEFAULT_ROPE_BASE = 10000.0
_ROPE_PAIRINGS = {"llama": "adjacent", "qwen2": "halves"}
"""How GGUF writers leave the rows of Q and K of each architecture."""

_T = TypeVar("_T")


def model_spec(file: ModelFile) -> ModelSpec:
    """The model's shape; raises UnsupportedError naming what is not built in, ModelFileError for impossible sizes."""
    architecture = _needed(file, "general.architecture", file.text("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"{file.path.name}: architecture {architecture[:80]!r}; supported are {', '.join(ARCHITECTURES)}"
        )
    _refuse_features(file, architecture)
    num_heads = _size(file, f"{architecture}.attention.head_count", 1 << 12)
    embedding_size = _size(file, f"{architecture}.embedding_length", 1 << 20)
    head_dim = _head_dim(file, architecture, embedding_size, num_heads)
    spec = ModelSpec(
        name=(file.text("general.name") or file.path.stem)[:200],
        architecture=architecture,
        num_layers=_size(file, f"{architecture}.block_count", 1 << 10),
        embedding_size=embedding_size,
        num_heads=num_heads,
        num_kv_heads=_kv_heads(file, architecture, num_heads),
        head_dim=head_dim,
        ffn_size=_size(file, f"{architecture}.feed_forward_length", 1 << 20),
        vocab_size=_vocab_size(file, architecture, embedding_size),
        context_length=_size(file, f"{architecture}.context_length", MAX_CONTEXT),
        norm_eps=_in_range(file, f"{architecture}.attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope_base=_in_range(file, f"{architecture}.rope.freq_base", 1.0, 1e12, _DEFAULT_ROPE_BASE),
        rope_pairing=_ROPE_PAIRINGS[architecture],
    )
    _check_rotation(file, architecture, head_dim)
    return spec


def vocab_spec(file: ModelFile) -> VocabSpec:
    """The tokenizer as the file states it; a file without tensors will do. Raises ModelFileError."""
    kind = _needed(file, "tokenizer.ggml.model", file.text("tokenizer.ggml.model"))
    pre = file.text("tokenizer.ggml.pre") or "default"
    tokens = _needed(file, "tokenizer.ggml.tokens", file.strings("tokenizer.ggml.tokens"))
    types = file.integers("tokenizer.ggml.token_type") or (1,) * len(tokens)
    if len(types) != len(tokens):
        raise ModelFileError(f"{file.path.name}: {len(tokens)} tokens but {len(types)} token types")
    add_bos = file.boolean("tokenizer.ggml.add_bos_token")
    return VocabSpec(
        kind=kind,
        pre=pre,
        tokens=tokens,
        token_types=types,
        merges=file.strings("tokenizer.ggml.merges") or (),
        bos_id=_token_id(file, "bos", len(tokens)),
        eos_id=_token_id(file, "eos", len(tokens)),
        eot_id=_token_id(file, "eot", len(tokens)),
        unk_id=_token_id(file, "unknown", len(tokens)),
        pad_id=_token_id(file, "padding", len(tokens)),
        add_bos=add_bos if add_bos is not None else kind == "llama" or pre in _PRE_WITH_BOS,
        chat_template=file.text("tokenizer.chat_template"),
    )


def check_vocabulary(file: ModelFile, spec: ModelSpec, vocab: VocabSpec) -> None:
    """Every row of the embedding has a token and every token a row; raises ModelFileError."""
    if len(vocab.tokens) != spec.vocab_size:
        raise ModelFileError(
            f"{file.path.name}: the tokenizer has {len(vocab.tokens)} tokens, the embedding {spec.vocab_size} rows"
        )


def _refuse_features(file: ModelFile, architecture: str) -> None:
    for name in _REFUSED_NUMBERS:
        if value := file.number(f"{architecture}.{name}"):
            raise UnsupportedError(f"{file.path.name}: {architecture}.{name} = {value:g} is not supported")
    for name in _REFUSED_TENSORS:
        if name in file.tensors:
            raise UnsupportedError(f"{file.path.name}: scaled rotary frequencies ({name}) are not supported")
    window = file.integer(f"{architecture}.attention.sliding_window") or 0
    if 0 < window < (file.integer(f"{architecture}.context_length") or 0):
        raise UnsupportedError(f"{file.path.name}: sliding window attention (of {window} tokens) is not supported")
    if file.boolean(f"{architecture}.attention.causal") is False:
        raise UnsupportedError(f"{file.path.name}: attention that is not causal is not supported")
    if (parts := file.integer("split.count") or 1) > 1:
        raise UnsupportedError(f"{file.path.name}: one of {parts} parts of a model; join them with gguf-split --merge")


def _check_rotation(file: ModelFile, architecture: str, head_dim: int) -> None:
    rotated = file.integer(f"{architecture}.rope.dimension_count")
    if rotated not in (None, head_dim):
        raise UnsupportedError(f"{file.path.name}: only {rotated} of {head_dim} head dimensions rotate; all must")
    scaling = file.text(f"{architecture}.rope.scaling.type") or "none"
    factors = [file.number(f"{architecture}.rope.{name}") for name in ("scaling.factor", "scale_linear")]
    if scaling not in ("none", "linear") or any(factor not in (None, 0.0, 1.0) for factor in factors):
        raise UnsupportedError(f"{file.path.name}: rope scaling ({scaling[:40]!r}, factor {factors}) is not supported")


def _head_dim(file: ModelFile, architecture: str, embedding_size: int, num_heads: int) -> int:
    key_length = file.integer(f"{architecture}.attention.key_length")
    if key_length is None and embedding_size % num_heads:
        raise ModelFileError(f"{file.path.name}: embedding size {embedding_size} over {num_heads} heads is not whole")
    head_dim = key_length if key_length is not None else embedding_size // num_heads
    value_length = file.integer(f"{architecture}.attention.value_length")
    if value_length not in (None, head_dim):
        raise UnsupportedError(f"{file.path.name}: keys of {head_dim} and values of {value_length} dimensions")
    if not 0 < head_dim <= MAX_HEAD_DIM or head_dim % HEAD_DIM_STEP:
        raise UnsupportedError(
            f"{file.path.name}: head size {head_dim}; supported are multiples of {HEAD_DIM_STEP} up to {MAX_HEAD_DIM}"
        )
    return head_dim


def _kv_heads(file: ModelFile, architecture: str, num_heads: int) -> int:
    key = f"{architecture}.attention.head_count_kv"
    num_kv_heads = num_heads if file.integer(key) is None else _size(file, key, num_heads)
    if num_heads % num_kv_heads:
        raise ModelFileError(f"{file.path.name}: {num_heads} heads cannot share {num_kv_heads} key/value heads")
    return num_kv_heads


def _vocab_size(file: ModelFile, architecture: str, embedding_size: int) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(f"{file.path.name}: there is no tensor token_embd.weight; a vocabulary alone cannot run")
    if len(embedding.shape) != 2 or embedding.shape[1] != embedding_size:
        raise ModelFileError(
            f"{file.path.name}: token_embd.weight is {list(embedding.shape)}, rows of {embedding_size} are needed"
        )
    stated = file.integer(f"{architecture}.vocab_size")
    if stated not in (None, embedding.shape[0]):
        raise ModelFileError(
            f"{file.path.name}: {architecture}.vocab_size is {stated}, token_embd.weight has {embedding.shape[0]} rows"
        )
    return embedding.shape[0]


def _token_id(file: ModelFile, role: str, vocab_size: int) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    token_id = file.integer(key)
    if token_id in (None, -1, _NO_ID):
        return None
    if not 0 <= token_id < vocab_size:
        raise ModelFileError(f"{file.path.name}: {key} is {token_id}, the vocabulary has {vocab_size} tokens")
    return token_id


def _size(file: ModelFile, key: str, limit: int) -> int:
    value = _needed(file, key, file.integer(key))
    if not 1 <= value <= limit:
        raise ModelFileError(f"{file.path.name}: {key} is {value}, it must be in 1..{limit}")
    return value


def _in_range(file: ModelFile, key: str, low: float, high: float, default: float | None = None) -> float:
    value = _needed(file, key, default if (stated := file.number(key)) is None else stated)
    if not (math.isfinite(value) and low < value < high):
        raise ModelFileError(f"{file.path.name}: {key} is {value}, it must lie between {low:g} and {high:g}")
    return value


def _needed(file: ModelFile, key: str, value: _T | None) -> _T:
    if value is None:
        raise ModelFileError(f"{file.path.name}: the key {key} is missing")
    return value
