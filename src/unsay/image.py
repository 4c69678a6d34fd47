"""The artifact where the two paths meet: what `compiler` writes and `runtime` loads.

An image is a directory of the cache, written whole and renamed into place:

    manifest.json   this module's Manifest
    program.avm     the AVM program (isa.program)
    fast.avm        that of the fast class, where prompts are computed in it (isa.classes)
    code.bin        position-independent machine code for one target, entry points in the manifest; runs as mapped
    vocabulary.bin  the text side (vocabulary.py)
    verified.json   what was proved of each pass that made the program (compiler.verify.validate)

The packed weights lie in a file of their own, shared by the images of all targets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from unsay.errors import CacheError
from unsay.isa.kv import KV_FORMATS, KvLayout

IMAGE_VERSION = 3


class ModelSpec(NamedTuple):
    """Shape of the model, from its file, and the format of its KV pages. Sizes in elements, context_length in tokens.

    rope_pairing: rows of a head of Q and K that rotate together (N8): (2i, 2i + 1) if adjacent, (i, i + D/2) if halves.
    kv_format: what keys and values are kept as, a name of isa.kv.KV_FORMATS. prefill: the class prompts are computed
    in, a name of isa.classes.PREFILLS. Both are chosen when the image is made.
    """

    name: str
    architecture: str
    num_layers: int
    embedding_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    context_length: int
    norm_eps: float
    rope_base: float
    rope_pairing: str = "adjacent"
    kv_format: str = "f16"
    prefill: str = "exact"

    @property
    def kv_layout(self) -> KvLayout:
        """Layout of this model's KV pages."""
        return KvLayout(self.num_layers, self.num_kv_heads, self.head_dim, KV_FORMATS[self.kv_format])


class VocabSpec(NamedTuple):
    """The tokenizer as the model file states it (GGUF `tokenizer.*`), before any library sees it.

    kind: `tokenizer.ggml.model` ("gpt2" is byte-level BPE); pre: `tokenizer.ggml.pre`. tokens: [V] strings;
    token_types: [V] (1 normal, 3 control, 4 user defined, 6 byte); merges: "left right" in rank order.
    Ids are None where the file names none. end_ids: ids that end an answer besides `eos_id` and `eot_id`.
    """

    kind: str
    pre: str
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    unk_id: int | None
    pad_id: int | None
    add_bos: bool
    chat_template: str | None
    end_ids: tuple[int, ...] = ()


class Manifest(NamedTuple):
    """What the runtime must know to run an image.

    target: name of the instruction set `code.bin` was made for. weights: path of the packed weights file, relative
    to the cache; weights_bytes its size. arena_bytes: GLOBAL scratch for steps of up to `max_tokens` tokens on up
    to `max_threads` threads. entry: offset in code.bin of each entry point by name. source_sha256: the model file.
    """

    version: int
    spec: ModelSpec
    target: str
    source_sha256: str
    weights: str
    weights_bytes: int
    arena_bytes: int
    max_tokens: int
    max_threads: int
    entry: dict[str, int]

    def to_json(self) -> str:
        """Text of manifest.json."""
        fields = {**self._asdict(), "spec": self.spec._asdict()}
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read manifest.json; raises CacheError when it is not one of this version."""
        try:
            fields = json.loads(text)
            if fields["version"] != IMAGE_VERSION:
                raise CacheError(f"image of version {fields['version']}, this unsay reads {IMAGE_VERSION}")
            spec = ModelSpec(**fields.pop("spec"))
            return cls(spec=spec, **fields)
        except (ValueError, KeyError, TypeError) as error:
            raise CacheError(f"damaged image manifest: {error}; delete the image to have it made again") from error


class ImageFiles(NamedTuple):
    """Where the files of one image are."""

    directory: Path
    cache_root: Path

    @property
    def manifest(self) -> Path:
        """manifest.json"""
        return self.directory / "manifest.json"

    @property
    def program(self) -> Path:
        """program.avm"""
        return self.directory / "program.avm"

    @property
    def fast_program(self) -> Path:
        """fast.avm"""
        return self.directory / "fast.avm"

    @property
    def code(self) -> Path:
        """code.bin"""
        return self.directory / "code.bin"

    @property
    def vocabulary(self) -> Path:
        """vocabulary.bin"""
        return self.directory / "vocabulary.bin"

    @property
    def verified(self) -> Path:
        """verified.json"""
        return self.directory / "verified.json"
