"""The chat template of a model file: messages to spans of (text, special), by minijinja.

A template is a program from a stranger, and a message is text from another. So that neither can do harm:

- The template gets fuel (every operation and every byte it makes costs some), no loader and immutable arguments. One
  that only says what comes before and after each message (`_is_tame`) runs here; any other in a process of its own
  (sandbox.py), since fuel does not pay for all that a program can do.
- Text of a message can never become a control token: the spans returned say which text is the template's own.
  They are found by rendering with random marks around every content, which nobody can have written beforehand.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from unsay.errors import RequestError, TemplateError
from unsay.forked import begins_anew, free
from unsay.session.special import SpecialNames
from unsay.session.template_program import compiled, reason, render
from unsay.session.tokenizer import check_text
from unsay.vocabulary import Vocabulary

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""For a model file without a template: `role: content` and an empty line for each message."""

MAX_TEMPLATE_BYTES = 65536
_FUEL = 200_000
"""And one more for each character of the messages, up to the most. Templates need hundreds, and 1 for 20 bytes."""
MOST_FUEL = 1_000_000
_MOST_TAME_BYTES = 4096
"""Nested as deep as it is long, it still fits any stack."""
_TAG = re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_TAME_TAG = re.compile(
    r"\{%[-+]?\s*(for \w+ in messages(\[\d*:\d*\])?|(el)?if [\w\s.<>=!\[\]]+|else|endif|endfor)\s*[-+]?%\}"
    r"|\{\{[-+]?([\w\s.+\[\]]|\|\s*trim\b)*[-+]?\}\}"
)
_VISIBLE = re.compile(r"\S")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")

Span = tuple[str, bool]
Message = Mapping[str, object]


class ChatTemplate:
    """Used by one thread at a time (a lock sees to it). Raises TemplateError if the template does not compile."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        head = vocabulary.head
        self._is_plain = head.chat_template is None
        self._special = SpecialNames(head.special)
        self._constants = {
            "bos_token": _token_text(vocabulary, head.bos_id),
            "eos_token": _token_text(vocabulary, head.eos_id),
            "tools": None,
            "documents": None,
        }
        self._runner = template_runner(head.chat_template)

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
        mark = f"\ue000{int.from_bytes(os.urandom(8)):020d}\ue001"
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
        own = Counter(self._special.split(self._render(blank, add_generation_prompt))[1::2])
        for name in Counter(name for piece in pieces for name in self._special.split(piece)[1::2]) - own:
            raise TemplateError(f"the chat template alters messages, and makes the special token {name!r} of one")
        return [(text, True) for text in pieces if text]

    def _break_names(self, content: str, mark: str) -> str:
        pieces = self._special.split(content)
        for index, name in enumerate(pieces[1::2]):
            if len(name) == 1:
                raise TemplateError(f"the chat template alters messages, and one holds the special token {name!r}")
            pieces[2 * index + 1] = mark + mark.join(name) + mark
        return "".join(pieces)

    def _render(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool) -> str:
        size = sum(len(message["content"]) for message in messages)
        values = {
            **self._constants,
            "messages": list(messages),
            "add_generation_prompt": add_generation_prompt,
            "fuel": min(_FUEL + size, MOST_FUEL),
        }
        return self._runner.render(values)


class Runner(Protocol):
    """Renders one template."""

    def render(self, values: dict[str, Any]) -> str:
        """What `template_program.render` makes of the values; TemplateError for whatever the template does."""
        ...


def template_runner(source: str | None) -> Runner:
    """What renders the template of a model, or PLAIN_TEMPLATE; raises TemplateError if it is not to be used."""
    source = PLAIN_TEMPLATE if source is None else source
    size = len(source.encode("utf-8", errors="replace"))
    if size > MAX_TEMPLATE_BYTES:
        raise TemplateError(f"the chat template has {size} bytes; at most {MAX_TEMPLATE_BYTES} are allowed")
    if _is_tame(source):
        return _TameTemplate(source)
    from unsay.session.sandbox import Sandbox

    return Sandbox(source)


class _TameTemplate:
    """A template that may run in this process."""

    def __init__(self, source: str) -> None:
        self._lock = threading.Lock()
        with _template_errors():
            self._environment = compiled(source)
        begins_anew(self)

    def begin_anew(self) -> None:
        """In a forked child."""
        free(self._lock)

    def render(self, values: dict[str, Any]) -> str:
        """See Runner."""
        with self._lock, _template_errors():
            return render(self._environment, values)


@contextmanager
def _template_errors() -> Generator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  what a template does to our objects raises anything
        raise TemplateError(f"the chat template of the model failed: {reason(error)}") from None


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


def _is_tame(source: str) -> bool:
    """Whether no value can depend on itself: names are bound by loops over messages alone, and nothing is called.

    Then a value is as long as source and messages allow, and no longer. Errs on the safe side: it reads words.
    """
    tags = _TAG.findall(source)
    return (
        len(source.encode()) <= _MOST_TAME_BYTES
        and len(tags) == len(re.findall(r"\{[{%#]", source))
        and all(_TAME_TAG.fullmatch(_STRING.sub("", tag)) for tag in tags)
    )


def _token_text(vocabulary: Vocabulary, token_id: int | None) -> str:
    return "" if token_id is None else vocabulary.token_bytes(token_id).decode(errors="replace")
