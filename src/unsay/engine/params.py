"""Sampling parameters as people give them: what is allowed, and what an error says of what is not."""

from __future__ import annotations

from typing import Any, cast

from unsay.core import SamplingParams
from unsay.engine.noise import NUM_SEEDS
from unsay.errors import RequestError


def changed(params: SamplingParams, fields: dict[str, Any]) -> SamplingParams:
    """The params with these fields; RequestError names one that does not exist."""
    for name in fields:
        if name not in params._fields:
            raise RequestError(f"there is no sampling parameter {name!r}; there are: {', '.join(params._fields)}")
    return params._replace(**fields)


def validate(params: SamplingParams, vocab_size: int) -> None:
    """Raise RequestError if a field is outside what is allowed, naming the field, the value and the range."""
    _check_number("temperature", params.temperature, 0.0, 100.0, "0 is greedy")
    _check_number("top_p", params.top_p, 0.0, 1.0, "1 is off")
    _check_number("min_p", params.min_p, 0.0, 1.0, "0 is off")
    _check_number("repetition_penalty", params.repetition_penalty, 0.01, 100.0, "1 is off")
    _check_number("presence_penalty", params.presence_penalty, -100.0, 100.0, "0 is off")
    _check_number("frequency_penalty", params.frequency_penalty, -100.0, 100.0, "0 is off")
    _check_integer("top_k", params.top_k, 0, 2**31 - 1, "0 is off, more than the vocabulary keeps all")
    _check_integer("seed", params.seed, 0, NUM_SEEDS - 1, "there is no 'random' value: draw one yourself")
    _check_integer("max_tokens", params.max_tokens, 1, 2**31 - 1, "the context may end an answer sooner")
    _check_bias(params.logit_bias, vocab_size)
    _check_stop(params.stop)
    if not isinstance(params.ignore_eos, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"ignore_eos is {params.ignore_eos!r}: it must be True or False")


def _check_number(name: str, value: object, low: float, high: float, hint: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}: it must be a number in {low:g}..{high:g} ({hint})")


def _check_integer(name: str, value: object, low: int, high: int, hint: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}: it must be an integer in {low}..{high} ({hint})")


def _check_bias(bias: object, vocab_size: int) -> None:
    if bias is None:
        return
    if not isinstance(bias, dict):
        raise RequestError(
            f"logit_bias is {bias!r}: it must be a dictionary from token id to bias, as logit_bias={{5: -1.0}}"
        )
    for token_id, value in cast(dict[object, object], bias).items():
        _check_integer("logit_bias token id", token_id, 0, vocab_size - 1, "the vocabulary")
        _check_number(f"logit_bias of token {token_id}", value, -1000.0, 1000.0, "-1000 bans, 0 is off")


def _check_stop(stop: object) -> None:
    if not isinstance(stop, tuple) or not all(isinstance(text, str) and text for text in stop):  # pyright: ignore
        raise RequestError(f"stop is {stop!r}: it must be a tuple of non-empty strings, as stop=('END',)")
