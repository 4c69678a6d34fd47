"""JSON from strangers: an object names a key once, numbers are finite, text is Unicode, nesting is bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn, cast

from unsay.errors import ModelFileError, ModelNotFoundError

MAX_JSON_BYTES = 1 << 25
"""The largest tokenizer.json of the models we run has 17 MB."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; raises ModelNotFoundError or ModelFileError."""
    value = parse_json(path.name, read_text(path))
    if not isinstance(value, dict):
        raise ModelFileError(f"{path.name} is no JSON object")
    return cast("dict[str, Any]", value)


def read_text(path: Path) -> bytes:
    """All bytes of a file of at most MAX_JSON_BYTES; raises ModelNotFoundError or ModelFileError."""
    try:
        if not path.is_file():
            raise ModelNotFoundError(f"there is no file {path}")
        with path.open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_JSON_BYTES:
        raise ModelFileError(f"{path.name} has more than {MAX_JSON_BYTES} bytes, the most that is read")
    return content


def parse_json(what: str, content: bytes) -> object:
    """The value of a JSON text. `what` begins the message of the ModelFileError it raises."""
    try:
        text = content.decode()
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ModelFileError(f"{what}: nested too deep") from error
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{what} is not UTF-8: {error.reason} at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise ModelFileError(f"{what} holds half of a surrogate pair, which is no text") from error
    except ValueError as error:
        raise ModelFileError(f"{what} is no JSON: {str(error)[:160]}") from error
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:80]!r} occurs twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
