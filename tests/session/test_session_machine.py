"""Random sequences of verbs; after each, every session's next logits are those of a run that has seen nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import unsay
from tests.tiny import write_tiny_gguf
from unsay import Model, SamplingParams, Session

PARAMS = SamplingParams(temperature=1.0, seed=11, ignore_eos=True)
TEXTS = st.sampled_from(["the pan", " pandas", "\n", "é", "<|im_end|>", "a b c d e f g h i j k l m n o p"])
CONTEXT_LENGTH = 256


class Verbs(RuleBasedStateMachine):
    """Sessions of one model, each beside a list of the ids it must hold and the ids of every history entry."""

    executor = "null"
    models: dict[str, Model] = {}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        if self.executor not in self.models:
            path = write_tiny_gguf(
                Path(tempfile.mkdtemp()) / "tiny.gguf", context_length=CONTEXT_LENGTH, extra_tokens=11
            )
            self.models[self.executor] = unsay.load(path, executor=self.executor, num_threads=2, kv_tokens=4096)
        self.model = self.models[self.executor]
        self.sessions: list[Session] = []

    @initialize()
    def start(self) -> None:
        chat = self.model.session(params=PARAMS)
        chat.user("go")
        self.sessions.append(chat)

    def pick(self, data: st.DataObject) -> Session:
        return self.sessions[data.draw(st.integers(0, len(self.sessions) - 1))]

    def room(self, chat: Session) -> int:
        return CONTEXT_LENGTH - len(chat.token_ids)

    @rule(data=st.data(), num_tokens=st.integers(1, 20))
    def generate(self, data: st.DataObject, num_tokens: int) -> None:
        chat = self.pick(data)
        if self.room(chat) > 0:
            before = chat.token_ids
            events = list(chat.stream(max_tokens=num_tokens))
            assert chat.token_ids == before + [event.token_id for event in events]

    @rule(data=st.data(), num_tokens=st.integers(2, 12), text=TEXTS)
    def correct_while_streaming(self, data: st.DataObject, num_tokens: int, text: str) -> None:
        chat = self.pick(data)
        if self.room(chat) < 80:
            return
        place = data.draw(st.integers(0, len(chat.answer_ids)))
        for number, event in enumerate(chat.stream(max_tokens=num_tokens)):
            if number == num_tokens // 2:
                kept = chat.answer_ids[:place]
                chat.rollback(to=place)
                chat.inject(text)
                assert chat.answer_ids[:place] == kept
            assert event.index < CONTEXT_LENGTH

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        chat = self.pick(data)
        before, num_answer = chat.token_ids, len(chat.answer_ids)
        to = data.draw(st.integers(0, num_answer))
        chat.rollback(to=to)
        assert chat.token_ids == before[: len(before) - num_answer + to]

    @rule(data=st.data(), text=TEXTS)
    def inject(self, data: st.DataObject, text: str) -> None:
        chat = self.pick(data)
        if self.room(chat) > 40:
            before = chat.token_ids
            chat.inject(text)
            assert chat.token_ids[: len(before)] == before

    @rule(data=st.data(), text=TEXTS)
    def user(self, data: st.DataObject, text: str) -> None:
        chat = self.pick(data)
        if self.room(chat) > 100:
            before = chat.token_ids
            chat.user(text)
            assert chat.token_ids[: len(before)] == before

    @rule(data=st.data())
    def undo_and_redo(self, data: st.DataObject) -> None:
        chat = self.pick(data)
        depth = _depth(chat)
        if depth == 0:
            return
        steps = data.draw(st.integers(1, depth))
        before = chat.token_ids
        chat.undo(steps)
        chat.redo(steps)
        assert chat.token_ids == before

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        chat = self.pick(data)
        if _depth(chat) > 1:
            chat.undo()

    @rule(data=st.data())
    def checkout(self, data: st.DataObject) -> None:
        chat = self.pick(data)
        entries = chat.history()
        entry = entries[data.draw(st.integers(1, len(entries) - 1))] if len(entries) > 1 else entries[0]
        chat.checkout(entry.number)
        assert len(chat.token_ids) == entry.num_tokens

    @precondition(lambda self: 0 < len(self.sessions) < 4)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        chat = self.pick(data)
        self.sessions.append(chat.fork())
        assert self.sessions[-1].token_ids == chat.token_ids

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        chat = self.pick(data)
        self.sessions.remove(chat)
        chat.close()

    @invariant()
    def every_state_is_fresh(self) -> None:
        self.model.tree.check()
        for chat in self.sessions:
            if chat.token_ids:
                assert np.array_equal(chat.logits(), self.model.logits(chat.token_ids)[-1])

    def teardown(self) -> None:
        for chat in self.sessions:
            chat.close()
        self.model.tree.check()
        assert self.model.tree.pool.num_used == 0


def _depth(chat: Session) -> int:
    entries = {entry.number: entry for entry in chat.history()}
    entry = next(entry for entry in entries.values() if entry.is_current)
    depth = 0
    while entry.parent is not None:
        entry = entries[entry.parent]
        depth += 1
    return depth


class NativeVerbs(Verbs):
    """The same on machine code with two threads."""

    executor = "native"


COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}

TestVerbs = Verbs.TestCase
TestVerbs.settings = settings(max_examples=15, stateful_step_count=20, **COMMON)
TestNativeVerbs = NativeVerbs.TestCase
TestNativeVerbs.settings = settings(max_examples=4, stateful_step_count=20, **COMMON)
