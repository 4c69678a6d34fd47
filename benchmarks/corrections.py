"""The figures of a correction beside what they have to be, on the real model.

Run: python -m benchmarks.corrections [--model M] [--samples N] [--json]      (minutes; leave the machine alone)
"""

from __future__ import annotations

from benchmarks.report import Report, parser
from unsay import Model, load
from unsay.benchmark.correct import CorrectResult, correct
from unsay.benchmark.forks import ForkResult, fork

_CONTEXTS = (512, 2048, 8000)
_MAX_STOP_P99_US = 217.0
_MAX_P50_US = 10.0
_MAX_FORK_BYTES = 2_000_000
_PAGE_TOKENS = 16
_SAME = 1.5
"""A cost counts as independent of the context while the longest context costs at most this much more."""


def main() -> None:
    """Print every figure and every target, and whether it was met."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--samples", type=int, default=200)
    args = made.parse_args()
    report = Report(args)
    with load(args.model) as model:
        results = [_measure(report, model, context, args.samples) for context in _CONTEXTS]
        for result in results:
            _judge_context(report, result)
        _judge_growth(report, results)
        _judge_forks(report, fork(model, context=2000, num_forks=1000))


def _measure(report: Report, model: Model, context: int, samples: int) -> CorrectResult:
    result = correct(model, context=context, samples=samples)
    report.add("correction", result)
    return result


def _judge_context(report: Report, result: CorrectResult) -> None:
    where = f"context {result.context}, load {result.load:.1f}"
    _say(report, f"{where}: stop in decode p99, us", result.stop_decode.p99_us, _MAX_STOP_P99_US)
    _say(report, f"{where}: stop in prefill p99, us", result.stop_prefill.p99_us, _MAX_STOP_P99_US)
    _say(report, f"{where}: rollback p50, us", result.rollback.p50_us, _MAX_P50_US)
    _say(report, f"{where}: fork p50, us", result.fork.p50_us, _MAX_P50_US)
    _say(report, f"{where}: tokens computed beyond those injected", result.computed - result.injected, _PAGE_TOKENS)


def _judge_growth(report: Report, results: list[CorrectResult]) -> None:
    first, last = results[0], results[-1]
    _say(report, "rollback, longest over shortest context", last.rollback.p50_us / first.rollback.p50_us, _SAME)
    _say(report, "fork, longest over shortest context", last.fork.p50_us / first.fork.p50_us, _SAME)


def _judge_forks(report: Report, result: ForkResult) -> None:
    report.add("forks", result)
    most_bytes = max(result.added_bytes, result.allocated_bytes)
    _say(report, f"{result.forks} forks: bytes allocated", most_bytes, _MAX_FORK_BYTES)
    _say(report, f"{result.forks} forks: KV pages", result.added_pages, 0)


def _say(report: Report, what: str, found: float, limit: float) -> None:
    report.add(what, found=found, at_most=limit, is_met=found <= limit)


if __name__ == "__main__":
    main()
