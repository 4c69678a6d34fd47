"""The events of one request with their text: where ids become characters, and where stop strings end an answer."""

from __future__ import annotations

from collections.abc import Iterator

from unsay.core import TokenEvent
from unsay.engine.engine import Engine
from unsay.engine.request import Request
from unsay.session.detokenizer import Detokenizer
from unsay.session.tokenizer import Tokenizer


class TextStream:
    """One request, from its submission, with the first event, to its end. Close it, or iterate it to the end."""

    __slots__ = ("_engine", "_is_submitted", "_text", "request")

    def __init__(self, engine: Engine, tokenizer: Tokenizer, request: Request) -> None:
        self.request = request
        self._engine = engine
        self._text = _continue_text(tokenizer, request)
        self._is_submitted = False

    def __iter__(self) -> Iterator[TokenEvent]:
        while (event := self.next()) is not None:
            yield event

    def next(self) -> TokenEvent | None:
        """The next event; None after the last, or when the request was withdrawn."""
        if not self._is_submitted:
            self._is_submitted = True
            self._engine.submit(self.request)
        event = self._engine.next_event(self.request)
        if event is None:
            return None
        text, finish = self._text.push(event.token_id), event.finish
        if self._text.stopped:
            finish = "stop"
            self.close()
        elif finish is not None:
            text += self._text.flush()
        return TokenEvent(event.index, event.token_id, text, event.logprob, finish)

    def close(self) -> None:
        """Give up what is not made yet; idempotent."""
        self._engine.withdraw(self.request)


def _continue_text(tokenizer: Tokenizer, request: Request) -> Detokenizer:
    """Text as it stands after the part of the answer that is already there."""
    text = Detokenizer(tokenizer, request.params.stop)
    text.rebuild(request.history[request.answer_start :])
    return Detokenizer(tokenizer, request.params.stop) if text.stopped else text
