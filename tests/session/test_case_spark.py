"""The case the project exists for, on the real model: a wrong tool is named, taken back, and the answer goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.models import loaded
from unsay import Model

PROMPT = "Write a script that processes 10 million records."
WRONG = "To process 10 million records, use Apache Spark, because"
RIGHT = (
    "pandas: pd.read_csv with the chunksize argument reads the file piece by piece. Here is the script:\n\n"
    "```python\nimport pandas as pd\n\nchunksize = 100000\n"
)


@pytest.fixture(scope="module")
def real_model(smollm2: Path) -> Iterator[Model]:
    with loaded(smollm2, "native") as model:
        yield model


def test_spark_is_taken_back_and_the_answer_goes_on_with_chunksize(real_model: Model) -> None:
    with real_model.session(temperature=0.0) as chat:
        chat.user(PROMPT)
        chat.inject(WRONG)
        chat.generate(max_tokens=4)
        before_ids, before = chat.answer_ids, chat.answer
        num_kept = chat.rollback(before="Apache Spark")
        assert chat.answer_ids == before_ids[:num_kept]
        assert chat.answer == "To process 10 million records, use"
        chat.inject(RIGHT)
        corrected = chat.answer
        assert corrected == f"To process 10 million records, use {RIGHT}"
        for event in chat.stream(max_tokens=40):
            if event.finish or "chunksize" in chat.answer[len(corrected) :]:
                break
        assert "chunksize" in chat.answer[len(corrected) :]
        assert "Spark" not in chat.answer
        assert chat.answer_ids[:num_kept] == before_ids[:num_kept]
        correction = chat.correction
        assert correction is not None
        assert correction.num_dropped == len(before_ids) - num_kept
        assert correction.num_computed == correction.num_injected
        assert np.array_equal(chat.logits(), real_model.logits(chat.token_ids)[-1])
        chat.undo(3)
        assert (chat.answer_ids, chat.answer) == (before_ids, before)


def test_what_a_rollback_keeps_is_kept_byte_for_byte(real_model: Model) -> None:
    with real_model.session(temperature=0.0) as chat:
        chat.user(PROMPT)
        chat.generate(max_tokens=60)
        context = chat._timeline.context
        assert context is not None
        pages = context.branch.page_table().tolist()
        before = np.asarray(real_model.tree.pool.memory)[pages].copy()
        num_kept = len(chat.token_ids) - len(chat.answer_ids) + 10
        chat.rollback(to=10)
        chat.inject(RIGHT)
        chat.generate(max_tokens=30)
        context = chat._timeline.context
        assert context is not None
        after = context.branch.page_table().tolist()
        whole = num_kept // 16
        assert after[:whole] == pages[:whole], "whole pages are shared, not copied"
        assert np.array_equal(np.asarray(real_model.tree.pool.memory)[after[:whole]], before[:whole])


def test_a_correction_inside_the_loop(real_model: Model) -> None:
    with real_model.session(seed=7, temperature=0.7) as chat:
        chat.user(PROMPT)
        kept = []
        for event in chat.stream(max_tokens=60):
            if event.index == 20 and not kept:
                kept = chat.answer_ids[:10]
                chat.rollback(to=10)
                chat.inject(" pandas with chunksize is enough here:")
        assert chat.answer_ids[:10] == kept
        assert " pandas with chunksize is enough here:" in chat.answer
        assert np.array_equal(chat.logits(), real_model.logits(chat.token_ids)[-1])
