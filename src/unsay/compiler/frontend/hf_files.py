"""The files of a Hugging Face directory.

    model.safetensors                  all tensors, or
    model.safetensors.index.json       {"weight_map": {tensor: shard}}, and the shards beside it
    config.json, tokenizer.json ...    TEXTS

A warm start needs no more than this, so nothing else of the front end is imported here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn, cast

from unsay.compiler.frontend.json_text import read_json
from unsay.errors import ModelFileError, ModelNotFoundError, UnsupportedError

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TEXTS = (CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MAX_SHARDS = 1 << 10

_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def is_huggingface(path: Path) -> bool:
    """Whether the path is a directory with a config.json."""
    return (path / CONFIG).is_file()


def model_files(source: Path) -> tuple[Path, ...]:
    """Every file a model is read from: what it depends on. A file is all there is to itself.

    For a directory, raises ModelNotFoundError, ModelFileError or UnsupportedError.
    """
    if not source.is_dir():
        return (source,)
    texts = [source / name for name in TEXTS if (source / name).is_file()]
    index = [] if (source / SINGLE).is_file() else [source / INDEX]
    return (*texts, *index, *(source / name for name in sorted(shards(source))))


def shards(directory: Path) -> dict[str, set[str] | None]:
    """File names of the weights, and the tensors each must hold; None: any."""
    if (directory / SINGLE).is_file():
        return {SINGLE: None}
    if not (directory / INDEX).is_file():
        _refuse_missing(directory)
    weight_map = read_json(directory / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{INDEX}: weight_map must be an object of tensors and files")
    shards: dict[str, set[str] | None] = {}
    for tensor, shard in cast("dict[str, object]", weight_map).items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise ModelFileError(f"{INDEX}: {tensor[:80]!r} is in {str(shard)[:80]!r}, no .safetensors file beside it")
        names = shards.setdefault(shard, set())
        assert names is not None
        names.add(tensor)
    if len(shards) > MAX_SHARDS:
        raise ModelFileError(f"{INDEX}: {len(shards)} files, the most that is read is {MAX_SHARDS}")
    return shards


def _refuse_missing(directory: Path) -> NoReturn:
    for name in _PICKLES:
        if (directory / name).exists():
            raise UnsupportedError(
                f"{directory}: {name} is a pickle, which can run code; save the model with safe_serialization=True"
            )
    raise ModelNotFoundError(f"{directory} has neither {SINGLE} nor {INDEX}")
