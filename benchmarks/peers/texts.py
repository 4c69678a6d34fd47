"""The token ids everybody is given, made from text so that encoding it again gives the same ids."""

from __future__ import annotations

from dataclasses import dataclass

from unsay.session.tokenizer import Tokenizer

_PARAGRAPH = (
    "The harbour lay quiet that morning, and the boats that had come in before dawn were already unloaded. A clerk went"
    " from one to the next with a book under his arm, wrote down what each of them had brought, and asked about the"
    " weather further out. Nobody could tell him much. The wind had turned twice in the night, once at two and once a"
    " little after four, and since then there had been none at all.\n"
)

FUNCTION = """def load_rows(path, limit):
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number == limit:
                break
            name, _, value = line.rstrip().partition(",")
            rows.append((name.strip(), float(value)))
    return rows
"""
EDIT = f"The function:\n\n{FUNCTION}\nThe same function, with `limit` renamed to `most`:\n\n{FUNCTION[:20]}"
"""An edit: most of what follows stands above already."""


@dataclass(frozen=True, slots=True)
class Correction:
    """An answer to `text` is cut to `kept` tokens, and goes on behind `injection`."""

    text: str
    kept: int
    injection: str


RECORD = Correction(
    'A JSON record of a person with name, age, address and phone numbers:\n\n{\n  "name": "', 0, "Maria"
)
"""What follows the correction is mostly what was taken back."""
PROSE = Correction("Write a short paragraph about how bread rises.\n\nBread rises because", 12, " simply")
"""What follows says something else."""

NUM_INJECTED = 12
_INJECTION = " No, wait: a smaller tool is enough here. Use"
"""As many tokens as that in SmolLM2's vocabulary, more in a smaller one."""


def injection(tokenizer: Tokenizer) -> str:
    """The beginning of a correction, NUM_INJECTED tokens long."""
    ends = range(len(_INJECTION), 0, -1)
    return next(_INJECTION[:end] for end in ends if len(tokenizer.encode(_INJECTION[:end])) == NUM_INJECTED)


def english(tokenizer: Tokenizer, num_tokens: int, start: int = 0) -> list[int]:
    """`num_tokens` ids of English text from token `start` of it on."""
    paragraph = tokenizer.encode(_PARAGRAPH)
    repeated = paragraph * -(-(start + num_tokens) // len(paragraph))
    return repeated[start : start + num_tokens]


def stable(tokenizer: Tokenizer, num_tokens: int) -> tuple[str, list[int]]:
    """A text of at most `num_tokens` tokens, hardly fewer, and its ids."""
    for length in range(num_tokens, 0, -1):
        ids = english(tokenizer, length)
        text = tokenizer.decode(ids)
        if tokenizer.encode(text) == ids:
            return text, ids
    raise AssertionError("no beginning of the text encodes to itself")
