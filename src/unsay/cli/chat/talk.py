"""The chat without its screen: lines in, lines and answers out. The terminal and scripts both drive this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsay.cli.chat import show
from unsay.session.detokenizer import Detokenizer

if TYPE_CHECKING:
    from unsay.model import Model
    from unsay.session.session import Session


@dataclass(frozen=True, slots=True)
class Reply:
    """What a line led to. lines: to be shown; streams: the answer goes on now; is_correction: after a change of it."""

    lines: tuple[str, ...] = ()
    streams: bool = False
    is_correction: bool = False


class Talk:
    """The sessions of one chat ("branches") and which of them is talked to."""

    def __init__(self, model: Model, session: Session) -> None:
        self.model = model
        self.branches = [session]
        self.session = session
        self.is_over = False

    @property
    def expects_correction(self) -> bool:
        """Whether the next text goes into the answer, which is open, instead of being the next message."""
        return self.session.finish in (None, "interrupt") and bool(self.session.token_ids)

    @property
    def tokens(self) -> list[str]:
        """The text each token of the answer completed; "" for one inside a character, or a control token."""
        text = Detokenizer(self.model.tokenizer)
        return [text.push(token_id) for token_id in self.session.answer_ids]

    def do(self, line: str) -> Reply:
        """Obey a line: a /command, a correction, or a message. Raises UnsayError if it cannot be done."""
        if line.startswith("/") and not line.startswith("//"):
            from unsay.cli.chat.commands import obey

            return obey(self, line[1:])
        text = line[1:] if line.startswith("//") else line
        if self.expects_correction:
            return self.correct(text)
        return self.say(text) if text.strip() else Reply()

    def say(self, text: str) -> Reply:
        """The next message."""
        self.session.user(text)
        return Reply(streams=True)

    def correct(self, text: str) -> Reply:
        """Put a text at the end of the open answer, and let it go on; "" only lets it go on."""
        if text:
            self.session.inject(text)
        correction = self.session.correction
        return Reply(streams=True, is_correction=correction is not None and correction.first_token_s is None)

    def back(self, to: int | None = None, before: str | None = None) -> Reply:
        """Take the answer back from token `to` on, or from the text `before` on."""
        if before is None:
            self.session.rollback(to=to)
        else:
            self.session.rollback(before=before)
        end = show.excerpt(self.session.answer)
        lines = (f"the answer ends with: {end}" if end else "the answer is empty",)
        return Reply((*lines, "type what comes next, or press Enter to let the model go on"))

    def where(self) -> Reply:
        """Where the session stands, after a jump."""
        length = len(self.session.token_ids)
        state = "open" if self.expects_correction else "closed"
        return Reply((f"{length} tokens, the answer is {state} and ends with: {show.excerpt(self.session.answer)}",))

    def fork(self) -> Reply:
        """Go on in a copy of the session."""
        self.session = self.session.fork()
        self.branches.append(self.session)
        return Reply((f"this is branch {len(self.branches)} now, a copy of the one before; /switch goes back",))

    def close(self) -> None:
        """Release every session."""
        for session in self.branches:
            session.close()
