"""config.json of a Hugging Face directory: the model's shape, and which tensors go with it.

Every key is either read, known to change nothing at inference (_HARMLESS), or null; any other is refused by name, since
a key this program does not know may change the arithmetic. Defaults are those of transformers where a key is absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from unsay.compiler.frontend.describe import HEAD_DIM_STEP, MAX_CONTEXT, MAX_HEAD_DIM
from unsay.errors import ModelFileError, UnsupportedError
from unsay.image import ModelSpec

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "mistral": "llama"}
"""Our name of each `model_type`; Mistral differs from llama in its sliding window alone."""
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "mistral": "MistralForCausalLM"}

_DEFAULT_WINDOW = 4096
_DEFAULT_ROPE_BASE = 10000.0
_QKV = frozenset({"q_proj", "k_proj", "v_proj"})
_MLP = frozenset({"gate_proj", "up_proj", "down_proj"})

_HARMLESS = frozenset({
    "_name_or_path", "_attn_implementation", "attn_implementation", "attention_dropout", "bos_token_id",
    "chunk_size_feed_forward", "dtype", "eos_token_id", "gradient_checkpointing", "hidden_dropout", "id2label",
    "initializer_range", "is_decoder", "is_llama_config", "label2id", "model_type", "output_attentions",
    "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type", "return_dict", "tokenizer_class",
    "torch_dtype", "torchscript", "transformers.js_config", "transformers_version", "use_bfloat16", "use_cache",
    # what older versions of transformers kept here for sampling
    "do_sample", "max_length", "min_length", "num_beams", "repetition_penalty", "temperature", "top_k", "top_p",
})  # fmt: skip
"""Training, storage, labels, sampling defaults, tokens (hf_tokenizer.py reads those): nothing the logits depend on."""

_FIXED: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_encoder_decoder": (False,),
    "rope_interleaved": (False,),
    "use_mrope": (False,),
    "use_qk_norm": (False,),
    "partial_rotary_factor": (1, 1.0),
    "pruned_heads": ({},),
}
"""Keys with the only values that are built in."""


@dataclass(frozen=True, slots=True)
class HfConfig:
    """A model's shape. is_tied: the head is the embedding; biased: projections that have a bias, as `q_proj`."""

    spec: ModelSpec
    is_tied: bool
    biased: frozenset[str]


def read_config(path: Path, fields: Mapping[str, object]) -> HfConfig:
    """Describe the model of config.json, of which `fields` is the object.

    Raises UnsupportedError naming what is not built in, ModelFileError for a key that is missing or impossible.
    """
    keys = _Keys(path.name, fields)
    model_type = keys.text("model_type")
    if model_type not in ARCHITECTURES:
        keys.unsupported(f"model_type {model_type[:80]!r}; supported are {', '.join(ARCHITECTURES)}")
    _check_class(keys, model_type)
    for key, allowed in _FIXED.items():
        keys.fixed(key, allowed)
    spec = _spec(keys, path.absolute().parent.name, model_type)
    _check_window(keys, model_type, spec)
    config = HfConfig(spec, keys.boolean("tie_word_embeddings", False), _biased(keys, model_type))
    keys.check_all_read()
    return config


def _spec(keys: _Keys, name: str, model_type: str) -> ModelSpec:
    num_heads = keys.integer("num_attention_heads", 1 << 12)
    embedding_size = keys.integer("hidden_size", 1 << 20)
    num_kv_heads = keys.integer("num_key_value_heads", num_heads, num_heads if model_type == "llama" else None)
    if num_heads % num_kv_heads:
        keys.fail(f"{num_heads} heads cannot share {num_kv_heads} key/value heads")
    return ModelSpec(
        name=name[:200] or "model",
        architecture=ARCHITECTURES[model_type],
        num_layers=keys.integer("num_hidden_layers", 1 << 10),
        embedding_size=embedding_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_head_dim(keys, embedding_size, num_heads),
        ffn_size=keys.integer("intermediate_size", 1 << 20),
        vocab_size=keys.integer("vocab_size", 1 << 20),
        context_length=keys.integer("max_position_embeddings", MAX_CONTEXT),
        norm_eps=keys.number("rms_norm_eps", 0.0, 1.0),
        rope_base=_rope_base(keys),
        rope_pairing="halves",
    )


def _head_dim(keys: _Keys, embedding_size: int, num_heads: int) -> int:
    if "head_dim" not in keys and embedding_size % num_heads:
        keys.fail(f"hidden_size {embedding_size} over {num_heads} heads is not whole")
    head_dim = keys.integer("head_dim", 1 << 20, embedding_size // num_heads)
    if head_dim > MAX_HEAD_DIM or head_dim % HEAD_DIM_STEP:
        keys.unsupported(f"head size {head_dim}; supported are multiples of {HEAD_DIM_STEP} up to {MAX_HEAD_DIM}")
    return head_dim


def _rope_base(keys: _Keys) -> float:
    """From rope_theta, or from rope_parameters as transformers 5 writes them; scaled rotary frequencies are refused."""
    stated = [keys.number("rope_theta", 1.0, 1e12)] if "rope_theta" in keys else []
    for key in ("rope_scaling", "rope_parameters"):
        inner = _Keys(f"{keys.file}: {key}", keys.mapping(key))
        kinds = [inner.text(name) for name in ("rope_type", "type") if name in inner]
        if other := [kind for kind in kinds if kind != "default"]:
            keys.unsupported(f"{key} of type {other[0][:40]!r}: scaled rotary frequencies are not supported")
        inner.fixed("partial_rotary_factor", (1, 1.0))
        if "rope_theta" in inner:
            stated.append(inner.number("rope_theta", 1.0, 1e12))
        inner.check_all_read()
    if len(set(stated)) > 1:
        keys.fail(f"the rotary base is stated as {stated[0]:g} and as {stated[1]:g}")
    return stated[0] if stated else _DEFAULT_ROPE_BASE


def _check_window(keys: _Keys, model_type: str, spec: ModelSpec) -> None:
    """A window as long as the context changes nothing; a shorter one is not built in."""
    window = _window(keys, model_type, spec.num_layers)
    if window is not None and window < spec.context_length:
        keys.unsupported(
            f"sliding window attention (of {window} tokens, the context has {spec.context_length}) is not supported"
        )
    kinds = keys.texts("layer_types")
    if set(kinds) - ({"full_attention"} if window is None else {"full_attention", "sliding_attention"}):
        keys.unsupported(f"layer_types {str(sorted(set(kinds)))[:100]}; supported is full_attention")


def _window(keys: _Keys, model_type: str, num_layers: int) -> int | None:
    """Tokens that some layer looks back; None where all look at the whole context. A llama knows no such key."""
    if model_type == "llama":
        return None
    is_null = "sliding_window" not in keys and not keys.absent("sliding_window")
    window = None if is_null else keys.integer("sliding_window", 1 << 30, _DEFAULT_WINDOW)
    if model_type == "mistral":
        return window
    is_used, first = keys.boolean("use_sliding_window", False), keys.integer("max_window_layers", 1 << 30, 28, low=0)
    return window if is_used and first < num_layers else None


def _biased(keys: _Keys, model_type: str) -> frozenset[str]:
    """Which projections have a bias."""
    if model_type != "llama":
        keys.fixed("attention_bias", (False,))
        keys.fixed("mlp_bias", (False,))
        return _QKV if model_type == "qwen2" else frozenset()
    attention = _QKV | {"o_proj"} if keys.boolean("attention_bias", False) else frozenset[str]()
    return attention | _MLP if keys.boolean("mlp_bias", False) else attention


def _check_class(keys: _Keys, model_type: str) -> None:
    for name in keys.texts("architectures"):
        if name != _CLASSES[model_type]:
            keys.unsupported(f"architecture {name[:80]!r}; of {model_type} only {_CLASSES[model_type]} is supported")


class _Keys:
    """The keys of one JSON object; remembers which were asked for. Null counts as absent."""

    def __init__(self, file: str, fields: Mapping[str, object]) -> None:
        self.file = file
        self._fields = fields
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._get(key) is not None

    def absent(self, key: str) -> bool:
        """Whether the key is not there at all; null is there."""
        return key not in self._fields

    def integer(self, key: str, limit: int, default: int | None = None, low: int = 1) -> int:
        """An integer in low..limit."""
        value = self._needed(key, default)
        if type(value) is not int or not low <= value <= limit:
            self.fail(f"{key} is {str(value)[:40]}, it must be an integer in {low}..{limit}")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """A number strictly between `low` and `high`."""
        value = self._needed(key, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < high:
            self.fail(f"{key} is {str(value)[:40]}, it must be a number between {low:g} and {high:g}")
        assert math.isfinite(value), value
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._needed(key, default)
        return value if isinstance(value, bool) else self.fail(f"{key} is {str(value)[:40]}, it must be true or false")

    def text(self, key: str) -> str:
        """A string."""
        value = self._needed(key, None)
        return value if isinstance(value, str) else self.fail(f"{key} is {str(value)[:40]}, it must be a string")

    def texts(self, key: str) -> list[str]:
        """A list of strings, empty if absent."""
        value = self._needed(key, [])
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        texts = [item for item in items if isinstance(item, str)]
        return texts if len(texts) == len(items) else self.fail(f"{key} must be a list of strings")

    def mapping(self, key: str) -> Mapping[str, object]:
        """An object, empty if absent."""
        value = self._needed(key, {})
        return cast("dict[str, object]", value) if isinstance(value, dict) else self.fail(f"{key} must be an object")

    def fixed(self, key: str, allowed: tuple[object, ...]) -> None:
        """Refuse any other value."""
        value = self._get(key)
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            self.unsupported(f"{key} = {str(value)[:60]}; supported is {allowed[0]}")

    def check_all_read(self) -> None:
        """Refuse the first key nobody asked for, unless it changes nothing."""
        for key, value in self._fields.items():
            if value is not None and key not in self._read and key not in _HARMLESS:
                self.unsupported(f"the key {key[:80]!r} ({str(value)[:60]}) is not known; it may change the answers")

    def fail(self, message: str) -> NoReturn:
        """A key is wrong."""
        raise ModelFileError(f"{self.file}: {message}")

    def unsupported(self, message: str) -> NoReturn:
        """A key is right, and asks for what is not built in."""
        raise UnsupportedError(f"{self.file}: {message}")

    def _get(self, key: str) -> object:
        self._read.add(key)
        return self._fields.get(key)

    def _needed(self, key: str, default: object) -> object:
        value = self._get(key)
        value = default if value is None else value
        return self.fail(f"the key {key} is missing") if value is None else value
