"""Tokens a second of decoding and of reading a prompt, on one and on two threads, beside what memory allows.

Run: python -m benchmarks.decode [--model M] [--tokens N] [--json]      (minutes; leave the machine alone meanwhile)

The bytes a token needs are all packed weights and the keys and values of its context; the limit is the tokens a second
if reading them from memory were all there is to do, with the read bandwidth of the same number of threads.
"""

from __future__ import annotations

from benchmarks.report import Report, parser
from unsay import hub
from unsay.benchmark.hardware import read_bandwidth
from unsay.benchmark.throughput import decode, prefill
from unsay.compiler.compile import compile_model
from unsay.core import PAGE_TOKENS
from unsay.default_target import default_target
from unsay.image import ImageFiles, Manifest
from unsay.model import open_image

_CONTEXTS = (1, 512, 2048)
_PROMPTS = (64, 512, 2048)
_THREADS = (1, 2)


def main() -> None:
    """Print both for every context and number of threads."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, default=100, help="tokens to decode at each context")
    args = made.parse_args()
    report = Report(args)
    files = compile_model(hub.resolve(args.model), target=default_target())
    for num_threads in _THREADS:
        _measure(report, files, num_threads, args.tokens)


def _measure(report: Report, files: ImageFiles, num_threads: int, num_tokens: int) -> None:
    manifest = Manifest.from_json(files.manifest.read_text())
    bandwidth = read_bandwidth(num_threads)
    where = f"{manifest.target}, {num_threads} threads"
    with open_image(files, num_threads=num_threads, speculate=False) as model:
        for context in _CONTEXTS:
            kv_bytes = manifest.spec.kv_layout.page_bytes // PAGE_TOKENS * (context + num_tokens // 2)
            token_bytes = manifest.weights_bytes + kv_bytes
            result = decode(
                model, context=context, num_sessions=1, num_tokens=num_tokens,
                weights_bytes=token_bytes, read_bandwidth=bandwidth,
            )  # fmt: skip
            report.add(f"decode, {where}", result, bytes_a_token=token_bytes, read_bandwidth=bandwidth)
        for length in _PROMPTS:
            report.add(f"prefill, {where}", prefill(model, num_tokens=length, repeats=3))


if __name__ == "__main__":
    main()
