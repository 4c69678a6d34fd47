"""The chat on a terminal.

The lowest line of the screen is ours: the line being typed, or the picker. Everything above only ever scrolls up.
An answer streams there; any key stops it, and is the first key of what comes next.
"""

from __future__ import annotations

from unsay.cli.chat import show
from unsay.cli.chat.editor import Editor
from unsay.cli.chat.generation import Generation
from unsay.cli.chat.keys import Key
from unsay.cli.chat.picker import Picker
from unsay.cli.chat.talk import Reply, Talk
from unsay.cli.chat.terminal import Terminal
from unsay.cli.output import visible
from unsay.core import TokenEvent
from unsay.errors import UnsayError

_DIM = ("\x1b[2m", "\x1b[22m")
_CLEAR_LINE = "\r\x1b[2K"
_SHOWN_TOKENS = 120
_SHOWN_CHARACTERS = 200
_PICK_HELP = "Enter or text: from here on anew | Esc: leave it"


class Interactive:
    """One chat, from greeting to end."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._terminal = Terminal()
        self._editor = Editor()
        self._picker: Picker | None = None
        self._begun = ""
        self._keys: list[Key] = []

    def run(self) -> None:
        """Talk until /quit, Ctrl-D or the end of the terminal."""
        with self._terminal:
            self._line(
                f"{self._talk.model.spec.name}: type a message. Any key stops the answer; /help lists the commands."
            )
            while not self._talk.is_over and (line := self._read_line()) is not None:
                self._obey(line)

    # Reading a line

    def _read_line(self) -> str | None:
        """The next line entered; None at the end."""
        while True:
            while self._keys:
                key = self._keys.pop(0)
                if key.name == "ctrl-d" and not self._editor.text:
                    self._line(_CLEAR_LINE)
                    return None
                line = self._press_picking(key) if self._picker else self._press_typing(key)
                if line is not None:
                    return line
            self._draw()
            self._keys += self._terminal.wait()
            if self._terminal.is_closed and not self._keys:
                return None

    def _press_typing(self, key: Key) -> str | None:
        if key.name == "enter":
            self._draw(is_final=True)
            return self._entered()
        if key.name == "ctrl-c":
            self._editor.start()
        elif key.name == "ctrl-z":
            self._terminal.suspend()
        elif key.name in ("left", "up") and not self._editor.text and self._talk.session.answer_ids:
            self._picker = Picker(self._talk.tokens)
        else:
            self._editor.press(key)
        return None

    def _entered(self) -> str:
        """The line; what a pick has begun is none by itself, so Enter right after it lets the answer go on."""
        line, begun = self._editor.enter(), self._begun
        self._begun = ""
        return "" if line == begun else line

    def _press_picking(self, key: Key) -> str | None:
        picker = self._picker
        assert picker is not None
        if picker.press(key):
            return None
        self._picker = None
        if key.name in ("enter", "text"):
            self._pick(picker.index)
        if key.name == "text":
            if key.text.startswith("/"):
                self._editor.start()
            self._editor.press(key)
        return None

    def _pick(self, index: int) -> None:
        """Roll back to a token; white space it began with is typed already, and may be deleted or made a command."""
        token = self._talk.tokens[index]
        self._terminal.write(_CLEAR_LINE)
        self._obey(f"/back {index}")
        self._begun = token[: len(token) - len(token.lstrip(" "))]
        self._editor.start(self._begun)

    def _draw(self, is_final: bool = False) -> None:
        """Draw the lowest line anew; is_final: leave it and go to the next."""
        width = self._terminal.width - 1
        if self._picker is not None:
            label = f"back to {self._picker.index}: "
            room = width - len(label)
            help_text = f"  {_PICK_HELP}" if room > 2 * len(_PICK_HELP) else ""
            view = self._picker.view(room - len(help_text))
            self._terminal.write(f"{_CLEAR_LINE}{label}{view}{_DIM[0]}{help_text}{_DIM[1]}")
            return
        prompt = "fix> " if self._talk.expects_correction else "you> "
        view, column = self._editor.view(width - len(prompt))
        end = "\n" if is_final else f"\r\x1b[{len(prompt) + column}C"
        self._terminal.write(f"{_CLEAR_LINE}{prompt}{view}{end}")

    # Obeying it

    def _obey(self, line: str) -> None:
        try:
            reply = self._talk.do(line)
            for text in reply.lines:
                self._line(text)
            if reply.streams:
                self._stream(reply)
        except UnsayError as error:
            self._line(f"! {error}")

    def _stream(self, reply: Reply) -> None:
        """Show the answer as it comes, until it ends or a key is pressed."""
        answer = _Answer(visible(self._talk.session.answer[-_SHOWN_CHARACTERS:]), waits=reply.is_correction)
        if not answer.waits:
            self._terminal.write(answer.beginning)
        generation = Generation(self._talk.session, self._terminal.wake)
        try:
            while not generation.is_over:
                keys = self._terminal.wait()
                self._show(generation.take(), answer)
                if keys or self._terminal.is_closed:
                    self._stop(generation, answer, keys)
                    return
            self._show(generation.take(), answer)
            generation.take()
        finally:
            generation.stop()
            if not answer.ends_line:
                self._line("")

    def _stop(self, generation: Generation, answer: _Answer, keys: list[Key]) -> None:
        """Stop the answer, and show it with its token positions."""
        seconds = generation.stop()
        self._show(generation.take(), answer)
        answer.ends_line = True
        tokens = self._talk.tokens
        first = max(0, len(tokens) - _SHOWN_TOKENS) // show.MARK_EVERY * show.MARK_EVERY
        self._line(
            f"\n{_DIM[0]}[stopped within {show.duration(seconds)}; the answer and its token positions:]{_DIM[1]}"
        )
        self._line(show.positions(tokens[first:], first, _DIM))
        self._keys += [key for key in keys if key.name != "ctrl-c"]

    def _show(self, events: list[TokenEvent], answer: _Answer) -> None:
        for event in events:
            if answer.waits:
                answer.waits = False
                self._show_truth()
                self._terminal.write(answer.beginning)
            self._terminal.write(visible(event.text))
            answer.ends_line = event.text.endswith("\n") if event.text else answer.ends_line

    def _show_truth(self) -> None:
        if (correction := self._talk.session.correction) is not None:
            self._line(f"{_DIM[0]}{show.truth(correction)}{_DIM[1]}")

    def _line(self, text: str) -> None:
        self._terminal.write(text + "\n")


class _Answer:
    """What of an answer is on the screen.

    beginning: the end of what was there before; waits: it is shown with the first new token, after the line of truth;
    ends_line: the cursor is at the start of a line.
    """

    def __init__(self, beginning: str, waits: bool) -> None:
        self.beginning = beginning
        self.waits = waits
        self.ends_line = False
