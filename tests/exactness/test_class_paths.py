"""Sessions whose prompts are of the fast class: whatever path of verbs, the same tokens in the same classes, and bits.

Tokens outside answers are fast, what was sampled or injected is exact; a fork, an undo or a log changes neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

import unsay
from tests.exactness.test_company import load
from tests.exactness.test_paths import COMMON, PARAMS, ExactVerbs, assert_exact, fresh, keys, squeeze
from tests.session.test_session_machine import CONTEXT_LENGTH
from tests.tiny import write_tiny_gguf
from unsay import Session
from unsay.core import SamplingParams
from unsay.errors import RequestError, SessionLogError
from unsay.isa.classes import FAST, is_fast
from unsay.session.history import Entry
from unsay.session.journal import read_settings, settings_of
from unsay.session.log import SessionLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SessionLog]:
    with SessionLog(tmp_path / "sessions.db") as opened:
        yield opened


class FastVerbs(ExactVerbs):
    """The verbs of test_paths.py with prompts in the fast class. given: the classes of what a session began with."""

    executor = "fast"

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Session, list[bool]] = {}

    @invariant()
    def every_state_is_fresh(self) -> None:
        """Not as in tests/session: `Model.logits` is of a prompt, all of one class."""
        self.model.tree.check()

    @invariant()
    def classes_follow_from_the_verbs(self) -> None:
        for chat in self.sessions:
            entries = chat.history()
            classes = list(map(is_fast, keys(chat)))
            given = self.given.setdefault(chat, classes[: entries[0].num_tokens])
            current = next(entry.number for entry in entries if entry.is_current)
            assert classes == classes_at(entries, current, given)


def classes_at(entries: list[Entry], number: int, given: list[bool]) -> list[bool]:
    """Whether each token of an entry is fast, from how it came there."""
    entry = entries[number]
    if entry.parent is None:
        return given
    kept = classes_at(entries, entry.parent, given)[: entry.num_tokens]
    return kept + [entry.verb in ("user", "append")] * (entry.num_tokens - len(kept))


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


def test_undo_redo_fork_and_checkout_keep_the_classes(tiny_path: Path) -> None:
    with unsay.load(tiny_path, prefill=FAST, kv_tokens=4096) as model, model.session(params=PARAMS) as chat:
        corrected(chat)
        before = keys(chat)
        for steps in (1, 2, 4):
            chat.undo(steps)
            squeeze(model)
            assert_exact(model, chat, fresh(model, chat))
            chat.redo(steps)
            assert keys(chat) == before
        with chat.fork() as child:
            assert keys(child) == before
            assert_exact(model, child, fresh(model, chat))
        for entry in chat.history()[1:]:
            chat.checkout(entry.number)
            assert keys(chat)[: entry.num_tokens] == keys(chat)
            assert_exact(model, chat, fresh(model, chat))
        chat.checkout(len(chat.history()) - 1)
        assert keys(chat) == before


def test_what_is_said_is_fast_and_what_is_answered_exact(tiny_path: Path) -> None:
    with load(tiny_path, prefill=FAST) as model, model.session(params=PARAMS) as chat:
        for verb, is_prompt in (
            (lambda: chat.append("the pandas"), True), (lambda: chat.generate(max_tokens=3), False),
            (lambda: chat.inject(" pan"), False), (lambda: chat.user("and others"), True),
            (lambda: chat.generate(max_tokens=3), False), (lambda: chat.append("pandas"), True),
        ):  # fmt: skip
            before = keys(chat)
            verb()
            assert keys(chat)[: len(before)] == before
            added = keys(chat)[len(before) :]
            assert added and {is_fast(key) for key in added} == {is_prompt}


@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_guesses_change_no_token(tiny_path: Path, kv: str) -> None:
    """Guesses are answers: computed exactly, whatever the prompt they are copied from is."""
    answers = []
    for speculate in (True, False):
        with (
            load(tiny_path, prefill=FAST, kv=kv, speculate=speculate) as model,
            model.session(temperature=0, ignore_eos=True) as chat,
        ):
            chat.append("a b c d e f g h " * 6)
            chat.generate(max_tokens=60)
            chat.rollback(to=20)
            chat.inject(" pan")
            chat.generate(max_tokens=60)
            assert_exact(model, chat, fresh(model, chat))
            answers.append(keys(chat))
    assert answers[0] == answers[1]


def test_a_log_gives_back_the_classes(tiny_path: Path, log: SessionLog) -> None:
    with unsay.load(tiny_path, prefill=FAST) as model, model.session(params=PARAMS, log=log) as chat:
        corrected(chat)
        with chat.fork() as child:
            child.user("elsewhere")
            child.generate(max_tokens=5)
            child.rollback(to=2)
            wanted = [(keys(each), each.logits()) for each in (chat, child)]
    names = [logged.id for logged in log.sessions()]
    with unsay.load(tiny_path, prefill=FAST) as model:
        for name, (before, logits) in zip(names, wanted, strict=True):
            with model.restore(log, name) as restored:
                assert keys(restored) == before
                assert np.array_equal(restored.logits(), logits)
    with unsay.load(tiny_path) as exact, pytest.raises(RequestError, match=f"{names[0]}.*prefill='fast'"):
        exact.restore(log, names[0])


def test_a_log_names_the_class_and_one_of_before_has_no_other_than_exact() -> None:
    settings_now = settings_of("Be brief.", PARAMS, is_fast=True)
    assert read_settings(settings_now) == ("Be brief.", PARAMS, True)
    old = {name: value for name, value in settings_now.items() if name != "prefill"}
    assert read_settings(old) == ("Be brief.", PARAMS, False)
    with pytest.raises(SessionLogError, match="of the class 'faster', this unsay has exact, fast"):
        read_settings({**settings_now, "prefill": "faster"})


def test_an_exact_session_stays_exact_in_a_model_with_fast_prompts(tiny_path: Path, log: SessionLog) -> None:
    with unsay.load(tiny_path) as model, model.session(params=PARAMS, log=log) as chat:
        corrected(chat)
        logits = chat.logits()
        chat.user("go on")
        answer = chat.generate(max_tokens=30)
        chat.undo(2)
    (logged,) = log.sessions()
    with unsay.load(tiny_path, prefill=FAST) as model, model.restore(log, logged.id) as restored:
        assert np.array_equal(restored.logits(), logits)
        restored.user("go on")
        assert not any(map(is_fast, keys(restored)))
        with model.session(params=PARAMS) as other:
            other.append("the pandas and the others")
            streams = [chat.stream(max_tokens=30) for chat in (restored, other)]
            for _ in range(30):
                for stream in streams:
                    next(stream)
            assert restored.answer == answer, "in steps that take turns with those of another class"
            assert_exact(model, other, fresh(model, other))


def test_the_same_words_in_two_classes_share_no_page(tiny_path: Path, log: SessionLog) -> None:
    said = "the pandas and the others " * 4
    with unsay.load(tiny_path) as model, model.session(params=PARAMS, log=log) as chat:
        chat.append(said)
    (logged,) = log.sessions()
    with (
        unsay.load(tiny_path, prefill=FAST) as model,
        model.restore(log, logged.id) as exact,
        model.session(params=PARAMS) as fast,
    ):
        fast.append(said)
        assert fast.token_ids == exact.token_ids
        for chat in (exact, fast):
            next(chat.stream(max_tokens=1))
            assert_exact(model, chat, fresh(model, chat))
        pages = [set(chat._timeline.context.branch.page_table()) for chat in (exact, fast)]
        assert len(pages[0]) > 2 and not pages[0] & pages[1]


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
