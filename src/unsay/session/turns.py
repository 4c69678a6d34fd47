"""Turns of a chat as token ids, one turn at a time: what is already in the context is never rendered again."""

from __future__ import annotations

import os
from typing import NamedTuple

from unsay.errors import TemplateError
from unsay.session.template import ChatTemplate, Span
from unsay.session.tokenizer import Tokenizer


class Turns(NamedTuple):
    """Writes user turns with the model's template. system: text of the system message, None for the template's own."""

    template: ChatTemplate
    tokenizer: Tokenizer
    system: str | None

    def first(self, text: str) -> list[int]:
        """Ids of the first turn: system message, user message, start of the answer."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        spans = self.template.spans([*system, {"role": "user", "content": text}], True)
        return self.tokenizer.encode_spans(spans)

    def next(self, text: str) -> list[int]:
        """Ids of what follows an answer: its end, user message, start of the next answer."""
        answer = f"{int.from_bytes(os.urandom(16)):039d}"
        spans = self.template.spans(
            [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": answer},
                {"role": "user", "content": text},
            ],
            True,
        )
        return self.tokenizer.encode_spans(_after(spans, answer))


def _after(spans: list[Span], mark: str) -> list[Span]:
    """The spans after the text `mark`."""
    for index, (text, is_special) in enumerate(spans):
        _, found, rest = text.partition(mark)
        if found:
            return [(rest, is_special), *spans[index + 1 :]]
    raise TemplateError("the chat template drops or alters an answer, so a second message cannot follow one")
