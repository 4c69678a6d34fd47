"""A checksum of the logits of 2,000 tokens of a text: one number for a model and a class, whatever computes it.

Run: python -m benchmarks.checksum [--model M] [--tokens N] [--target T] [--json]      (a minute a target)

For every target this CPU runs, or those named: SHA-256 of the logits after each of the first N tokens of Northanger
Abbey, f32 [N][V], computed in steps of 64 tokens and, the last quarter again, one by one. docs/numerics.md has what
SmolLM2 comes to. Ends with 1 where two of a kind differ.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.report import Report, parser
from tests.accuracy.agreement import TEXT
from tests.exactness.checksum import targets_here
from unsay import Model, load
from unsay.isa.classes import FAST
from unsay.vm.context import Context

KINDS: dict[str, dict[str, Any]] = {
    "f16 pages": {"kv": "f16"},
    "int8 pages": {"kv": "int8"},
    "fast class, int8 pages": {"prefill": FAST, "kv": "int8"},
}
_CHUNK = 64


def main() -> None:
    """Print a number for each target and kind."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, default=2000)
    made.add_argument("--target", action="append", help="repeatable (default: all that run here)")
    args = made.parse_args()
    report, found = Report(args), dict[str, set[str]]()
    for target in args.target or targets_here():
        for kind, options in KINDS.items():
            with load(args.model, target=target, speculate=False, **options) as model:
                ids = model.tokenize(TEXT.read_text(encoding="utf-8"))[: args.tokens]
                steps, last = Steps(model, ids, options.get("prefill") == FAST), len(ids) // 4
                whole = steps.checksum([_CHUNK] * -(-len(ids) // _CHUNK))
                mixed = steps.checksum(
                    [*[_CHUNK] * ((len(ids) - last) // _CHUNK), (len(ids) - last) % _CHUNK, *[1] * last]
                )
            found.setdefault(kind, set()).update((whole, mixed))
            report.add(f"{target}, {kind}", tokens=len(ids), sha256=whole, one_by_one=mixed)
    if any(len(numbers) > 1 for numbers in found.values()):
        sys.exit("the same tokens came to different logits: a fault of unsay; please report it with this output")


@dataclass(frozen=True, slots=True)
class Steps:
    """Ways to compute these tokens, in the fast class or the exact one."""

    model: Model
    ids: list[int]
    is_fast: bool

    def checksum(self, sizes: list[int]) -> str:
        """Of the logits that pieces of these many tokens give, or less, with nothing kept of any before."""
        digest, context, start = hashlib.sha256(), Context(self.model.tree.root(salt=str(sizes).encode())), 0
        try:
            for size in sizes:
                piece = self.ids[start : start + size]
                context.append(piece, self.is_fast)
                digest.update(self.model.engine.compute(context, len(piece)).data)
                start += size
        finally:
            context.release()
        return digest.hexdigest()


if __name__ == "__main__":
    main()
