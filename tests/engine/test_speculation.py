"""Guesses change how many steps an answer takes, and no bit of it: whatever is guessed, however it is sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import loaded
from unsay import Model, SamplingParams, TokenEvent
from unsay.core import Batch
from unsay.engine.drafter import Drafter
from unsay.engine.request import Request
from unsay.errors import OutOfPagesError
from unsay.session.textstream import TextStream
from unsay.vm.context import Context

PROMPT = [10 + i * 7 % 200 for i in range(40)]
PARAMS = SamplingParams(temperature=1.0, seed=11, max_tokens=60, ignore_eos=True)
WAYS = {
    "plain": PARAMS,
    "greedy": PARAMS._replace(temperature=0.0),
    "penalties": PARAMS._replace(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4),
    "filters": PARAMS._replace(top_k=20, top_p=0.9, min_p=0.01),
    "few tokens": PARAMS._replace(max_tokens=5),
}


def run(model: Model, params: SamplingParams, dropped: list[int] | None) -> tuple[list[TokenEvent], int]:
    """The events, and how many steps they took. dropped: what the guesses come from, None for no guesses."""
    steps: list[int] = []
    sample = model.engine.sampler.sample

    def counted(logits, batch: Batch):
        steps.append(len(batch.token_ids))
        return sample(logits, batch)

    context = Context(model.tree.root())
    context.append(PROMPT)
    history = list(PROMPT)
    drafter = None if dropped is None else Drafter(history, dropped)
    request = Request(context, params, history, len(history), frozenset(), params.max_tokens, drafter)
    model.engine.sampler.sample = counted  # type: ignore[method-assign]
    try:
        events = list(TextStream(model.engine, model.tokenizer, request))
    finally:
        del model.engine.sampler.sample
        context.release()
    model.tree.check()
    return events, len(steps)


@pytest.mark.parametrize("way", WAYS)
def test_right_guesses_give_the_same_events_in_fewer_steps(model: Model, way: str) -> None:
    plain, num_plain = run(model, WAYS[way], None)
    answer = [event.token_id for event in plain]
    guessed, num_guessed = run(model, WAYS[way], answer)
    assert guessed == plain
    assert num_plain == WAYS[way].max_tokens
    assert num_guessed <= (5 if way == "few tokens" else num_plain // 2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("every", [2, 3, 5])
def test_wrong_guesses_give_the_same_events(model: Model, way: str, every: int) -> None:
    plain, _ = run(model, WAYS[way], None)
    wrong = [event.token_id ^ (place % every == 0) for place, event in enumerate(plain)]
    guessed, _ = run(model, WAYS[way], wrong)
    assert guessed == plain


def test_a_stop_string_inside_guesses_ends_the_answer_there(model: Model) -> None:
    plain, _ = run(model, PARAMS, None)
    text = "".join(event.text for event in plain)
    params = PARAMS._replace(stop=(text[len(text) // 2 :][:6],))
    stopped, _ = run(model, params, None)
    guessed, _ = run(model, params, [event.token_id for event in plain])
    assert guessed == stopped
    assert len(guessed) < len(plain)


def test_a_session_answers_the_same_after_a_correction_with_the_dropped_tail_as_guesses(model: Model) -> None:
    def corrected() -> tuple[list[int], str]:
        with model.session(params=PARAMS) as chat:
            chat.user("say")
            chat.generate()
            chat.rollback(to=8)
            chat.inject("x")
            chat.generate(max_tokens=40)
            chat.undo(2)
            chat.generate(max_tokens=10)
            return chat.token_ids, chat.answer

    speculating = corrected()
    model.engine._speculates = False
    try:
        assert corrected() == speculating
    finally:
        model.engine._speculates = True


@pytest.mark.parametrize("kv_tokens", [48, 64, 80])
def test_guesses_that_find_no_pages_end_nothing(tiny_path: Path, kv_tokens: int) -> None:
    def until_full(dropped: list[int] | None) -> list[TokenEvent]:
        with loaded(tiny_path, kv_tokens=kv_tokens) as model:
            context = Context(model.tree.root())
            context.append(PROMPT[:20])
            history = PROMPT[:20]
            drafter = None if dropped is None else Drafter(history, dropped)
            request = Request(context, PARAMS, history, len(history), frozenset(), 200, drafter)
            events: list[TokenEvent] = []
            with pytest.raises(OutOfPagesError):
                events.extend(TextStream(model.engine, model.tokenizer, request))
            context.release()
            return events

    plain = until_full(None)
    assert len(plain) == kv_tokens - 20 + 1
    assert until_full([event.token_id for event in plain] + PROMPT) == plain
