"""Prompts in the fast class: equal tokens of equal classes have equal bits, and no class is taken for another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

import unsay
from tests.exactness.runs import Outcome, run_alone, run_together
from tests.exactness.test_company import BATCH_SIZES, CHUNKS, NUM_THREADS, load, make_sequences, runnable_targets
from tests.exactness.test_paths import COMMON, PARAMS, assert_exact, squeeze
from tests.session.test_session_machine import CONTEXT_LENGTH, Verbs
from tests.tiny import write_tiny_gguf
from unsay import Model, Session
from unsay.core import SamplingParams
from unsay.errors import RequestError, UnsupportedError
from unsay.isa.classes import FAST, is_fast, keys_of
from unsay.session.log import SessionLog


def in_turns(ids: list[int]) -> list[int]:
    """The keys of a conversation: 50 tokens of a prompt, 9 of an answer, and so on."""
    return [key for place, token in enumerate(ids) for key in keys_of([token], place % 59 < 50)]


@pytest.fixture(scope="module")
def expected(tiny_variant_path: Path) -> Iterator[tuple[list[list[int]], list[Outcome]]]:
    """Eight sequences, prompts and conversations in turn, and what each gives alone, on one thread, in one chunk."""
    with load(tiny_variant_path, prefill=FAST, num_threads=1) as model:
        given = make_sequences(model, 8, 290)
        sequences = [in_turns(ids) if number % 2 else keys_of(ids, True) for number, ids in enumerate(given)]
        yield sequences, [run_alone(model, keys) for keys in sequences]


@pytest.mark.parametrize("num_threads", NUM_THREADS)
def test_chunks_threads_and_company_do_not_show(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]], num_threads: int
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, prefill=FAST, num_threads=num_threads) as model:
        for chunk, batch_size in itertools.product(CHUNKS, BATCH_SIZES):
            together = run_together(model, sequences[:batch_size], chunk)
            for number, outcome in enumerate(together):
                what = f"chunk {chunk}, {num_threads} threads, sequence {number} of {batch_size}"
                outcome.assert_equals(outcomes[number], what)
        assert model.tree.pool.num_used == 0


@pytest.mark.parametrize("target", runnable_targets())
def test_neither_instruction_set_nor_executor_shows(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]], target: str
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, prefill=FAST, num_threads=1, target=target) as model:
        run_alone(model, sequences[1], 16).assert_equals(outcomes[1], target)
    with load(tiny_variant_path, prefill=FAST, executor="reference", target=target) as model:
        run_alone(model, sequences[1], 64).assert_equals(outcomes[1], "the definition")


def test_exact_tokens_have_the_bits_of_a_model_that_has_no_other_class(tiny_variant_path: Path) -> None:
    with load(tiny_variant_path) as exact, load(tiny_variant_path, prefill=FAST) as both:
        (ids,) = make_sequences(exact, 1, 60)
        expected = run_alone(exact, ids)
        run_alone(both, ids).assert_equals(expected, "exact keys")
        fast = run_alone(both, keys_of(ids, True))
        assert (fast.logits[-1] != expected.logits[-1]).any(), "the class shows"


def test_a_prefix_in_another_class_is_never_matched(tiny_path: Path) -> None:
    ids = list(range(10, 58))
    with load(tiny_path, prefill=FAST) as model:
        greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        stream = model.generate(ids, greedy)
        next(stream)
        for is_held, keys in ((True, keys_of(ids, True)), (False, ids), (False, [ids[0], *keys_of(ids[1:], True)])):
            found = model.tree.match(keys)
            assert (found.length > 0) is is_held
            found.release()
        list(stream)


def fresh(model: Model, chat: Session) -> Outcome:
    """A run of the same tokens in the same classes, which shares nothing."""
    return run_alone(model, chat._timeline.context.keys())


class FastVerbs(Verbs):
    """Verbs with prompts in the fast class; after each, the bytes of every session."""

    executor = "fast"

    @invariant()
    def every_state_is_fresh(self) -> None:
        self.model.tree.check()
        for chat in self.sessions:
            if chat.token_ids:
                assert_exact(self.model, chat, fresh(self.model, chat))
                keys = chat._timeline.context.keys()
                assert all(is_fast(key) for key in keys[: keys_before_answer(chat)][-3:])
                assert not any(map(is_fast, keys[keys_before_answer(chat) :]))


def keys_before_answer(chat: Session) -> int:
    return len(chat.token_ids) - len(chat.answer_ids)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_every_path_of_verbs_ends_in_the_same_bits(tmp_path: Path, num_threads: int) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", context_length=CONTEXT_LENGTH, extra_tokens=11)
    with unsay.load(path, prefill=FAST, num_threads=num_threads, kv_tokens=4096) as model:
        FastVerbs.models[FastVerbs.executor] = model
        run_state_machine_as_test(FastVerbs, settings=settings(COMMON, max_examples=6, stateful_step_count=20))


def corrected(chat: Session) -> None:
    """Two turns, a correction in the first."""
    chat.user("the pandas and the others")
    chat.generate(max_tokens=40)
    chat.rollback(to=11)
    chat.inject("a correction")
    chat.generate(max_tokens=20)
    chat.user("and more")
    chat.generate(max_tokens=10)


def test_undo_redo_and_fork_keep_the_classes(tiny_path: Path) -> None:
    with unsay.load(tiny_path, prefill=FAST, kv_tokens=4096) as model, model.session(params=PARAMS) as chat:
        corrected(chat)
        keys = chat._timeline.context.keys()
        assert 0 < sum(map(is_fast, keys)) < len(keys)
        for steps in (1, 2, 4):
            chat.undo(steps)
            squeeze(model)
            assert_exact(model, chat, fresh(model, chat))
            chat.redo(steps)
            assert chat._timeline.context.keys() == keys
        with chat.fork() as child:
            assert child._timeline.context.keys() == keys
            assert_exact(model, child, fresh(model, chat))


def test_a_log_gives_back_the_classes(tiny_path: Path, tmp_path: Path) -> None:
    with SessionLog(tmp_path / "sessions.db") as log:
        with unsay.load(tiny_path, prefill=FAST) as model, model.session(params=PARAMS, log=log) as chat:
            corrected(chat)
            with chat.fork() as child:
                child.user("elsewhere")
                child.generate(max_tokens=5)
                child.rollback(to=2)
                wanted = [(each._timeline.context.keys(), each.logits()) for each in (chat, child)]
        names = [logged.id for logged in log.sessions()]
        with unsay.load(tiny_path, prefill=FAST) as model:
            for name, (keys, logits) in zip(names, wanted, strict=True):
                with model.restore(log, name) as restored:
                    assert restored._timeline.context.keys() == keys
                    assert np.array_equal(restored.logits(), logits)
        with unsay.load(tiny_path) as exact, pytest.raises(RequestError, match="prefill='fast'"):
            exact.restore(log, names[0])


def test_an_exact_session_stays_exact_in_a_model_with_fast_prompts(tiny_path: Path, tmp_path: Path) -> None:
    with SessionLog(tmp_path / "sessions.db") as log:
        with unsay.load(tiny_path) as model, model.session(params=PARAMS, log=log) as chat:
            corrected(chat)
            logits = chat.logits()
        (logged,) = log.sessions()
        with unsay.load(tiny_path, prefill=FAST) as model, model.restore(log, logged.id) as restored:
            assert np.array_equal(restored.logits(), logits)
            restored.user("go on")
            assert not any(map(is_fast, restored._timeline.context.keys()))


def test_a_prompt_beside_an_answer_changes_neither(tiny_path: Path) -> None:
    """Steps of the two classes take turns."""
    params = SamplingParams(temperature=1.0, seed=4, max_tokens=30, ignore_eos=True)
    prompts = [list(range(10, 40)), list(range(20, 250))]
    with load(tiny_path, prefill=FAST) as model:
        alone = [[event.token_id for event in model.generate(ids, params)] for ids in prompts]
        first = model.generate(prompts[0], params)
        together = [[next(first).token_id for _ in range(5)], []]
        second = model.generate(prompts[1], params)
        for _ in range(25):
            together[1].append(next(second).token_id)
            together[0].append(next(first).token_id)
        together[1] += [event.token_id for event in second]
        assert together == alone


def test_a_class_is_refused_by_name(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="exact, fast"):
        unsay.load(tiny_path, prefill="quick")
    from unsay.compiler.compile import compile_model

    with pytest.raises(UnsupportedError, match="CPU targets"):
        compile_model(tiny_path, target="ptx", prefill=FAST)
