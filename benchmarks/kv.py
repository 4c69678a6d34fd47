"""Formats of keys and values side by side: bytes a token, decoding at some contexts, perplexity of real text.

Run: python -m benchmarks.kv [--model M] [--context N] [--tokens N] [--text-tokens N] [--json]   (minutes)

All formats are loaded in one process and take turns, a token each, so that a busy machine slows all alike. `times_f16`
is the median over the rounds of f16's milliseconds over this format's: above 1 it is faster than f16. `attention_bytes`
are the keys and values that a token reads. `perplexity_off_percent` is to f16, on Northanger Abbey in windows of 512.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from functools import partial
from time import perf_counter

from benchmarks.report import Report, parser
from tests.accuracy.agreement import TEXT
from unsay import Model, load
from unsay.benchmark.contexts import computed
from unsay.evaluation import perplexity
from unsay.isa.kv import KV_FORMATS

_CONTEXTS = (512, 2048)


def main() -> None:
    """Print a result for each format and context, then the perplexities."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--context", type=int, action="append", help="repeatable (default: 512 and 2048)")
    made.add_argument("--tokens", type=int, default=40, help="tokens to decode at each context")
    made.add_argument("--text-tokens", type=int, default=4096, help="tokens of text; 0 leaves perplexity out")
    args = made.parse_args()
    report = Report(args)
    with ExitStack() as stack:
        models = {kv: stack.enter_context(load(args.model, kv=kv, speculate=False)) for kv in KV_FORMATS}
        for context in args.context or _CONTEXTS:
            _decode(report, models, context, args.tokens)
        if args.text_tokens:
            _perplexities(report, models, args.text_tokens)


def _decode(report: Report, models: dict[str, Model], context: int, num_tokens: int) -> None:
    sessions = {kv: computed(model, context, 4, temperature=0.0) for kv, model in models.items()}
    streams = {kv: session.stream(max_tokens=num_tokens) for kv, session in sessions.items()}
    samples: dict[str, list[float]] = {kv: [] for kv in models}
    for _ in range(num_tokens):
        for kv, stream in streams.items():
            started = perf_counter()
            next(stream)
            samples[kv].append(1e3 * (perf_counter() - started))
    for kv, model in models.items():
        ratios = [f16 / own for f16, own in zip(samples["f16"], samples[kv], strict=True)]
        token_bytes = model.spec.kv_layout.token_bytes
        report.add(
            f"decode, context {context}, {kv}", token_bytes=token_bytes, attention_bytes=token_bytes * context,
            median_ms=statistics.median(samples[kv]), best_ms=min(samples[kv]), times_f16=statistics.median(ratios),
        )  # fmt: skip
    for session in sessions.values():
        session.close()


def _perplexities(report: Report, models: dict[str, Model], num_tokens: int) -> None:
    text, found = TEXT.read_text(encoding="utf-8"), dict[str, float]()
    for kv, model in models.items():
        progress = partial(_tell, kv)
        found[kv] = perplexity(model, model.tokenize(text)[:num_tokens], context=512, progress=progress).perplexity
        off = 100 * (found[kv] / found["f16"] - 1)
        report.add(f"perplexity, {num_tokens} tokens, {kv}", perplexity=found[kv], perplexity_off_percent=off)


def _tell(kv: str, stage: str, done: int, total: int) -> None:
    print(f"{stage} {kv}: {done} of {total} tokens", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
