"""transformers judges the front ends: the same logits from a directory, an exported program, and vLLM's protocol."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import unsay
from tests.compiler.frontend.transformers_models import (
    CONTEXT,
    KINDS,
    logits_of,
    model_of,
    saved,
    some_ids,
    store_past_in_half,
)
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.frontend.source import import_model, open_model
from unsay.compiler.frontend.torch_export import import_torch_export
from unsay.compiler.frontend.vllm import vllm_signature
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.pipeline import TENSOR_PIPELINE
from unsay.compiler.verify.validate import run_validated
from unsay.errors import RequestError, UnimportableError, UnsupportedError

WITHIN = 1e-4
"""Of float32 logits with a standard deviation of about 1.5."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each architecture in turn."""
    return request.param


@pytest.fixture(scope="module")
def directory(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `save_pretrained` writes, in one file."""
    return saved(model_of(kind), tmp_path_factory.mktemp("hf") / kind)


def test_the_graph_of_a_directory_has_the_logits_of_transformers(kind: str, directory: Path) -> None:
    ids = some_ids(1, 64)
    step = import_model(directory)
    (logits,) = evaluate(step.graph, {"tokens": ids[0].numpy(), "rows": np.arange(64)}, step.weights)
    assert np.abs(logits - logits_of(model_of(kind), ids)[0].numpy()).max() < WITHIN


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_computed_with_as_they_are(tmp_path: Path, dtype: torch.dtype) -> None:
    """Activations are float32, as of a model whose weights are rounded and then float32 again."""
    rounded, ids = copy.deepcopy(model_of("qwen2", num_layers=1)), some_ids(1, 20)
    for parameter in rounded.parameters():
        parameter.data = parameter.data.to(dtype).float()
    step = import_model(saved(copy.deepcopy(rounded).to(dtype), tmp_path / "half"))
    (logits,) = evaluate(step.graph, {"tokens": ids[0].numpy(), "rows": np.arange(20)}, step.weights)
    assert np.abs(logits - logits_of(rounded, ids)[0].numpy()).max() < WITHIN


def test_a_sharded_directory_holds_the_same_model(kind: str, directory: Path, tmp_path: Path) -> None:
    sharded = saved(model_of(kind), tmp_path / kind, max_shard_size="60KB")
    assert (sharded / "model.safetensors.index.json").is_file() and len(list(sharded.glob("*.safetensors"))) > 2
    one, several = import_model(directory), import_model(sharded)
    assert set(one.weights) == set(several.weights)
    assert all(np.array_equal(one.weights[name], several.weights[name]) for name in one.weights)
    assert open_model(directory).vocab == open_model(sharded).vocab


@pytest.mark.parametrize("spread", [False, True])
def test_the_engine_has_the_logits_of_transformers(kind: str, spread: bool, tmp_path: Path) -> None:
    """Weights as transformers initialises them, and larger ones; keys and values are f32, as the weights are."""
    given, ids = model_of(kind, spread=spread), some_ids(1, 64)
    with unsay.load(saved(given, tmp_path / kind), num_threads=1) as model:
        assert model.spec.kv_format == "f32"
        logits = model.logits(ids[0].tolist())
    assert np.abs(logits - logits_of(given, ids)[0].numpy()).max() < WITHIN


def test_what_pages_of_f16_add_is_their_rounding_alone(kind: str, tmp_path: Path) -> None:
    """docs/numerics.md N9: with the same rounding put into the graph, the evaluator agrees with the engine.

    Weights are as transformers initialises them; benchmarks/importing.py has larger ones too.
    """
    fresh, ids = model_of(kind, spread=False), some_ids(1, 64)
    directory = saved(fresh, tmp_path / kind)
    with unsay.load(directory, num_threads=1, kv="f16") as model:
        logits = model.logits(ids[0].tolist())
    step = import_model(directory)
    store_past_in_half(step.graph)
    (rounded,) = evaluate(step.graph, {"tokens": ids[0].numpy(), "rows": np.arange(64)}, step.weights)
    assert np.abs(logits - rounded).max() < 1e-5
    assert np.abs(logits - logits_of(fresh, ids)[0].numpy()).max() < 3 * WITHIN


# torch.export


def exported(kind: str, ids: torch.Tensor, dynamic: dict[int, Any] | None = None) -> Any:
    """A program of (input_ids) -> logits; of one layer, since torch takes a second for each."""
    shapes = None if dynamic is None else {"input_ids": dynamic, "use_cache": None}
    inputs = {"input_ids": ids, "use_cache": False}
    return torch.export.export(model_of(kind, num_layers=1), (), inputs, dynamic_shapes=shapes)


def test_an_exported_program_has_the_logits_of_transformers(kind: str) -> None:
    ids = some_ids(2, 12)
    imported = import_torch_export(exported(kind, ids))
    verify(imported.graph)
    wanted = logits_of(model_of(kind, num_layers=1), ids).numpy()
    (logits,) = evaluate(imported.graph, {"input_ids": ids.numpy()}, imported.weights)
    assert np.abs(logits - wanted).max() < WITHIN
    run_validated(imported.graph, TENSOR_PIPELINE)
    kinds = [operation.kind for operation in imported.graph.operations]
    assert kinds.count("rms_norm") + kinds.count("add_rms_norm") == 3, "found again in what torch spells out"
    (logits,) = evaluate(imported.graph, {"input_ids": ids.numpy()}, imported.weights)
    assert np.abs(logits - wanted).max() < WITHIN


def test_a_dynamic_program_has_them_at_every_batch_and_length(kind: str) -> None:
    sizes = {0: torch.export.Dim("b", max=8), 1: torch.export.Dim("t", max=CONTEXT)}
    imported = import_torch_export(exported(kind, some_ids(2, 12), sizes), names={"input_ids": ("B", "T")})
    verify(imported.graph)
    free = {dim.name: (dim.low, dim.high) for dim in imported.graph.dims.values() if dim.formula is None}
    assert {name: high for name, (_, high) in free.items()} == {"B": 8, "T": CONTEXT}
    for shape in ((1, 1), (2, 12), (3, 41)):
        ids = some_ids(*shape, seed=shape[1])
        (logits,) = evaluate(imported.graph, {"input_ids": ids.numpy()}, imported.weights)
        assert np.abs(logits - logits_of(model_of(kind, num_layers=1), ids).numpy()).max() < WITHIN, shape
    with pytest.raises(RequestError):
        evaluate(imported.graph, {"input_ids": some_ids(9, 3).numpy()}, imported.weights)
    text = print_graph(imported.graph)
    assert print_graph(parse(text)) == text


class _Step(torch.nn.Module):
    """(ids, keys, values) -> (logits, keys, values): one layer's past_key_values as plain tensors."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        past = transformers.DynamicCache(config=self.model.config)
        past.update(keys, values, 0)
        output = self.model(ids, past_key_values=past, use_cache=True)
        (layer,) = output.past_key_values.layers
        return output.logits, layer.keys, layer.values


def test_past_key_values_go_in_and_come_out() -> None:
    model, ids = model_of("llama", num_layers=1), some_ids(2, 12)
    with torch.no_grad():
        before, after = (model(ids[:, :size], use_cache=True) for size in (8, 12))
    past = before.past_key_values.layers[0]
    given = {"ids": ids[:, 8:], "keys": past.keys.clone(), "values": past.values.clone()}
    imported = import_torch_export(torch.export.export(_Step(model), tuple(given.values())))
    made = evaluate(imported.graph, {name: array.numpy() for name, array in given.items()}, imported.weights)
    layer = after.past_key_values.layers[0]
    for ours, theirs in zip(made, (after.logits[:, 8:], layer.keys, layer.values), strict=True):
        assert np.abs(ours - theirs.numpy()).max() < WITHIN


class _Odd(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).real + torch.special.i0(x) + torch.special.i0(x + 1)


def test_every_operation_without_a_rule_is_named_with_its_uses() -> None:
    program = torch.export.export(_Odd(), (torch.ones(4),))
    with pytest.raises(UnimportableError) as caught:
        import_torch_export(program)
    problems = " ".join(caught.value.problems)
    assert "aten.special_i0.default (2 times)" in problems and "fft" in problems


class _Use(torch.nn.Module):
    def __init__(self, use: Any) -> None:
        super().__init__()
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(x)


def imported_use(use: Any, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """A function of one tensor: what the import gives, and what torch does."""
    program = torch.export.export(_Use(use), (x,))
    imported = import_torch_export(program)
    verify(imported.graph)
    (y,) = evaluate(imported.graph, {"x": x.numpy()}, imported.weights)
    return y, use(x).numpy()


USES: dict[str, Any] = {
    "promotion": lambda x: x * torch.arange(4) + (x > 0) * 2 - 1,
    "alpha": lambda x: torch.add(x, x, alpha=3) - torch.rsub(x, 2.5),
    "compare": lambda x: torch.where((x >= 0.5) & ~(x != x), x, -1.0).masked_fill(x == 0, 7.0),
    "logical": lambda x: (x.bool() | (x < 0)).to(torch.int64).cumsum(-1),
    "power": lambda x: x.pow(2) + x.abs().pow(0.5) + torch.pow(2.0, x),
    "shapes": lambda x: torch.stack([x.t(), x.t()], 1).flatten(1).unsqueeze(0).squeeze(0).permute(1, 0)[1:, :-1],
    "pieces": lambda x: torch.cat([*x.split([1, 2], 0), *x.chunk(2, 1)[0].reshape(1, 6)[:, :4].split(1)]).diff(dim=0),
    "nothing": lambda x: torch.cat([x[:, 4:], x], 1).repeat_interleave(2, 0),
    "select": lambda x: x[-1] + x[0] + x.select(1, 2)[0] + x[:, 1:3].contiguous().view(6)[::2][:1],
    "making": lambda x: torch.full_like(x, 3.0) + torch.zeros(4) + x.new_ones(3, 4) + torch.arange(1, 9, 2),
    "triangles": lambda x: torch.tril(x, 1) + torch.triu(x, -1) * 2,
    "reductions": lambda x: x.mean(-1, keepdim=True) + x.sum(0) + x.amax((0, 1)) - x.min() + x.mean(),
    "any and all": lambda x: ((x > 0).any(1, keepdim=True) & (x < 2).all(0)) | (x > 9).any(),
    "argmax": lambda x: x.argmax(-1, keepdim=True) + x.argmax(0),
    "softmax": lambda x: torch.softmax(x, 0) + torch.nn.functional.gelu(x) + torch.nn.functional.silu(x).clamp(-0.1, 1),
    "products": lambda x: torch.addmm(x @ x.t(), x, x.t()) + torch.bmm(x[None], x.t()[None])[0],
    "norms": lambda x: torch.nn.functional.layer_norm(x, (4,)) + torch.nn.functional.rms_norm(x, (4,), eps=1e-5),
    "lookups": lambda x: x[torch.tensor([2, -1])] + x.index_select(0, torch.tensor([0, 1])),
    "two indices": lambda x: x[torch.tensor([[0], [-1]]), torch.tensor([[1, -2, 3]])],
    "causal attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], is_causal=True),
    "grouped heads": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x.expand(6, 3, 4)[None] * 2, x.expand(2, 3, 4)[None], x.expand(2, 3, 4)[None], enable_gqa=True, scale=0.3),
    "halves": lambda x: (x.to(torch.float16) * 3).to(torch.bfloat16).float(),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_each_rule_means_what_torch_does(use: str) -> None:
    x = torch.randn((3, 4), generator=torch.Generator().manual_seed(3))
    ours, theirs = imported_use(USES[use], x)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: torch.nn.functional.dropout(x, 0.5, training=True), "aten.dropout.default with training"),
        (lambda x: x[x > 0], "a size of u0"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "div.Tensor_mode"),
        (lambda x: x.to(torch.complex64) * 2, "a tensor of torch.complex64"),
    ],
)  # fmt: skip
def test_a_use_that_no_rule_knows_is_refused_by_name(use: Any, message: str) -> None:
    program = torch.export.export(_Use(use), (torch.ones(3, 4),))
    with pytest.raises(UnsupportedError, match=message):
        import_torch_export(program)


# the protocol of vLLM


def test_prefill_and_decode_through_the_protocol_of_vllm_are_those_of_transformers(kind: str, directory: Path) -> None:
    """The caches too: keys and values of every position are what transformers keeps as past_key_values."""
    spec, ids = open_model(directory).spec, some_ids(1, 24)
    forward = vllm_signature(import_model(directory), spec)
    verify(forward.graph)
    run_validated(forward.graph, TENSOR_PIPELINE)
    with torch.no_grad():
        wanted = model_of(kind)(ids, use_cache=True)
    shape = (2, 5, 16, spec.num_kv_heads, spec.head_dim)
    caches = [np.full(shape, 7.0, np.float32) for _ in range(spec.num_layers)]
    block_table = np.array([3, 1], np.int32)
    for positions in (np.arange(19), *(np.array([position]) for position in range(19, 24))):
        given = {f"kv_cache.{layer}": cache for layer, cache in enumerate(caches)}
        given |= {"input_ids": ids[0].numpy()[positions], "positions": positions, "block_table": block_table}
        logits, *caches = evaluate(forward.graph, given, forward.weights)
        assert np.abs(logits - wanted.logits[0].numpy()[positions]).max() < WITHIN
    for layer, cache in enumerate(caches):
        held = cache[:, block_table].reshape(2, 32, spec.num_kv_heads, spec.head_dim)
        theirs = wanted.past_key_values.layers[layer]
        for ours, past in zip(held, (theirs.keys, theirs.values), strict=True):
            assert np.abs(ours[:24].swapaxes(0, 1) - past[0].numpy()).max() < WITHIN
        assert (cache[:, [0, 2, 4]] == 7.0).all(), "blocks of others are left alone"
