"""The terminal in raw mode: keys as they are pressed, and a way to be woken; always put back as it was."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

from unsay.cli.chat.keys import Key, KeyReader

_ESCAPE_WAIT_S = 0.03
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_LFLAG = 3
_MIN_COLUMNS = 20


class Terminal:
    """Use in a `with` block. Ctrl-C and Ctrl-Z arrive as keys; SIGTERM and SIGHUP leave the block by SystemExit."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._saved = termios.tcgetattr(self._input)
        self._reader = KeyReader()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self.is_closed = False

    def __enter__(self) -> Terminal:
        for number, handler in ((signal.SIGWINCH, self._on_resize), (signal.SIGTERM, _exit), (signal.SIGHUP, _exit)):
            self._handlers[number] = signal.signal(number, handler)
        self._set_raw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError, termios.error):  # the terminal may be gone
            self._restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)

    @property
    def width(self) -> int:
        """Columns of the terminal now."""
        return max(_MIN_COLUMNS, os.get_terminal_size(self._input).columns)

    def write(self, text: str) -> None:
        """Show text at once."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def wake(self) -> None:
        """Make `wait` return; may be called from any thread."""
        try:
            os.write(self._wake_write, b"w")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    def wait(self) -> list[Key]:
        """Sleep until a key is pressed, the window changes or `wake` is called; returns the keys, maybe none."""
        ready, _, _ = select.select([self._input, self._wake_read], [], [])
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return self._read() if self._input in ready else []

    def suspend(self) -> None:
        """Ctrl-Z: give the terminal back, stop, and take it again when the shell resumes us."""
        self._restore()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._set_raw()

    def _read(self) -> list[Key]:
        data = self._read_bytes()
        keys = self._reader.feed(data)
        while self._reader.is_unfinished and select.select([self._input], [], [], _ESCAPE_WAIT_S)[0] and data:
            data = self._read_bytes()
            keys += self._reader.feed(data)
        return keys + (self._reader.finish() if self._reader.is_unfinished else [])

    def _read_bytes(self) -> bytes:
        try:
            data = os.read(self._input, 4096)
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
        return data

    def _set_raw(self) -> None:
        mode = termios.tcgetattr(self._input)
        mode[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(self._input, termios.TCSADRAIN, mode)
        self.write(_PASTE_ON)

    def _restore(self) -> None:
        self.write(_PASTE_OFF)
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._saved)

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        self.wake()


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
