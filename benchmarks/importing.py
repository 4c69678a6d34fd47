"""How far imported models are from transformers: the largest difference of a logit, on tiny random models.

Run: python -m benchmarks.importing [--only ROW] [--json]      (a minute; needs torch and transformers)

Each architecture twice: with weights as transformers initialises them, and with larger ones ("spread"). `evaluator`
runs the graph of a Hugging Face directory in float32; `rounded` the same with keys and values rounded to float16;
`engine` runs the directory as `unsay run` does, with keys and values in f32, and `engine_f16` with `--kv f16`;
`torch_export` the graph of the exported program. Differences are to transformers, in millionths; `f16_to_rounded` is
between `engine_f16` and `rounded`; `deviation` is that of the logits. Then other architectures, as initialised, through
torch.export alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

import unsay
from benchmarks.report import Report, parser
from tests.compiler.frontend.transformers_models import (
    KINDS,
    logits_of,
    model_of,
    saved,
    some_ids,
    store_past_in_half,
)
from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.source import import_model
from unsay.compiler.frontend.torch_export import import_torch_export
from unsay.compiler.ir.evaluate import evaluate

OTHERS: dict[str, dict[str, object]] = {
    "Qwen3": {"head_dim": 16}, "Gemma": {"head_dim": 16}, "Gemma2": {"head_dim": 16}, "Phi3": {"pad_token_id": 0},
    "GPTNeoX": {}, "Olmo2": {}, "StableLm": {}, "Cohere": {}, "Granite": {}, "SmolLM3": {"pad_token_id": 0},
}  # fmt: skip
SIZES: dict[str, object] = {
    "vocab_size": 293, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip

_WEIGHTS = ("as initialised", "spread")
IDS = some_ids(1, 64)
ROW = IDS[0].numpy()


def main() -> None:
    """Print two rows for each architecture that is imported whole, and one for each of the others."""
    whole = {f"{kind}, {weights}": (kind, weights == "spread") for kind in KINDS for weights in _WEIGHTS}
    made = parser(__doc__)
    made.add_argument("--only", action="append", choices=[*whole, *OTHERS], help="a row; repeatable (default: all)")
    args = made.parse_args()
    report = Report(args)
    for name in args.only or (*whole, *OTHERS):
        report.add(name, **(_differences(*whole[name]) if name in whole else _difference(name)))


def _difference(name: str) -> dict[str, float]:
    config = getattr(transformers, f"{name}Config")(**SIZES, **OTHERS[name])
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    wanted = logits_of(model, IDS)[0].numpy()
    return {"deviation": float(wanted.std()), "torch_export_millionths": _millionths(_exported(model), wanted)}


def _differences(kind: str, spread: bool) -> dict[str, float]:
    model = model_of(kind, spread=spread)
    wanted = logits_of(model, IDS)[0].numpy()
    with tempfile.TemporaryDirectory() as name:
        directory = saved(model, Path(name) / kind)
        step = import_model(directory)
        evaluated = _step(step)
        store_past_in_half(step.graph)
        rounded = _step(step)
        computed = {kv: _engine(directory, kv) for kv in ("auto", "f16")}
    made = {"evaluator": evaluated, "torch_export": _exported(model), "rounded": rounded, "engine": computed["auto"],
            "engine_f16": computed["f16"]}  # fmt: skip
    figures = {f"{name}_millionths": _millionths(y, wanted) for name, y in made.items()}
    return {
        "deviation": float(wanted.std()),
        **figures,
        "f16_to_rounded_millionths": _millionths(computed["f16"], rounded),
    }


def _engine(directory: Path, kv: str) -> NDArray[np.float32]:
    with unsay.load(directory, kv=kv) as model:
        return model.logits(ROW.tolist())


def _exported(model: Any) -> NDArray[np.float32]:
    program = torch.export.export(model, (), {"input_ids": IDS, "use_cache": False})
    imported = import_torch_export(program)
    (logits,) = evaluate(imported.graph, {"input_ids": IDS.numpy()}, imported.weights)
    return logits[0]


def _step(step: Imported) -> NDArray[np.float32]:
    (logits,) = evaluate(step.graph, {"tokens": ROW, "rows": np.arange(len(ROW))}, step.weights)
    return logits


def _millionths(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return 1e6 * float(np.abs(a - b).max())


if __name__ == "__main__":
    main()
