"""A model as it comes: a GGUF file or a Hugging Face directory. Here the two become alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from unsay.compiler.frontend import huggingface
from unsay.compiler.frontend.arrays import FileWeights
from unsay.compiler.frontend.describe import check_vocabulary, model_spec, vocab_spec
from unsay.compiler.frontend.gguf import open_gguf
from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.model_file import WeightFile
from unsay.compiler.ir.types import TensorType
from unsay.compiler.limits import LIMITS
from unsay.compiler.models import build_graph
from unsay.image import ModelSpec, VocabSpec
from unsay.isa.classes import EXACT
from unsay.isa.formats import DType
from unsay.isa.kv import AUTO


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, checked and described."""

    file: WeightFile
    spec: ModelSpec
    vocab: VocabSpec


def open_model(source: Path, kv: str = AUTO, prefill: str = EXACT) -> Loaded:
    """Open a model; kv: the format of its KV pages, prefill: the class of its prompts.

    Raises ModelNotFoundError, ModelFileError or UnsupportedError.
    """
    if source.is_dir():
        loaded = Loaded(*huggingface.open_huggingface(source))
    else:
        file = open_gguf(source)
        loaded = Loaded(file, model_spec(file), vocab_spec(file))
        check_vocabulary(file, loaded.spec, loaded.vocab)
    kv_format = _kv_format(loaded.file) if kv == AUTO else kv
    return replace(loaded, spec=loaded.spec._replace(kv_format=kv_format, prefill=prefill))


def _kv_format(file: WeightFile) -> str:
    """Of which nothing is lost that the weights have not lost already."""
    return "f32" if all(tensor.dtype is DType.F32 for tensor in file.tensors.values()) else "f16"


def open_text_side(source: Path) -> VocabSpec:
    """The tokenizer of a model, which may be all there is; raises as `open_model`."""
    return huggingface.open_vocabulary(source) if source.is_dir() else vocab_spec(open_gguf(source))


def import_model(source: Path) -> Imported:
    """The graph of a model, unfused, and its weights by their names in it; raises as `open_model`."""
    loaded = open_model(source)
    types = {name: TensorType(tensor.shape, tensor.dtype) for name, tensor in loaded.file.tensors.items()}
    graph = build_graph(loaded.spec, types, LIMITS.max_tokens, LIMITS.max_rows)
    return Imported(graph, FileWeights(loaded.file))
