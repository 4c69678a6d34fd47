"""What `import unsay` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import unsay


def test_the_public_names_are_these_and_no_others() -> None:
    assert unsay.__all__ == ["Model", "SamplingParams", "Session", "TokenEvent", "errors", "load", "load_tokenizer"]
    assert dir(unsay) == sorted(unsay.__all__)
    assert all(getattr(unsay, name) is not None for name in unsay.__all__)


def public_members(kind: type) -> list[str]:
    return sorted(name for name in vars(kind) if not name.startswith("_"))


def test_the_members_of_a_session_are_pinned() -> None:
    assert public_members(unsay.Session) == [
        "answer", "answer_ids", "append", "checkout", "close", "correction", "diff", "finish", "fork", "generate",
        "history", "inject", "interrupt", "logits", "params", "redo", "rollback", "stream", "token_ids", "undo",
        "user",
    ]  # fmt: skip


def test_the_members_of_a_model_are_pinned() -> None:
    assert public_members(unsay.Model) == [
        "close", "detokenize", "generate", "logits", "restore", "session", "spec", "tokenize",
    ]  # fmt: skip


def test_the_signatures_of_the_design_are_pinned() -> None:
    assert list(inspect.signature(unsay.load).parameters) == [
        "name_or_path", "target", "num_threads", "executor", "kv", "prefill", "kv_tokens", "speculate", "progress",
    ]  # fmt: skip
    assert list(inspect.signature(unsay.Session.rollback).parameters) == ["self", "to", "before"]
    assert list(inspect.signature(unsay.Session.stream).parameters) == ["self", "max_tokens", "params"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        unsay.Nothing  # noqa: B018


def test_importing_unsay_imports_nothing_heavy() -> None:
    code = "import sys, unsay; print([m for m in ('numpy', 'tokenizers', 'llvmlite', 'minijinja') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
