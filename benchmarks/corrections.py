"""The figures of a correction beside what they have to be, on the real model.

Run: python -m benchmarks.corrections [--model M] [--samples N]      (some minutes; leave the machine alone meanwhile)
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from unsay import Model, load
from unsay.benchmark.correct import CorrectResult, correct
from unsay.benchmark.forks import ForkResult, fork
from unsay.benchmark.hardware import describe

_CONTEXTS = (512, 2048, 8000)
_MAX_STOP_P99_US = 217.0
_MAX_P50_US = 10.0
_MAX_FORK_BYTES = 2_000_000
_PAGE_TOKENS = 16
_SAME = 1.5
"""A cost counts as independent of the context while the longest context costs at most this much more."""


def main() -> None:
    """Print every figure and every target, and whether it was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--samples", type=int, default=200)
    args = parser.parse_args()
    print(json.dumps(asdict(describe())))
    with load(args.model) as model:
        results = [_measure(model, context, args.samples) for context in _CONTEXTS]
        for result in results:
            _judge_context(result)
        _judge_growth(results)
        _judge_forks(fork(model, context=2000, num_forks=1000))


def _measure(model: Model, context: int, samples: int) -> CorrectResult:
    result = correct(model, context=context, samples=samples)
    print(json.dumps(asdict(result)), flush=True)
    return result


def _judge_context(result: CorrectResult) -> None:
    where = f"context {result.context}, load {result.load:.1f}"
    _say(f"{where}: stop in decode p99, us", result.stop_decode.p99_us, _MAX_STOP_P99_US)
    _say(f"{where}: stop in prefill p99, us", result.stop_prefill.p99_us, _MAX_STOP_P99_US)
    _say(f"{where}: rollback p50, us", result.rollback.p50_us, _MAX_P50_US)
    _say(f"{where}: fork p50, us", result.fork.p50_us, _MAX_P50_US)
    _say(f"{where}: tokens computed beyond those injected", result.computed - result.injected, _PAGE_TOKENS)


def _judge_growth(results: list[CorrectResult]) -> None:
    first, last = results[0], results[-1]
    _say("rollback, longest over shortest context", last.rollback.p50_us / first.rollback.p50_us, _SAME)
    _say("fork, longest over shortest context", last.fork.p50_us / first.fork.p50_us, _SAME)


def _judge_forks(result: ForkResult) -> None:
    print(json.dumps(asdict(result)))
    _say(f"{result.forks} forks: bytes allocated", max(result.added_bytes, result.allocated_bytes), _MAX_FORK_BYTES)
    _say(f"{result.forks} forks: KV pages", result.added_pages, 0)


def _say(what: str, found: float, limit: float) -> None:
    verdict = "met   " if found <= limit else "MISSED"
    print(f"{verdict} {what}: {found:,.1f} (at most {limit:,.1f})")


if __name__ == "__main__":
    main()
