"""SmolLM2 against the float64 oracle on the whole text (28,000 tokens): perplexity, KL divergence, top-1 agreement.

Run: python -m benchmarks.accuracy [--model M] [--chunks N] [--json]      (about ten minutes on two cores)
"""

from __future__ import annotations

from benchmarks.report import Report, parser
from tests.accuracy.agreement import TEXT, chunks, measure
from tests.oracle import Oracle
from unsay import hub, load


def main() -> None:
    """Print the agreement after each stretch of 512 tokens, and the limits."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--chunks", type=int, help="stretches to measure, spread over the text (default: all)")
    args = made.parse_args()
    report = Report(args)
    path = hub.resolve(args.model)
    with load(path) as model:
        documents = chunks(model.tokenize(TEXT.read_text(encoding="utf-8")), 512)
        if args.chunks:
            documents = documents[:: len(documents) // args.chunks][: args.chunks]
        for total in measure(model, Oracle(path), documents):
            report.add(
                "so far", tokens=total.num_tokens, oracle_perplexity=total.oracle_perplexity,
                perplexity_off_percent=100 * total.perplexity_ratio, mean_kl_millinats=1e3 * total.mean_kl,
                top1_percent=100 * total.top1,
            )  # fmt: skip
    report.add("limits", perplexity_off_percent=0.5, mean_kl_millinats=5.0, top1_percent=97.0)


if __name__ == "__main__":
    main()
