"""The classes prompts may be computed in, side by side: tokens a second at some lengths, and what the fast one costs.

Run: python -m benchmarks.prefill [--model M] [--tokens N] [--rounds N] [--windows N] [--text FILE] [--json]   (minutes)

Both are loaded in one process and take turns, a prompt each, so that a busy machine slows both. `times_exact` is the
median over the rounds of the exact class's time over the fast one's, `cpu_times_exact` that of processor time, which
other programs disturb less; above 1 it is faster than exact.

Accuracy is that of the fast class against the exact one in windows of 512 tokens, of which the second half is scored:
how much further off the perplexity is, with the standard error of that (both classes see the same tokens), the KL
divergence of next-token distributions, and how often both have the same first choice.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report, parser
from tests.accuracy.agreement import TEXT
from unsay import Model, SamplingParams, load
from unsay.isa.classes import EXACT, FAST, PREFILLS

_WINDOW, _SCORED = 512, 256


def main() -> None:
    """Print the speed at each length, then the accuracy."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, action="append", help="repeatable (default: 512 and 2048)")
    made.add_argument("--rounds", type=int, default=7, help="prompts of each class and length; 0 leaves speed out")
    made.add_argument("--windows", type=int, default=16, help="windows of text; 0 leaves accuracy out")
    made.add_argument("--text", type=Path, default=TEXT, help="text of prompts and windows")
    made.add_argument("--threads", type=int, help="threads to compute with")
    args = made.parse_args()
    report = Report(args)
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(load(args.model, prefill=name, num_threads=args.threads)) for name in PREFILLS
        }
        ids = models[EXACT].tokenize(args.text.read_text(encoding="utf-8"))
        for length in (args.tokens or (512, 2048)) if args.rounds else ():
            _speed(report, models, ids, length, args.rounds)
        if args.windows:
            _accuracy(report, models, [ids[at : at + _WINDOW] for at in range(0, args.windows * _WINDOW, _WINDOW)])


def _speed(report: Report, models: dict[str, Model], ids: list[int], length: int, num_rounds: int) -> None:
    wall: dict[str, list[float]] = {name: [] for name in models}
    cpu: dict[str, list[float]] = {name: [] for name in models}
    for number in range(num_rounds):
        prompt = ids[number * 7 :][:length]
        for name, model in models.items():
            started, started_cpu = perf_counter(), process_time()
            next(model.generate(prompt, SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)))
            wall[name].append(perf_counter() - started)
            cpu[name].append(process_time() - started_cpu)
    for name in models:
        report.add(
            f"prefill {length}, {name}", tokens_per_s=length / statistics.median(wall[name]),
            best_tokens_per_s=length / min(wall[name]),
            times_exact=_times(wall, name), cpu_times_exact=_times(cpu, name),
        )  # fmt: skip


def _times(samples: dict[str, list[float]], name: str) -> float:
    return statistics.median(exact / own for exact, own in zip(samples[EXACT], samples[name], strict=True))


def _accuracy(report: Report, models: dict[str, Model], windows: Sequence[Sequence[int]]) -> None:
    losses: dict[str, list[NDArray[np.float64]]] = {name: [] for name in models}
    divergence: list[NDArray[np.float64]] = []
    same: list[NDArray[np.bool_]] = []
    for rows, targets in _scored(models, windows):
        for name, log_probs in rows.items():
            losses[name].append(-log_probs[np.arange(len(targets)), targets])
        exact, fast = rows[EXACT], rows[FAST]
        divergence.append((np.exp(exact) * (exact - fast)).sum(axis=-1))
        same.append(exact.argmax(axis=-1) == fast.argmax(axis=-1))
    loss = {name: np.concatenate(parts) for name, parts in losses.items()}
    more = loss[FAST] - loss[EXACT]
    report.add(
        f"accuracy, {len(windows)} windows, {len(more)} tokens",
        exact_perplexity=float(np.exp(loss[EXACT].mean())), fast_perplexity=float(np.exp(loss[FAST].mean())),
        perplexity_off_percent=100 * float(np.expm1(more.mean())),
        standard_error_percent=100 * float(more.std(ddof=1)) / len(more) ** 0.5,
        mean_kl_millinats=1e3 * float(np.concatenate(divergence).mean()),
        top1_percent=100 * float(np.concatenate(same).mean()),
    )  # fmt: skip


def _scored(
    models: dict[str, Model], windows: Sequence[Sequence[int]]
) -> Iterator[tuple[dict[str, NDArray[np.float64]], Sequence[int]]]:
    """For each window the log-probabilities [scored, V] of each class, and the tokens they were about."""
    for number, window in enumerate(windows):
        assert len(window) == _WINDOW, "the text has fewer windows"
        context, targets = window[:-1], window[-_SCORED:]
        yield {name: _log_softmax(model.logits(context)[-_SCORED:]) for name, model in models.items()}, targets
        print(f"{number + 1} of {len(windows)} windows", file=sys.stderr, flush=True)


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


if __name__ == "__main__":
    main()
