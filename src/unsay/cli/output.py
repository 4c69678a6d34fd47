"""Everything verbs write goes through here: results to stdout, the rest to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from unsay.errors import RequestError, UnsayError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from unsay.core import Progress
    from unsay.image import ModelSpec


class OutputError(UnsayError):
    """Standard output takes nothing: it is closed, or its disk is full. A reader that left is no error (`| head`)."""


def write(text: str) -> None:
    """Text to stdout at once, as it is."""
    write_line(text, end="")
    flush()


def write_line(text: str = "", end: str = "\n") -> None:
    """A line to stdout."""
    with _output_errors():
        sys.stdout.write(text + end)


def flush() -> None:
    """Hand over what was written. The last chance to hear that it could not be."""
    with _output_errors():
        sys.stdout.flush()


def write_json(value: object) -> None:
    """One JSON value on a line of its own, at once."""
    write(json.dumps(value, ensure_ascii=False) + "\n")


def chosen_fields(spec: ModelSpec) -> dict[str, object]:
    """What was chosen for a model when its image was made, for JSON."""
    return {"kv": spec.kv_format, "kv_token_bytes": spec.kv_layout.token_bytes, "prefill": spec.prefill}


def write_file(path: Path, data: bytes) -> None:
    """The whole of a file; raises RequestError."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}; name another place") from error


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Files into a directory, which is made if it is missing; raises RequestError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make {directory}: {error.strerror}; name another place") from error
    for name, data in files.items():
        write_file(directory / name, data)


def write_error(text: str) -> None:
    """A line to stderr."""
    flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def visible(text: str) -> str:
    """The text with control characters made visible, so that no model can steer the terminal."""
    return "".join(_visible(character) for character in text)


@contextmanager
def progress_bars() -> Generator[Progress | None]:
    """While a model is fetched and compiled: a bar on stderr, gone at the end; None where stderr is no terminal."""
    with _ended_by_ctrl_c():
        if not sys.stderr.isatty():
            yield None
            return
        from unsay.cli.bars import Bars

        with Bars() as bars:
            yield bars.report


@contextmanager
def _ended_by_ctrl_c() -> Generator[None]:
    """A Ctrl-C inside ends the process; without this it would look for garbage in all of a compilation first, twice."""
    import gc
    import signal
    import threading

    def interrupt(*_: object) -> NoReturn:
        gc.freeze()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _output_errors() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to standard output: {error.strerror}; send it to another place") from error


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    return "\ufffd" if 0x80 <= code < 0xA0 else character
