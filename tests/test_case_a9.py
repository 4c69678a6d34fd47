"""The case the engine is for: a model names the wrong tool, is stopped, taken back, corrected, and goes on.

On the real model, greedily. Everything kept must be the same bytes as before, and what follows must be what a run that
never took the wrong turn would have said.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import unsay
from tests.kv_rows import kv_rows

_PROMPT = "How do I process 10 million records with a cluster computing framework?"
_WRONG = "Apache Spark"
_INJECTION = "pandas with chunksize:\n\n```python\nimport pandas as pd\n\nfor chunk in pd.read_csv("


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[unsay.Model]:
    with unsay.load(smollm2) as loaded:
        yield loaded


@pytest.fixture
def chat(model: unsay.Model) -> Iterator[unsay.Session]:
    with model.session(temperature=0.0) as session:
        session.user(_PROMPT)
        yield session


def _speak_until_wrong(chat: unsay.Session) -> None:
    for _ in chat.stream(max_tokens=60):
        if _WRONG in chat.answer:
            return
    pytest.fail(f"the model never said {_WRONG}: {chat.answer}")


def test_the_correction_is_taken_up_and_what_was_kept_is_the_same_bytes(
    model: unsay.Model, chat: unsay.Session
) -> None:
    _speak_until_wrong(chat)
    ids_before, answer_before = chat.token_ids, chat.answer
    rows_before = kv_rows(model, chat, len(ids_before) - 1)
    prompt_length = len(ids_before) - len(chat.answer_ids)
    kept_length = prompt_length + chat.rollback(before=_WRONG)

    chat.inject(_INJECTION)
    continued = chat.generate(max_tokens=40)

    assert chat.token_ids[:kept_length] == ids_before[:kept_length]
    np.testing.assert_array_equal(kv_rows(model, chat, kept_length), rows_before[:kept_length])
    kept_text = answer_before[: answer_before.index(_WRONG)]
    assert continued.startswith(kept_text + _INJECTION)
    assert _WRONG not in continued
    assert "chunksize" in continued.split("pd.read_csv(", 1)[1], continued


def test_only_the_injection_is_computed(chat: unsay.Session) -> None:
    _speak_until_wrong(chat)
    chat.rollback(before=_WRONG)
    chat.inject(_INJECTION)
    next(chat.stream(max_tokens=1))
    assert chat.correction is not None and chat.correction.num_computed is not None
    assert chat.correction.num_injected <= chat.correction.num_computed <= chat.correction.num_injected + 1


def test_the_corrected_answer_is_that_of_a_run_without_the_wrong_turn(smollm2: Path, chat: unsay.Session) -> None:
    _speak_until_wrong(chat)
    chat.rollback(before=_WRONG)
    chat.inject(_INJECTION)
    start = len(chat.token_ids)
    ids = chat.token_ids
    chat.generate(max_tokens=24)

    greedy = unsay.SamplingParams(temperature=0.0, max_tokens=24)
    with unsay.load(smollm2) as fresh:
        assert [event.token_id for event in fresh.generate(ids, greedy)] == chat.token_ids[start:]


def test_undo_gives_the_wrong_turn_back_bit_for_bit(model: unsay.Model, chat: unsay.Session) -> None:
    _speak_until_wrong(chat)
    ids, logits = chat.token_ids, chat.logits().view(np.int32)
    rows = kv_rows(model, chat, len(ids) - 1)
    chat.rollback(before=_WRONG)
    chat.inject(_INJECTION)
    chat.generate(max_tokens=8)
    chat.undo(3)
    assert chat.token_ids == ids
    np.testing.assert_array_equal(chat.logits().view(np.int32), logits)
    np.testing.assert_array_equal(kv_rows(model, chat, len(ids) - 1), rows)
