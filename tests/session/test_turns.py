"""Turns with templates of other shapes than the usual."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import write_tiny_gguf
from unsay.compiler.frontend.describe import vocab_spec
from unsay.compiler.frontend.gguf import open_gguf
from unsay.errors import TemplateError
from unsay.session.template import ChatTemplate
from unsay.session.tokenizer import Tokenizer
from unsay.session.turns import Turns
from unsay.vocabulary import vocabulary

TEMPLATES = {
    "plain": (None, "user: a\n\nassistant:", "\n\nuser: b\n\nassistant:"),
    "trims": (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }};{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}",
        "[user]a;[assistant]",
        ";[user]b;[assistant]",
    ),
    "ends the answer with a mark of its own": (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}>{{ m['content'] }}<|im_end|>"
        "{% else %}{{ m['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}>{% endif %}",
        "a>",
        "<|im_end|>b>",
    ),
}


def turns_of(directory: Path, template: str | None) -> Turns:
    vocab = vocabulary(vocab_spec(open_gguf(write_tiny_gguf(directory / "tiny.gguf", chat_template=template))))
    return Turns(ChatTemplate(vocab), Tokenizer(vocab), None)


@pytest.mark.parametrize("name", TEMPLATES)
def test_first_and_next_turn(tmp_path: Path, name: str) -> None:
    source, first, following = TEMPLATES[name]
    turns = turns_of(tmp_path, source)
    assert turns.tokenizer.decode(turns.first("a")) == first
    assert turns.tokenizer.decode(turns.next("b")) == following


def test_white_space_around_a_message_is_the_templates_business(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, TEMPLATES["trims"][0])
    assert turns.tokenizer.decode(turns.next("  b\n")) == ";[user]b;[assistant]"


@pytest.mark.parametrize(
    "source",
    [
        "the same",
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
        "{{ messages[-1].content }}",
    ],
)
def test_a_template_without_answers_serves_one_message(tmp_path: Path, source: str) -> None:
    turns = turns_of(tmp_path, source)
    assert turns.first("a")
    with pytest.raises(TemplateError, match="answer"):
        turns.next("b")


def test_a_template_may_change_the_case_of_an_answer(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, "{% for m in messages %}{{ m.content | upper }};{% endfor %}")
    assert turns.tokenizer.decode(turns.next("b")) == ";B;"
