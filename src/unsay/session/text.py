"""Text of token ids: the answer as shown, where a text stands in it, and what two contexts differ in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from unsay.errors import RequestError
from unsay.kv.node import num_shared
from unsay.session.detokenizer import Detokenizer
from unsay.session.tokenizer import Tokenizer


class Diff(NamedTuple):
    """Two contexts: the tokens they begin with alike, then the text only one of them has."""

    num_common: int
    removed: str
    added: str


def answer_text(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str], is_final: bool = True) -> str:
    """The text of an answer, up to a stop string; is_final: also a character that is not whole, as U+FFFD."""
    text = Detokenizer(tokenizer, stop)
    shown = "".join(map(text.push, ids))
    return shown + text.flush() if is_final else shown


def find_before(tokenizer: Tokenizer, ids: Sequence[int], text: object) -> tuple[int, str]:
    """The token that holds the first character of the first occurrence of `text`, and what it holds before that.

    Where that would be part of a character, the token before is taken instead. RequestError if `text` is not there.
    """
    if not isinstance(text, str):
        raise RequestError(f"rollback before {text!r}: it must be text; to= takes a token index")
    pieces = [b"" if i in tokenizer.control_ids else tokenizer.token_bytes(i) for i in ids]
    place = b"".join(pieces).find(text.encode("utf-8", "surrogatepass")) if text else -1
    if place < 0:
        raise RequestError(f"{text!r} is not in the answer: rollback before a text that is, or to a token index")
    ends = list(itertools.accumulate(map(len, pieces)))
    index = next(i for i, end in enumerate(ends) if end > place)
    while True:
        start = ends[index] - len(pieces[index])
        before = b"".join(pieces[index:])[: place - start]
        if _is_text(before):
            return index, before.decode()
        index -= 1


def diff_of(tokenizer: Tokenizer, old: Sequence[int], new: Sequence[int]) -> Diff:
    """What `new` has that `old` has not, and the other way round."""
    common = num_shared(old, new)
    return Diff(common, tokenizer.decode(old[common:]), tokenizer.decode(new[common:]))


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
