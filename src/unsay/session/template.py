"""The chat template of a model file: messages to spans of (text, special), by minijinja.

A template is a program from a stranger, and a message is text from another. So that neither can do harm:

- The template gets fuel (every operation and every byte it makes costs some), no loader, immutable arguments, and runs
  on a thread with a deep stack, since parsing recurses as deep as the template is long. What fuel does not pay for is
  refused before it runs (`_refuse`): widths and indents of any size, and namespaces that hold themselves, which end the
  process when printed.
- Text of a message can never become a control token: the spans returned say which text is the template's own.
  They are found by rendering with random marks around every content, which nobody can have written beforehand.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import minijinja

from unsay.errors import RequestError, TemplateError
from unsay.image import VocabSpec
from unsay.session.tokenizer import check_text

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""For a model file without a template: `role: content` and an empty line for each message."""

MAX_TEMPLATE_BYTES = 65536
_FUEL = 200_000
"""And one more for each character of the messages, up to the most. Templates need hundreds, and 1 for 20 bytes."""
_MOST_FUEL = 1_000_000
"""Enough to nest values 118,000 deep, which the stack can hold: 64 MB take between 100,000 and 400,000 levels."""
_STACK_BYTES = 128 << 20
_LARGEST_INDENT = 16
_MOST_JOINS = 1000
"""Uses of `+` and `~`: a chain of 15,000 took 17 s to compile, in quadratic time. Long templates have 300."""
_VISIBLE = re.compile(r"\S")
_FORMATTING = re.compile(r"\.\s*(format(?:_map)?)\b")
_NAMESPACE = re.compile(r"\{%[-+]?\s*set\s+(\w+)\s*=\s*namespace\s*\(")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")

Span = tuple[str, bool]
Message = Mapping[str, object]
T = TypeVar("T")


class ChatTemplate:
    """Used by one thread at a time (a lock sees to it). Raises TemplateError if the template does not compile."""

    def __init__(self, spec: VocabSpec) -> None:
        source = PLAIN_TEMPLATE if spec.chat_template is None else spec.chat_template
        size = len(source.encode("utf-8", errors="replace"))
        if size > MAX_TEMPLATE_BYTES:
            raise TemplateError(f"the chat template has {size} bytes; at most {MAX_TEMPLATE_BYTES} are allowed")
        _refuse(source)
        self._is_plain = spec.chat_template is None
        self._special = _special_names(spec)
        self._constants = {
            "bos_token": _token_text(spec, spec.bos_id),
            "eos_token": _token_text(spec, spec.eos_id),
            "tools": None,
            "documents": None,
            "raise_exception": _raise_exception,
        }
        self._lock = threading.Lock()
        self._environment = minijinja.Environment(trim_blocks=True, lstrip_blocks=True)
        self._environment.add_filter("tojson", _to_json)
        _on_deep_stack(lambda: self._environment.add_template("chat", source))

    @property
    def is_plain(self) -> bool:
        """Whether the model file has no template and PLAIN_TEMPLATE stands in for it."""
        return self._is_plain

    def spans(self, messages: Sequence[Message], add_generation_prompt: bool) -> list[Span]:
        """The rendered conversation in pieces: (text, whether special tokens in it count).

        messages: {"role": ..., "content": ...} each. The pieces join to what the template makes of them.
        Raises TemplateError if the template fails, RequestError for a malformed message.
        """
        checked = [_checked(message) for message in messages]
        rendered = self._render(checked, add_generation_prompt)
        mark = f"\ue000{secrets.randbelow(10**20):020d}\ue001"
        wrapped = [{**message, "content": _wrap(message["content"], mark)} for message in checked]
        pieces = self._render(wrapped, add_generation_prompt).split(mark)
        if len(pieces) % 2 == 1 and "".join(pieces) == rendered:
            return [(text, index % 2 == 0) for index, text in enumerate(pieces) if text]
        return self._spans_of_transformed(checked, add_generation_prompt, mark)

    def _spans_of_transformed(
        self, messages: Sequence[dict[str, str]], add_generation_prompt: bool, mark: str
    ) -> list[Span]:
        """For a template that looks into contents: names of special tokens in them are broken up by marks.

        It then sees names it cannot recognise, and every piece may be read for special tokens: none spans a mark.
        A template may still make a name of what was none (`<|IM_END|>` in lower case), so they are counted: there may
        be no more than in a conversation without a letter.
        """
        broken = [{**message, "content": self._break_names(message["content"], mark)} for message in messages]
        pieces = self._render(broken, add_generation_prompt).split(mark)
        blank = [{**message, "content": _VISIBLE.sub("\ue002", message["content"])} for message in messages]
        own = Counter(self._special.findall(self._render(blank, add_generation_prompt)))
        for name in Counter(name for piece in pieces for name in self._special.findall(piece)) - own:
            raise TemplateError(f"the chat template alters messages, and makes the special token {name!r} of one")
        return [(text, True) for text in pieces if text]

    def _break_names(self, content: str, mark: str) -> str:
        def broken(found: re.Match[str]) -> str:
            if len(found[0]) == 1:
                raise TemplateError(f"the chat template alters messages, and one holds the special token {found[0]!r}")
            return mark + mark.join(found[0]) + mark

        return self._special.sub(broken, content)

    def _render(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool) -> str:
        size = sum(len(message["content"]) for message in messages)
        values = {
            **self._constants,
            "messages": tuple(MappingProxyType(message) for message in messages),
            "add_generation_prompt": add_generation_prompt,
        }
        with self._lock:
            self._environment.fuel = min(_FUEL + size, _MOST_FUEL)
            return _on_deep_stack(lambda: self._environment.render_template("chat", **values))


def _wrap(content: str, mark: str) -> str:
    """Marks around the content but inside its outer white space, so that a template may trim it."""
    core = content.strip()
    if not core:
        return content
    start = content.index(core)
    return f"{content[:start]}{mark}{core}{mark}{content[start + len(core) :]}"


def _checked(message: Message) -> dict[str, str]:
    role, content = message.get("role"), message.get("content")
    if set(message) != {"role", "content"} or not isinstance(role, str) or not isinstance(content, str):
        raise RequestError(f"a message is two texts, 'role' and 'content'; this one has {sorted(message)}")
    if not _ROLE.fullmatch(role):
        raise RequestError(f"role {role!r} is not a word of at most 32 letters, digits, '_' and '-'")
    check_text(content)
    return {"role": role, "content": content}


def _special_names(spec: VocabSpec) -> re.Pattern[str]:
    names = [token for token, kind in zip(spec.tokens, spec.token_types, strict=True) if kind in (3, 4) and token]
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")


def _refuse(source: str) -> None:
    """Raise TemplateError for what fuel cannot stop. Errs on the safe side: it reads words and not the language.

    A namespace can hold itself only if it is named without a dot behind it, in whatever place.
    """
    if found := _FORMATTING.search(source):
        raise TemplateError(f"the chat template calls .{found[1]}(), whose widths have no bound; it is not allowed")
    if (joins := source.count("+") + source.count("~")) > _MOST_JOINS:
        raise TemplateError(f"the chat template has {joins} of `+` and `~`; at most {_MOST_JOINS} are allowed")
    names = _NAMESPACE.findall(source)
    if len(re.findall(r"\bnamespace\b(?!\s*\.)", _NAMESPACE.sub("", source))):
        raise TemplateError("the chat template uses namespace() other than as {% set NAME = namespace(...) %}")
    for name in sorted(set(names)):
        if re.search(rf"\b{name}\b(?!\s*\.)", _NAMESPACE.sub("", source)):
            raise TemplateError(f"the chat template hands on the namespace {name}; only its fields may be used")


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    if indent is not None and not 0 <= indent <= _LARGEST_INDENT:
        raise ValueError(f"tojson with an indent of {indent}; it must be in 0..{_LARGEST_INDENT}")
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def _token_text(spec: VocabSpec, token_id: int | None) -> str:
    return "" if token_id is None else spec.tokens[token_id]


def _raise_exception(*reasons: object) -> str:
    raise ValueError(*reasons)


_stack_size_lock = threading.Lock()


def _on_deep_stack(work: Callable[[], T]) -> T:
    """Run `work` on a thread of its own with a stack no template of the allowed size can overflow."""
    results: list[T] = []
    errors: list[str] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  what a template does to our objects raises anything
            errors.append((str(error) or type(error).__name__).split("\n", 1)[0])

    with _stack_size_lock:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=body, name="unsay-template")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise TemplateError(f"the chat template of the model failed: {errors[0]}")
    return results[0]
