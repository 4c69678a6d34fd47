"""Sessions of a wanted length to measure on."""

from __future__ import annotations

from typing import Any

from unsay.errors import RequestError
from unsay.model import Model
from unsay.session.session import Session

_PARAGRAPH = (
    "The harbour lay quiet that morning, and the boats that had come in before dawn were already unloaded. A clerk went"
    " from one to the next with a book under his arm, wrote down what each of them had brought, and asked about the"
    " weather further out. Nobody could tell him much. The wind had turned twice in the night, once at two and once a"
    " little after four, and since then there had been none at all.\n"
)


def token_ids(model: Model, num_tokens: int) -> list[int]:
    """`num_tokens` ids of English text."""
    paragraph = model.tokenize(_PARAGRAPH)
    return (paragraph * -(-num_tokens // len(paragraph)))[:num_tokens]


def prompt(model: Model, num_tokens: int, num_unread: int, **params: Any) -> Session:
    """A session with a context of very nearly `num_tokens` tokens, the last `num_unread` of them not computed yet.

    A text cut between tokens may encode to a few more. Raises RequestError where the model has no room for it.
    """
    limit = model.spec.context_length
    if not 1 <= num_tokens < limit:
        raise RequestError(f"a context of {num_tokens} tokens: {model.spec.name} takes 1..{limit - 1}")
    session = model.session(ignore_eos=True, **params)
    ids = token_ids(model, num_tokens)
    start = max(0, num_tokens - num_unread)
    for part in filter(None, (ids[:start], ids[start:])):
        if len(session.token_ids):
            session.logits()
        session.append(model.detokenize(part))
    return session


def computed(model: Model, num_tokens: int, answer_tokens: int, **params: Any) -> Session:
    """The same, with an answer of `answer_tokens` tokens: everything is computed."""
    session = prompt(model, num_tokens, num_tokens, **params)
    session.generate(max_tokens=answer_tokens)
    return session
