"""The classes prompts may be computed in, side by side: tokens a second at some lengths, and what the fast one costs.

Run: python -m benchmarks.prefill [--model M] [--tokens N] [--rounds N] [--text-tokens N] [--json]   (minutes)

Both are loaded in one process and take turns, a prompt each, so that a busy machine slows both. `times_exact` is the
median over the rounds of the exact class's time over the fast one's, `cpu_times_exact` that of processor time, which
other programs disturb less. Accuracy is that of the fast class against the exact one, on Northanger Abbey in windows of
512: how much further off the perplexity is, the KL divergence of next-token distributions, and how often both have the
same first choice.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report, parser
from tests.accuracy.agreement import TEXT
from unsay import Model, SamplingParams, load
from unsay.isa.classes import EXACT, FAST, PREFILLS

_WINDOW = 512


def main() -> None:
    """Print the speed at each length, then the accuracy."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, action="append", help="repeatable (default: 512 and 2048)")
    made.add_argument("--rounds", type=int, default=7, help="prompts of each class and length")
    made.add_argument("--text-tokens", type=int, default=8192, help="tokens of text; 0 leaves accuracy out")
    made.add_argument("--threads", type=int, help="threads to compute with")
    args = made.parse_args()
    report = Report(args)
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(load(args.model, prefill=name, num_threads=args.threads)) for name in PREFILLS
        }
        ids = models[EXACT].tokenize(TEXT.read_text(encoding="utf-8"))
        for length in args.tokens or (512, 2048):
            _speed(report, models, ids, length, args.rounds)
        if args.text_tokens:
            _accuracy(report, models, ids[: args.text_tokens])


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


def _accuracy(report: Report, models: dict[str, Model], ids: list[int]) -> None:
    loss = dict.fromkeys(models, 0.0)
    divergence, same, count = 0.0, 0, 0
    for start in range(0, len(ids) - 1, _WINDOW):
        window = ids[start : start + _WINDOW]
        rows = {name: _log_softmax(model.logits(window)[:-1]) for name, model in models.items()}
        for name, log_probs in rows.items():
            loss[name] -= float(log_probs[np.arange(len(window) - 1), window[1:]].sum())
        exact, fast = rows[EXACT], rows[FAST]
        divergence += float((np.exp(exact) * (exact - fast)).sum())
        same += int((exact.argmax(axis=-1) == fast.argmax(axis=-1)).sum())
        count += len(window) - 1
    perplexity = {name: float(np.exp(total / count)) for name, total in loss.items()}
    report.add(
        f"accuracy, {count} tokens", exact_perplexity=perplexity[EXACT], fast_perplexity=perplexity[FAST],
        perplexity_off_percent=100 * (perplexity[FAST] / perplexity[EXACT] - 1),
        mean_kl_millinats=1e3 * divergence / count,
        top1_percent=100 * same / count,
    )  # fmt: skip


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


if __name__ == "__main__":
    main()
