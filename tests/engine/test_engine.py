"""The engine with several readers: everybody gets their own tokens, interrupts hit one request only."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest

from tests.models import fresh_run
from unsay import Model, SamplingParams
from unsay.core import Batch
from unsay.engine.request import MAX_UNDELIVERED, Request
from unsay.errors import RequestError
from unsay.vm.context import Context

PARAMS = SamplingParams(temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)


def prompt(number: int, length: int = 20) -> list[int]:
    return [10 + (number * 31 + i * 7) % 200 for i in range(length)]


def generate(model: Model, ids: list[int], params: SamplingParams = PARAMS) -> list[int]:
    return [event.token_id for event in model.generate(ids, params)]


def in_threads(*work) -> None:
    """Run every callable in a thread of its own; raise what one raised."""
    errors: list[BaseException] = []

    def guarded(call) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a reader never got its token"
    if errors:
        raise errors[0]


def request_for(model: Model, ids: list[int], params: SamplingParams = PARAMS) -> Request:
    context = Context(model.tree.root())
    context.append(ids)
    return Request(context, params, list(ids), len(ids), frozenset(), params.max_tokens)


def test_step_is_the_four_lines_of_the_design() -> None:
    import ast
    import inspect
    import textwrap

    from unsay.engine.engine import Engine

    (function,) = ast.parse(textwrap.dedent(inspect.getsource(Engine.step))).body
    assert len(function.body) == 1 + 4  # type: ignore[attr-defined]


def test_sixteen_prompts_at_once_do_not_swap_answers(model: Model) -> None:
    expected = [fresh_run(model, prompt(n), 12, PARAMS) for n in range(16)]
    assert len({tuple(answer) for answer in expected}) == 16
    answers: dict[int, list[int]] = {}
    in_threads(*(lambda n=n: answers.update({n: generate(model, prompt(n))}) for n in range(16)))
    assert [answers[n] for n in range(16)] == expected


def test_readers_share_steps(model: Model) -> None:
    batches: list[Batch] = []
    run = model.engine.machine.run

    def slow_run(batch: Batch):
        batches.append(batch)
        time.sleep(0.002)
        return run(batch)

    model.engine.machine.run = slow_run  # type: ignore[method-assign]
    in_threads(*(lambda n=n: generate(model, prompt(n)) for n in range(4)))
    assert max(len(batch.lanes) for batch in batches) >= 2
    assert len(batches) < 4 * 12


def test_a_prompt_in_chunks_equals_a_prompt_token_by_token(model: Model) -> None:
    ids = prompt(1, 600)
    context = Context(model.tree.root(salt=b"apart"))
    for token_id in ids:
        context.append([token_id])
        logits = model.engine.compute(context, 1)
    context.release()
    assert np.array_equal(model.logits(ids)[-1], logits[0])


def test_withdrawing_one_request_leaves_the_other_its_answer(model: Model) -> None:
    expected = fresh_run(model, prompt(2), 12, PARAMS)
    gone, stays = request_for(model, prompt(1)), request_for(model, prompt(2))
    model.engine.submit(gone)
    model.engine.submit(stays)
    first = model.engine.next_event(stays)
    model.engine.withdraw(gone)
    assert model.engine.next_event(gone) is None
    rest = []
    while (event := model.engine.next_event(stays)) is not None:
        rest.append(event.token_id)
    assert first is not None
    assert [first.token_id, *rest] == expected
    assert model.engine.scheduler.requests == []
    for request in (gone, stays):
        request.context.release()


def test_withdraw_in_the_middle_of_a_step_stops_it_and_it_is_run_again_without(model: Model) -> None:
    gone, stays = request_for(model, prompt(1)), request_for(model, prompt(2))
    entered, lanes = threading.Event(), []
    run = model.engine.machine.executor.run

    def blocking_run(batch: Batch):
        lanes.append([lane.request_id for lane in batch.lanes])
        if not entered.is_set():
            entered.set()
            while not model.engine.machine.executor.interrupt_word[0]:
                time.sleep(0.001)
        return run(batch)

    model.engine.machine.executor.run = blocking_run  # type: ignore[method-assign]
    model.engine.submit(gone)
    model.engine.submit(stays)
    reader = threading.Thread(target=model.engine.next_event, args=(stays,))
    reader.start()
    assert entered.wait(10)
    model.engine.withdraw(gone)
    assert gone.context.branch.length == 0
    reader.join(10)
    assert lanes == [[gone.id, stays.id], [stays.id]]
    for request in (gone, stays):
        model.engine.withdraw(request)
        request.context.release()


def test_a_stop_disturbs_no_step_that_does_not_compute_for_the_request(model: Model) -> None:
    gone, stays = request_for(model, prompt(1)), request_for(model, prompt(2))
    model.engine.submit(stays)
    run, words = model.engine.machine.executor.run, []

    def stopping_run(batch: Batch):
        model.engine.stop(gone)
        words.append(model.engine.machine.executor.interrupt_word[0])
        return run(batch)

    model.engine.machine.executor.run = stopping_run  # type: ignore[method-assign]
    assert model.engine.next_event(stays) is not None
    assert words == [0]
    for request in (gone, stays):
        model.engine.withdraw(request)
        request.context.release()


def test_what_others_run_again_is_not_stopped_twice(model: Model) -> None:
    """Or a session that is stopped faster than a step takes would hold everybody up."""
    stays, gone = request_for(model, prompt(2)), [request_for(model, prompt(number)) for number in (1, 3, 4)]
    left = list(gone)
    run, words = model.engine.machine.executor.run, []

    def stopping_run(batch: Batch):
        if left:
            model.engine.stop(left.pop(0))
        if left:
            model.engine.submit(left[0])
        words.append(model.engine.machine.executor.interrupt_word[0])
        return run(batch)

    model.engine.submit(stays)
    model.engine.submit(gone[0])
    model.engine.machine.executor.run = stopping_run  # type: ignore[method-assign]
    assert model.engine.next_event(stays) is not None
    assert words == [1, 0]
    assert model.engine.next_event(stays) is not None
    assert words == [1, 0, 1, 0]
    for request in (stays, *gone):
        model.engine.withdraw(request)
        request.context.release()


def test_what_is_run_again_for_nobody_is_stopped_too(model: Model) -> None:
    first, second, last = (request_for(model, prompt(number)) for number in (1, 2, 3))
    stops = [[first], [second], []]
    run, words = model.engine.machine.executor.run, []

    def stopping_run(batch: Batch):
        for request in stops[len(words)]:
            model.engine.stop(request)
        words.append(model.engine.machine.executor.interrupt_word[0])
        if len(words) == 2:
            model.engine.submit(last)
        return run(batch)

    model.engine.submit(first)
    model.engine.submit(second)
    model.engine.machine.executor.run = stopping_run  # type: ignore[method-assign]
    assert model.engine.next_event(second) is None
    assert model.engine.next_event(last) is not None
    assert words == [1, 1, 0]
    for request in (first, second, last):
        model.engine.withdraw(request)
        request.context.release()


def test_a_waiting_reader_sleeps(model: Model) -> None:
    run = model.engine.machine.executor.run
    release = threading.Event()

    def held_run(batch: Batch):
        release.wait(10)
        return run(batch)

    model.engine.machine.executor.run = held_run  # type: ignore[method-assign]
    threads = [threading.Thread(target=generate, args=(model, prompt(n))) for n in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.3)
    used = time.process_time() - before
    release.set()
    for thread in threads:
        thread.join(30)
    assert used < 0.03


def test_an_executor_that_fails_tells_its_reader_and_the_engine_lives_on(model: Model) -> None:
    def broken_run(batch: Batch):
        raise AssertionError("broken on purpose")

    run = model.engine.machine.executor.run
    model.engine.machine.executor.run = broken_run  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="on purpose"):
        generate(model, prompt(1))
    model.engine.machine.executor.run = run  # type: ignore[method-assign]
    assert generate(model, prompt(1)) == fresh_run(model, prompt(1), 12, PARAMS)


def test_compute_gives_rows_across_chunks(model: Model) -> None:
    ids = prompt(5, 150)
    rows = model.logits(ids)
    assert rows.shape == (150, model.spec.vocab_size)
    for length in (1, 64, 65, 149):
        assert np.array_equal(model.logits(ids[:length])[-1], rows[length - 1])


def test_an_endless_reader_lets_who_computes_go_first(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, late, turns, is_over = model.engine, list[int](), list[int](), threading.Event()
    next_batch, compute_chunk = engine.scheduler.next_batch, engine._compute_chunk

    def stepping():
        if engine._computing:
            late.append(1)
        return next_batch()

    def computing(*arguments):
        turns.append(1)
        return compute_chunk(*arguments)

    def compute() -> None:
        try:
            for number in range(20):
                model.logits(prompt(number))
        finally:
            is_over.set()

    def read() -> None:
        while not is_over.is_set():
            generate(model, prompt(1))

    monkeypatch.setattr(engine.scheduler, "next_batch", stepping)
    monkeypatch.setattr(engine, "_compute_chunk", computing)
    in_threads(read, compute)
    assert len(late) <= len(turns), "steps began while a thread waited to compute, beside the one it found running"


def test_a_stream_gets_a_token_between_two_chunks(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads it meanwhile: who computes makes its steps, until as many tokens wait as may."""
    engine, waiting, compute_chunk = model.engine, list[int](), model.engine._compute_chunk

    def computing(*arguments):
        waiting.append(sum(len(request.events) for request in engine.scheduler.requests))
        return compute_chunk(*arguments)

    monkeypatch.setattr(engine, "_compute_chunk", computing)
    stream = model.generate(prompt(1), PARAMS)
    answer = [next(stream).token_id]
    rows = model.logits(prompt(2, 400))
    assert len(waiting) > 4 and waiting == [min(number, MAX_UNDELIVERED) for number in range(len(waiting))]
    waiting.clear()
    for number in range(3):
        answer.append(next(stream).token_id)
        model.logits(prompt(number))
    assert waiting == [MAX_UNDELIVERED] * 3, "between two calls, too"
    answer += [event.token_id for event in stream]
    assert answer == fresh_run(model, prompt(1), 12, PARAMS)
    assert np.array_equal(rows, model.logits(prompt(2, 400)))


def test_chunks_and_steps_take_turns_among_threads(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, order, num_computing = model.engine, list[str](), 3
    next_batch, compute_chunk = engine.scheduler.next_batch, engine._compute_chunk
    is_over = threading.Semaphore(0)

    def noted(what: str, call):
        def noting(*arguments):
            order.append(what)
            return call(*arguments)

        return noting

    def compute() -> None:
        try:
            for number in range(5):
                model.logits(prompt(number, 200))
        finally:
            is_over.release()

    def read() -> None:
        for _ in range(num_computing):
            while not is_over.acquire(blocking=False):
                generate(model, prompt(1))

    monkeypatch.setattr(engine.scheduler, "next_batch", noted("step", next_batch))
    monkeypatch.setattr(engine, "_compute_chunk", noted("chunk", compute_chunk))
    in_threads(read, *[compute] * num_computing)
    assert order.count("chunk") >= 15
    assert ("chunk", "chunk") not in itertools.pairwise(order)


def test_threads_that_compute_take_turns(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk lasts until all others that are not done wait in line."""
    engine, order, busy, compute_chunk = model.engine, list[int](), [0, 1, 2], model.engine._compute_chunk

    def computing(*arguments):
        order.append(threading.get_ident())
        while len(engine._computing) < len(busy) - 1:
            time.sleep(0.001)
        return compute_chunk(*arguments)

    def compute(number: int) -> None:
        model.logits(prompt(number, 200))
        busy.remove(number)

    monkeypatch.setattr(engine, "_compute_chunk", computing)
    in_threads(*(lambda number=number: compute(number) for number in tuple(busy)))
    assert len({*order[:3]}) == 3
    assert order == order[:3] * 4


def test_a_cached_prefix_is_taken_over_and_changes_nothing(model: Model) -> None:
    ids = prompt(6, 100)
    expected = fresh_run(model, ids, 12, PARAMS)
    held = request_for(model, [*ids[:70], 5])
    model.engine.compute(held.context, 1)
    request = request_for(model, ids)
    model.engine.submit(request)
    answer = []
    while (event := model.engine.next_event(request)) is not None:
        answer.append(event.token_id)
    assert answer == expected
    assert request.num_computed < 100 - 64 + 12
    held.context.release()
    request.context.release()


def test_a_closed_engine_says_so(model: Model) -> None:
    request = request_for(model, prompt(1))
    model.engine.submit(request)
    model.engine.close()
    model.engine.close()
    with pytest.raises(RequestError, match="closed"):
        model.engine.next_event(request)
    request.context.release()
