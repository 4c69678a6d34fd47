"""An LLM inference engine that can take words back.

import unsay
model = unsay.load("smollm2:135m")
chat = model.session(seed=7)
chat.user("Name a prime number.")
for event in chat.stream():
    print(event.text, end="", flush=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unsay import errors

if TYPE_CHECKING:
    from unsay.core import SamplingParams, TokenEvent
    from unsay.model import Model, load, load_tokenizer
    from unsay.session.session import Session

__all__ = ["Model", "SamplingParams", "Session", "TokenEvent", "errors", "load", "load_tokenizer"]

_HOMES = {
    "Model": "unsay.model",
    "SamplingParams": "unsay.core",
    "Session": "unsay.session.session",
    "TokenEvent": "unsay.core",
    "load": "unsay.model",
    "load_tokenizer": "unsay.model",
}
"""Where the public names live; imported when first used, so that `unsay --help` needs neither NumPy nor a tokenizer."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'unsay' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
