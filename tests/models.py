"""Loaded tiny models and fresh runs to compare with, for tests of engine, session and model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import unsay
from unsay import Model, SamplingParams


@contextmanager
def loaded(path: Path, executor: str = "null", **options: object) -> Iterator[Model]:
    """A model for the time of a block; at its end nothing may be left in the pool."""
    with unsay.load(path, executor=executor, num_threads=1, **options) as model:  # type: ignore[arg-type]
        yield model
        model.tree.check()
        assert model.tree.pool.num_used == 0, "a test left a session or a request open"


def fresh_run(model: Model, ids: list[int], num_tokens: int, params: SamplingParams) -> list[int]:
    """What follows `ids` when nothing was there before: one token at a time from logits over the whole context."""

    one = params._replace(max_tokens=1, ignore_eos=True)
    context = list(ids)
    for _ in range(num_tokens):
        (event,) = model.generate(context, one)
        context.append(event.token_id)
    return context[len(ids) :]
