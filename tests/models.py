"""Loaded tiny models and fresh runs to compare with, for tests of engine, session and model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import unsay
from unsay import Model, SamplingParams, Session
from unsay.core import Batch


@contextmanager
def loaded(path: Path, executor: str = "null", **options: object) -> Iterator[Model]:
    """A model for the time of a block; at its end nothing may be left in the pool."""
    with unsay.load(path, executor=executor, num_threads=1, **options) as model:  # type: ignore[arg-type]
        yield model
        model.tree.check()
        assert model.tree.pool.num_used == 0, "a test left a session or a request open"


@contextmanager
def held_in_a_step(model: Model, chat: Session, num_tokens: int) -> Iterator[None]:
    """For the time of a block another thread streams, and is in a step: the answer has this many tokens. At its end the
    step goes on, and that thread has come to its own."""
    computing, go = threading.Event(), threading.Event()
    run = model.engine.machine.run

    def held(batch: Batch) -> object:
        if len(chat.answer_ids) >= num_tokens:
            computing.set()
            assert go.wait(10)
        return run(batch)

    reader = threading.Thread(target=lambda: list(chat.stream(max_tokens=100_000)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.engine.machine, "run", held)
        reader.start()
        assert computing.wait(10)
        try:
            yield
        finally:
            go.set()
            reader.join(10)
    assert not reader.is_alive()


def fresh_run(model: Model, ids: list[int], num_tokens: int, params: SamplingParams) -> list[int]:
    """What follows `ids` when nothing was there before: one token at a time from logits over the whole context."""

    one = params._replace(max_tokens=1, ignore_eos=True)
    context = list(ids)
    for _ in range(num_tokens):
        (event,) = model.generate(context, one)
        context.append(event.token_id)
    return context[len(ids) :]
