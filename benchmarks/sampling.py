"""What choosing a token costs beside computing it: a step with and without the output head, then each way of sampling.

Run: python -m benchmarks.sampling [--model M] [--threads N] [--json]        (half a minute)

`head`: a step of B tokens of B sequences that asks for no logits, and one that asks for all B rows, taken in turns.
`sampling`: what a step of one token takes longer for what it notes of its row (all threads), and the CPU microseconds
of choosing from it, in this thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Report, median_cpu_ms, median_ms, parser
from unsay import Model, load
from unsay.core import Batch, Lane, SamplingParams
from unsay.engine.sampler import Sampler
from unsay.runtime.interpreted import ArrayBatch, in_views
from unsay.runtime.scan import is_plain

_TEXT = Path(__file__).parent.parent / "tests" / "data" / "northanger_abbey.txt"
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.5},
    {"temperature": 0.7, "repetition_penalty": 1.1},
    {"temperature": 0.7, "top_k": 40},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 0.7, "min_p": 0.05},
)
_REPEATS = 40


def main() -> None:
    """Print both."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--threads", type=int)
    args = made.parse_args()
    report = Report(args)
    with load(args.model, num_threads=args.threads) as model:
        for num_tokens in (1, 8):
            _head(report, model, num_tokens)
        for settings in _SETTINGS:
            _sampling(report, model, settings)


def _head(report: Report, model: Model, num_tokens: int) -> None:
    executor = model.engine.machine.executor
    samples: dict[int, list[float]] = {0: [], num_tokens: []}
    for _ in range(_REPEATS):
        for num_rows, taken in samples.items():
            batch = _step(num_tokens, num_rows)
            taken.append(median_ms(lambda: executor.run(batch), 1))  # noqa: B023
    without, with_head = (float(np.median(taken)) for taken in samples.values())
    report.add(f"head, {num_tokens} tokens", without_ms=without, with_ms=with_head, share=1 - without / with_head)


def _sampling(report: Report, model: Model, settings: dict[str, Any]) -> None:
    """Rows of a text's tokens: a step that notes what it sees of its row, and the choice."""
    executor, ids = model.engine.machine.executor, model.tokenize(_TEXT.read_text(encoding="utf-8")[20_000:21_500])
    sampler, rows = Sampler(executor.scan), iter(ids[-_REPEATS - 1 :])
    chosen: list[float] = []
    extra: list[float] = []
    for turn in range(_REPEATS):
        params = SamplingParams(seed=turn, **settings)
        lane = Lane(1, params, len(ids), ids, 0, is_plain=is_plain(params))
        batch = _step(1, 1, next(rows))._replace(lanes=(lane,))
        without = median_ms(lambda: executor.run(batch._replace(lanes=())), 1)  # noqa: B023
        extra.append(median_ms(lambda: executor.run(batch), 1) - without)  # noqa: B023
        logits = executor.run(batch)
        chosen.append(median_cpu_ms(lambda: sampler.sample(logits, batch), 1))  # noqa: B023
    name = ", ".join(f"{name} {value}" for name, value in settings.items())
    report.add(f"sampling, {name}", in_step_us=1e3 * float(np.median(extra)), cpu_us=1e3 * float(np.median(chosen)))


def _step(num_tokens: int, num_rows: int, token_id: int = 0) -> Batch:
    """The first token of each sequence, each on a page of its own; nothing is committed. Ids count up from token_id."""
    numbers = np.arange(num_tokens, dtype=np.int32)
    return in_views(ArrayBatch(numbers + token_id, numbers * 0, numbers, numbers[:, None], numbers[:num_rows]))


if __name__ == "__main__":
    main()
