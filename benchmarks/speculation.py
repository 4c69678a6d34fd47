"""Decoding with and without guesses: the same tokens, and how many a second, in three kinds of text.

Run: python -m benchmarks.speculation [--model M] [--tokens N] [--threads N] [--json]        (a minute or two)

copy: a passage that stands in the context twice is written a third time. corrected: an answer is rolled back to its
beginning, a word is changed, and it goes on; what was taken back is there to guess from. free: an answer to a question.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

from benchmarks.report import Report, parser
from unsay import Model, Session, load

_PASSAGE = (
    "The keeper of the lighthouse wrote down every ship that passed, its colours, its heading and the hour. On quiet "
    "nights he copied the list of the day before, since nothing new had come, and so the book grew thick with ships. "
)
_QUESTION = "How does bread rise?"
_REPEATS = 5


def main() -> None:
    """Print tokens a second of both ways, and check that the tokens are the same."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, default=64)
    made.add_argument("--threads", type=int)
    args = made.parse_args()
    report = Report(args)
    with (
        load(args.model, num_threads=args.threads, speculate=False) as plain,
        load(args.model, num_threads=args.threads) as guessing,
    ):
        for name, begin in (("copy", _copy), ("corrected", _corrected), ("free", _free)):
            _compare(report, name, begin, plain, guessing, args.tokens)


def _compare(
    report: Report, name: str, begin: Callable[[Model, int], Session], plain: Model, guessing: Model, num_tokens: int
) -> None:
    runs = [(_run(begin, plain, num_tokens), _run(begin, guessing, num_tokens)) for _ in range(_REPEATS)]
    assert all(without[0] == with_guesses[0] for without, with_guesses in runs), "guesses changed a token"
    without, with_guesses = (statistics.median(run[way][1] for run in runs) for way in (0, 1))
    report.add(
        name, tokens=num_tokens, plain_per_s=num_tokens / without, guessing_per_s=num_tokens / with_guesses,
        faster=without / with_guesses,
    )  # fmt: skip


def _run(begin: Callable[[Model, int], Session], model: Model, num_tokens: int) -> tuple[list[int], float]:
    """The tokens, and the seconds from the first to the last of them."""
    with begin(model, num_tokens) as session:
        stream = session.stream(num_tokens + 1, ignore_eos=True)
        next(stream)
        started = perf_counter()
        for _ in stream:
            pass
        return session.answer_ids, perf_counter() - started


def _copy(model: Model, num_tokens: int) -> Session:
    session = model.session(temperature=0.0)
    session.append(f"{_PASSAGE}\n\n{_PASSAGE}\n\n{_PASSAGE[:60]}")
    return session


def _corrected(model: Model, num_tokens: int) -> Session:
    session = _free(model, num_tokens)
    session.generate(num_tokens + 16, ignore_eos=True)
    session.rollback(to=12)
    session.inject(" simply")
    return session


def _free(model: Model, num_tokens: int) -> Session:
    session = model.session(temperature=0.0)
    session.user(_QUESTION)
    return session


if __name__ == "__main__":
    main()
