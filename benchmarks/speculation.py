"""Decoding with and without guesses: the same tokens, and how many a second, in five kinds of text.

Run: python -m benchmarks.speculation [--model M] [--tokens N] [--threads N] [--json]        (two minutes)

copied: a function is written again with a name changed. record: a name in a JSON record is corrected, and what was
taken back is there to guess from. prose: the same with a sentence, which goes on in another way. corrected: the same in
chats. free: answers in chats. The texts of the first three are those of benchmarks.compare.

steps: of the answer with guesses. fewest: steps if it were always known where to copy from, and how much, among all
places where the last token stood before: no drafter that copies needs fewer. At the end, for each number of guesses
(which says how many last tokens stood there before): how often so many were made, how many of all were right, and how
often the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from benchmarks.peers import texts
from benchmarks.report import Report, parser
from unsay import Model, Session, load
from unsay.engine.drafter import MAX_GUESSES, Drafter

_QUESTIONS = (
    "How does bread rise?",
    "Explain what a hash table is and when to use one.",
    "Write a Python function that reads a CSV file and returns the rows.",
    "What should I pack for a week in the mountains?",
)
_REPEATS = 5


@dataclass
class Guessed:
    """What was guessed in one answer: (number of guesses, how many were right) of each step that had some."""

    steps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    dropped: list[int] = field(default_factory=list[int])


class _Recorded(Drafter):
    """Notes what it proposed and what came of it."""

    def __init__(self, history: list[int], dropped: Sequence[int], told: Guessed) -> None:
        super().__init__(history, dropped)
        self._told = told
        told.dropped = list(dropped)

    def propose(self, most: int) -> list[int]:
        self._guesses = super().propose(most)
        return self._guesses

    def learn(self, num_right: int) -> None:
        super().learn(num_right)
        self._told.steps.append((len(self._guesses), num_right))


@dataclass
class Answer:
    """One answer, and the seconds from its first token to its last."""

    before: list[int]
    ids: list[int]
    seconds: float
    guessed: Guessed


def main() -> None:
    """Print tokens a second of both ways, and check that the tokens are the same."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, default=64)
    made.add_argument("--threads", type=int)
    args = made.parse_args()
    report = Report(args)
    steps: list[tuple[int, int]] = []
    with (
        load(args.model, num_threads=args.threads, speculate=False) as plain,
        load(args.model, num_threads=args.threads) as guessing,
    ):
        for name, begin in _TEXTS:
            steps += _compare(report, name, begin, plain, guessing, args.tokens)
    for count in sorted({count for count, _ in steps}):
        right = [right for made, right in steps if made == count]
        report.add(
            f"{count} guesses", made=len(right), right=sum(right) / (count * len(right)),
            first_right=sum(map(bool, right)) / len(right),
        )  # fmt: skip


def _compare(
    report: Report, name: str, begin: Callable[[Model, int], Session], plain: Model, guessing: Model, num_tokens: int
) -> list[tuple[int, int]]:
    runs = [(_run(begin, plain, num_tokens), _run(begin, guessing, num_tokens)) for _ in range(_REPEATS)]
    assert all(without.ids == with_guesses.ids for without, with_guesses in runs), "guesses changed a token"
    without, with_guesses = (statistics.median(run[way].seconds for run in runs) for way in (0, 1))
    answer = runs[0][1]
    report.add(
        name, tokens=num_tokens, plain_per_s=num_tokens / without, guessing_per_s=num_tokens / with_guesses,
        faster=without / with_guesses, steps=num_tokens - sum(right for _, right in answer.guessed.steps),
        fewest=_fewest_steps(answer),
    )  # fmt: skip
    return answer.guessed.steps


def _run(begin: Callable[[Model, int], Session], model: Model, num_tokens: int) -> Answer:
    with begin(model, num_tokens) as session:
        guessed = Guessed()
        make = model.engine.drafter
        if make([]) is not None:
            model.engine.drafter = lambda history, dropped=(): _Recorded(history, dropped, guessed)
        before = session.token_ids
        stream = session.stream(num_tokens + 1, ignore_eos=True)
        next(stream)
        started = perf_counter()
        for _ in stream:
            pass
        seconds = perf_counter() - started
        model.engine.drafter = make
        return Answer(before, session.token_ids[len(before) :], seconds, guessed)


def _fewest_steps(answer: Answer) -> int:
    """Each step goes as far as the best copy does, and one token further."""
    text, place, count = [*answer.guessed.dropped, *answer.before, answer.ids[0]], 1, 0
    while place < len(answer.ids):
        wanted = answer.ids[place : place + MAX_GUESSES]
        starts = [at for at in range(1, len(text)) if text[at - 1] == text[-1]]
        taken = 1 + max((_num_equal(text[at:], wanted) for at in starts), default=0)
        text += answer.ids[place : place + taken]
        place += taken
        count += 1
    return count


def _num_equal(a: list[int], b: list[int]) -> int:
    return next(
        (place for place, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b))
    )


def _copied(model: Model, num_tokens: int) -> Session:
    session = model.session(temperature=0.0)
    session.append(texts.EDIT)
    return session


def _dropped(made: texts.Correction) -> Callable[[Model, int], Session]:
    def begin(model: Model, num_tokens: int) -> Session:
        session = model.session(temperature=0.0)
        session.append(made.text)
        return _correct(session, num_tokens, made)

    return begin


def _corrected(question: str) -> Callable[[Model, int], Session]:
    return lambda model, num_tokens: _correct(_free(question)(model, num_tokens), num_tokens, texts.PROSE)


def _free(question: str) -> Callable[[Model, int], Session]:
    def begin(model: Model, num_tokens: int) -> Session:
        session = model.session(temperature=0.0)
        session.user(question)
        return session

    return begin


def _correct(session: Session, num_tokens: int, made: texts.Correction) -> Session:
    session.generate(num_tokens + 16, ignore_eos=True)
    session.rollback(to=made.kept)
    session.inject(made.injection)
    return session


_TEXTS = [
    ("copied", _copied),
    ("record", _dropped(texts.RECORD)),
    ("prose", _dropped(texts.PROSE)),
    *[(f"corrected, {question}", _corrected(question)) for question in _QUESTIONS],
    *[(f"free, {question}", _free(question)) for question in _QUESTIONS],
]


if __name__ == "__main__":
    main()
