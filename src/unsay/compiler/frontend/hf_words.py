"""How a tokenizer.json cuts text: the kinds we know, told by its parts; and what it puts in front of a text.

A part that is not recognised is refused by name, down to its keys: a wrong cut shifts ids without a sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from unsay.errors import ModelFileError, UnsupportedError

_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BYTES, _WORDS_AND_BYTES = ("ByteLevel", "words only"), ("ByteLevel", "gpt-2 words")

_KINDS: Mapping[tuple[object, ...], str] = {
    (None, (_WORDS_AND_BYTES,), False): "gpt-2",
    (None, (("Digits", True), _WORDS_AND_BYTES), False): "smollm",
    (None, (("Split", _WORD % r"\p{N}{1,3}"), _BYTES), True): "llama-bpe",
    ("NFC", (("Split", _WORD % r"\p{N}"), _BYTES), False): "qwen2",
}
"""The `pre` of a (normalizer, steps of the pre-tokenizer, ignore_merges)."""

_BPE_FIXED: Mapping[str, tuple[object, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (False, None),
    "byte_fallback": (False, None),
}
"""Settings of a BPE model, with the only values byte-level BPE has."""


def word_kind(tokenizer: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The `pre` of VocabSpec; raises UnsupportedError."""
    kind = model.get("type", "BPE")
    if kind != "BPE":
        refuse(f"a model of type {str(kind)[:40]!r}; supported is byte-level BPE")
    for key, allowed in _BPE_FIXED.items():
        if model.get(key) not in allowed:
            refuse(f"BPE with {key} = {str(model.get(key))[:40]}; supported is byte-level BPE")
    normalizer = tokenizer.get("normalizer")
    steps = _steps(tokenizer.get("pre_tokenizer"))
    form = _form(normalizer, "normalizer", {"NFC": ()}) if normalizer is not None else None
    found = _KINDS.get((form and form["type"], steps, model.get("ignore_merges") is True))
    if found is None:
        refuse(f"the way it cuts text into words ({short(normalizer)}, {steps!r}) is none that is known"[:300])
    return found


def _steps(given: object) -> tuple[tuple[object, ...], ...]:
    """The pre-tokenizer in a comparable form."""
    if given is None:
        refuse("it has no pre-tokenizer; supported is byte-level BPE")
    top = as_object(given, "pre_tokenizer")
    items = as_list(top.get("pretokenizers"), "pre_tokenizer") if top.get("type") == "Sequence" else [top]
    return tuple(_step(as_object(item, "pre_tokenizer")) for item in items[:8])


def _step(step: Mapping[str, Any]) -> tuple[object, ...]:
    match step.get("type"):
        case "ByteLevel":
            form = _form(step, "ByteLevel", {"ByteLevel": ("add_prefix_space", "trim_offsets", "use_regex")})
            if form.get("add_prefix_space") is not False:
                refuse("it puts a space in front of a text (add_prefix_space)")
            return _BYTES if form.get("use_regex") is False else _WORDS_AND_BYTES
        case "Digits":
            form = _form(step, "Digits", {"Digits": ("individual_digits",)})
            return ("Digits", form.get("individual_digits") is True)
        case "Split":
            form = _form(step, "Split", {"Split": ("pattern", "behavior", "invert")})
            if form.get("behavior") != "Isolated" or form.get("invert") is not False:
                refuse(f"it cuts with behavior {str(form.get('behavior'))[:40]}, invert {form.get('invert')}")
            return ("Split", str(as_object(form.get("pattern"), "pattern").get("Regex")))
        case other:
            return refuse(f"a pre-tokenizer of type {str(other)[:40]!r}")


def _form(given: object, what: str, allowed: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    """The object, if its type and all of its keys are known."""
    form = as_object(given, what)
    kind = str(form.get("type"))
    if kind not in allowed:
        refuse(f"a {what} of type {kind[:40]!r}")
    if unknown := form.keys() - {"type", *allowed[kind]}:
        refuse(f"a {kind} with {min(unknown)[:40]!r}")
    return form


def put_in_front(processor: object) -> str | None:
    """The token a post-processor adds before a text; raises UnsupportedError if it adds anything else."""
    if processor is None:
        return None
    form = as_object(processor, "post_processor")
    steps = as_list(form.get("processors"), "post_processor") if form.get("type") == "Sequence" else [form]
    put = [token for step in steps if (token := _step_puts(as_object(step, "post_processor"))) is not None]
    return put[0] if len(put) == 1 else refuse("a post-processor of several templates") if put else None


def _step_puts(step: Mapping[str, Any]) -> str | None:
    match step.get("type"):
        case "ByteLevel":
            return None
        case "TemplateProcessing":
            return _template_token(as_list(step.get("single"), "post_processor.single"))
        case other:
            return refuse(f"a post-processor of type {str(other)[:40]!r}")


def _template_token(single: Sequence[object]) -> str | None:
    """The token of [SpecialToken, Sequence A]; None for [Sequence A]."""
    pieces = [next(iter(as_object(piece, "post_processor.single").items()), ("", None)) for piece in single[:8]]
    if [kind for kind, _ in pieces] == ["Sequence"]:
        return None
    if [kind for kind, _ in pieces] != ["SpecialToken", "Sequence"]:
        refuse(f"a post-processor that makes {str([kind for kind, _ in pieces])[:80]} of a text")
    name = as_object(pieces[0][1], "SpecialToken").get("id")
    return name if isinstance(name, str) else fail(f"a SpecialToken has the id {str(name)[:40]}")


def as_object(given: object, what: str) -> dict[str, Any]:
    """The value, which must be an object; raises ModelFileError."""
    return cast("dict[str, Any]", given) if isinstance(given, dict) else fail(f"{what} is no object: {short(given)}")


def as_list(given: object, what: str) -> list[Any]:
    """The value, which must be a list; raises ModelFileError."""
    return cast("list[Any]", given) if isinstance(given, list) else fail(f"{what} is no list: {short(given)}")


def short(given: object) -> str:
    """The beginning of a value, for a message."""
    return "null" if given is None else str(given)[:60]


def fail(message: str) -> NoReturn:
    """tokenizer.json contradicts itself or its format."""
    raise ModelFileError(f"tokenizer.json: {message}")


def refuse(message: str) -> NoReturn:
    """tokenizer.json asks for what is not built in."""
    raise UnsupportedError(f"tokenizer.json: {message}")
