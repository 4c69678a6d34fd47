"""Hugging Face directories: config.json, tokenizer.json and safetensors, as `save_pretrained` writes them.

    hf_files.py   which files there are        hf_config.py      config.json
    here          the tensors                  hf_tokenizer.py   the text side

The tensors are handed on under the names of the architecture's graph (`model.layers.0.mlp.up_proj.weight` is
`blk.0.ffn_up.weight`), as they lie in the mapped files. Exactly the tensors that config.json asks for must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.arrays import numbers
from unsay.compiler.frontend.hf_config import HfConfig, read_config
from unsay.compiler.frontend.hf_files import CONFIG, INDEX, is_huggingface, shards
from unsay.compiler.frontend.hf_tokenizer import read_vocabulary
from unsay.compiler.frontend.json_text import read_json
from unsay.compiler.frontend.model_file import TensorInfo
from unsay.compiler.frontend.safetensors import SafetensorsFile, open_safetensors
from unsay.errors import ModelFileError, UnsupportedError
from unsay.image import ModelSpec, VocabSpec

_WHOLE = {"embed_tokens": "token_embd", "norm": "output_norm"}
_LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
"""Names in the files, below `model` and `model.layers.N`, and in the graph."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of the graph comes from."""

    file: SafetensorsFile
    name: str


class HfWeights:
    """The tensors of a directory under the graph's names."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.tensors: Mapping[str, TensorInfo] = {
            name: place.file.tensors[place.name] for name, place in places.items()
        }
        self._places = places

    def data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, uint8 [rows, row_bytes]; a view."""
        place = self._places[name]
        return place.file.data(place.name)

    def forget(self) -> None:
        """Give back the memory of all that was read."""
        for file in {id(place.file): place.file for place in self._places.values()}.values():
            file.forget()


def open_huggingface(directory: Path) -> tuple[HfWeights, ModelSpec, VocabSpec]:
    """Read and check a directory.

    Raises ModelNotFoundError, ModelFileError or UnsupportedError, naming the file and the key or tensor.
    """
    fields = _config_fields(directory)
    config = read_config(directory / CONFIG, fields)
    places = _checked(_open_shards(directory), config)
    return HfWeights(places), config.spec, read_vocabulary(directory, fields, config.spec.vocab_size)


def open_vocabulary(directory: Path) -> VocabSpec:
    """The tokenizer alone; the directory need hold nothing else."""
    has_config = is_huggingface(directory)
    return read_vocabulary(directory, _config_fields(directory) if has_config else {})


def _config_fields(directory: Path) -> dict[str, Any]:
    return read_json(directory / CONFIG)


def _open_shards(directory: Path) -> dict[str, Place]:
    """Every tensor of every file by its name there."""
    places: dict[str, Place] = {}
    for shard, wanted in shards(directory).items():
        file = open_safetensors(directory / shard)
        if wanted is not None and (apart := wanted ^ set(file.tensors)):
            name = min(apart)
            has, lacks = (INDEX, shard) if name in wanted else (shard, INDEX)
            raise ModelFileError(f"{directory.name}: {has} has the tensor {name[:80]!r} for {shard}, {lacks} has not")
        places |= {name: Place(file, name) for name in file.tensors}
    return places


def _checked(places: Mapping[str, Place], config: HfConfig) -> dict[str, Place]:
    """The tensors by our names: exactly those the configuration asks for, in its shapes."""
    wanted = _wanted(config)
    places = {name: place for name, place in places.items() if not _is_rope_table(name, place, config.spec)}
    spare = places.keys() - wanted.keys() - ({"lm_head.weight"} if config.is_tied else set())
    if missing := sorted(wanted.keys() - places.keys()):
        raise ModelFileError(f"the tensor {missing[0]} ({len(missing)} in all) is missing; config.json asks for it")
    if spare:
        raise UnsupportedError(
            f"the tensor {min(spare)[:80]!r} ({len(spare)} in all) has no place in the model config.json describes; "
            "it would give other answers without it"
        )
    for name, (_, shape) in wanted.items():
        given = places[name].file.tensors[name].shape
        if given != shape:
            raise ModelFileError(f"the tensor {name} is {list(given)}, config.json makes it {list(shape)}")
    _check_tied_head(places, config)
    return {ours: places[name] for name, (ours, _) in wanted.items()}


def _is_rope_table(name: str, place: Place, spec: ModelSpec) -> bool:
    """Whether it is base^(-2i/D), which older versions of transformers saved, and `rope_theta` says already."""
    if not name.endswith(".rotary_emb.inv_freq"):
        return False
    stored = numbers(place.file.data(name), place.file.tensors[name].dtype).reshape(-1)
    wanted = spec.rope_base ** -(np.arange(0, spec.head_dim, 2) / spec.head_dim)
    return stored.shape == wanted.shape and bool(np.allclose(stored, wanted, rtol=2**-7, atol=0))


def _check_tied_head(places: Mapping[str, Place], config: HfConfig) -> None:
    """A file may hold the head although it is tied; then it must be the embedding, which is used."""
    head, embedding = places.get("lm_head.weight"), places["model.embed_tokens.weight"]
    if not config.is_tied or head is None:
        return
    if not np.array_equal(head.file.data(head.name), embedding.file.data(embedding.name)):
        raise ModelFileError("lm_head.weight is not the embedding, though config.json ties them (tie_word_embeddings)")


def _wanted(config: HfConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Our name and the shape of each tensor of the files."""
    spec = config.spec
    width, query, key = spec.embedding_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (width,), "post_attention_layernorm": (width,),
        "self_attn.q_proj": (query, width), "self_attn.k_proj": (key, width), "self_attn.v_proj": (key, width),
        "self_attn.o_proj": (width, query),
        "mlp.gate_proj": (spec.ffn_size, width), "mlp.up_proj": (spec.ffn_size, width),
        "mlp.down_proj": (width, spec.ffn_size),
    }  # fmt: skip
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("token_embd.weight", (spec.vocab_size, width)),
        "model.norm.weight": ("output_norm.weight", (width,)),
    }
    if not config.is_tied:
        wanted["lm_head.weight"] = ("output.weight", (spec.vocab_size, width))
    for layer in range(spec.num_layers):
        for name, ours in _LAYER.items():
            there, here = f"model.layers.{layer}.{name}", f"blk.{layer}.{ours}"
            wanted[f"{there}.weight"] = (f"{here}.weight", shapes[name])
            if name.rpartition(".")[2] in config.biased:
                wanted[f"{there}.bias"] = (f"{here}.bias", shapes[name][:1])
    return wanted
