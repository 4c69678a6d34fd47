"""Architectures: each file builds the unfused graph of one, from the model's shape and the types of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.types import Dim, TensorType
from unsay.compiler.models import llama, qwen2
from unsay.compiler.models.tensors import Tensors
from unsay.errors import UnsupportedError
from unsay.image import ModelSpec
from unsay.isa.formats import ROW_GROUP

Build: TypeAlias = Callable[[Graph, ModelSpec, Tensors], None]

ARCHITECTURES: dict[str, Build] = {"llama": llama.build, "qwen2": qwen2.build}


def build_graph(spec: ModelSpec, tensors: Mapping[str, TensorType], max_tokens: int, max_rows: int) -> Graph:
    """The graph of a model file: `tensors` are its tensors by name, matrices [N, K] (N outputs, K inputs).

    Raises UnsupportedError for an unknown architecture, for sizes the kernels do not do, and for a tensor of the file
    that the architecture has no place for (leaving it out would give other logits); ModelFileError for a tensor that is
    missing or of a wrong shape.
    """
    build = ARCHITECTURES.get(spec.architecture)
    if build is None:
        raise UnsupportedError(
            f"architecture {spec.architecture!r} is not supported, these are: {', '.join(ARCHITECTURES)}"
        )
    _check_sizes(spec)
    graph = Graph(spec.architecture, (Dim("T", 1, max_tokens), Dim("R", 1, max_rows)))
    weights = Tensors(graph, tensors)
    build(graph, spec, weights)
    weights.check_all_used()
    return graph


def _check_sizes(spec: ModelSpec) -> None:
    """Every row of activations is written in whole groups."""
    sizes = {"embedding": spec.embedding_size, "feed-forward": spec.ffn_size, "head": spec.head_dim}
    for name, size in sizes.items():
        if size % ROW_GROUP:
            raise UnsupportedError(f"{name} size {size} is not supported: it must be a multiple of {ROW_GROUP}")
