"""The weights of a model file as numbers: those the `gguf` package makes of the same bytes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from unsay.compiler.frontend.arrays import FileWeights
from unsay.compiler.frontend.gguf import open_gguf
from unsay.compiler.frontend.source import import_model, open_model
from unsay.compiler.frontend.vllm import vllm_signature
from unsay.compiler.ir.evaluate import evaluate


def test_every_format_is_what_the_gguf_package_makes_of_it(tiny_variant_path: Path) -> None:
    file = open_gguf(tiny_variant_path)
    weights = FileWeights(file)
    oracle = {tensor.name: tensor for tensor in gguf.GGUFReader(tiny_variant_path).tensors}
    assert set(weights) == set(oracle) and len(weights) == len(oracle)
    for name, tensor in oracle.items():
        ours, wanted = weights[name], gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert ours.shape == file.tensors[name].shape == wanted.shape
        np.testing.assert_array_equal(ours.astype(np.float32), wanted)


def test_a_quantised_file_runs_in_the_protocol_of_vllm_as_in_its_own_graph(tiny_path: Path) -> None:
    step, ids = import_model(tiny_path), np.arange(5, 25)
    (wanted,) = evaluate(step.graph, {"tokens": ids, "rows": np.arange(20)}, step.weights)
    spec = open_model(tiny_path).spec
    forward = vllm_signature(step, spec, block_tokens=8)
    shape = (2, 3, 8, spec.num_kv_heads, spec.head_dim)
    given = {f"kv_cache.{layer}": np.zeros(shape, np.float32) for layer in range(spec.num_layers)}
    given |= {"input_ids": ids, "positions": np.arange(20), "block_table": np.array([2, 0, 1])}
    logits, *_ = evaluate(forward.graph, given, forward.weights)
    np.testing.assert_allclose(logits, wanted, atol=2e-5)
