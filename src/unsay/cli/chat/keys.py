"""Bytes from a terminal as keys."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """name: "text" for characters typed or pasted, else what the key is called ("left", "ctrl-c")."""

    name: str
    text: str = ""


_CONTROLS = {
    0x01: "home", 0x02: "left", 0x03: "ctrl-c", 0x04: "ctrl-d", 0x05: "end", 0x06: "right", 0x08: "backspace",
    0x0A: "enter", 0x0B: "ctrl-k", 0x0D: "enter", 0x0E: "down", 0x10: "up", 0x15: "ctrl-u", 0x17: "ctrl-w",
    0x1A: "ctrl-z", 0x7F: "backspace",
}  # fmt: skip
_SEQUENCES = {
    "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end",
    "1~": "home", "3~": "delete", "4~": "end", "7~": "home", "8~": "end",
}  # fmt: skip
_SEQUENCE = re.compile(rb"\x1b(?:\[([0-9;?]*[ -/]*[@-~])|O([A-Za-z]))")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*|O)?\Z")
_PASTE_START, _PASTE_END = b"\x1b[200~", b"\x1b[201~"


class KeyReader:
    """Cuts a stream of bytes into keys; what is unfinished waits for the next bytes."""

    def __init__(self) -> None:
        self._pending = b""
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def is_unfinished(self) -> bool:
        """Whether an escape sequence may go on; a lone ESC key looks the same until time has passed."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[Key]:
        """Keys that are complete now."""
        self._pending += data
        keys: list[Key] = []
        while self._pending and (found := self._next()) is not None:
            key, length = found
            self._pending = self._pending[length:]
            if key is not None:
                keys.append(key)
        return keys

    def finish(self) -> list[Key]:
        """Nothing more came: an ESC that waits is the key itself."""
        is_escape = self._pending == b"\x1b"
        if not self._pending.startswith(_PASTE_START):
            self._pending = b""
        return [Key("escape")] if is_escape else []

    def _next(self) -> tuple[Key | None, int] | None:
        """The first key and its length in bytes; None while it is unfinished; (None, n) for what is no key."""
        data = self._pending
        if data[0] == 0x1B:
            return self._next_sequence(data)
        if data[0] < 0x20 or data[0] == 0x7F:
            name = _CONTROLS.get(data[0])
            return (Key(name) if name else None), 1
        text = self._text.decode(data[:1])
        return (Key("text", text) if text else None), 1

    def _next_sequence(self, data: bytes) -> tuple[Key | None, int] | None:
        if data.startswith(_PASTE_START):
            return _pasted(data)
        if _UNFINISHED.match(data):
            return None
        found = _SEQUENCE.match(data)
        if found is None:
            return Key("escape"), 1
        name = _SEQUENCES.get((found[1] or found[2]).decode("ascii"))
        return (Key(name) if name else None), found.end()


def _pasted(data: bytes) -> tuple[Key | None, int] | None:
    """Pasted text is one key, line ends and all, so that it cannot press Enter."""
    end = data.find(_PASTE_END)
    if end < 0:
        return None
    text = data[len(_PASTE_START) : end].decode("utf-8", errors="replace")
    return Key("text", text.replace("\r\n", "\n").replace("\r", "\n")), end + len(_PASTE_END)
