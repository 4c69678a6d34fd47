"""One conversation: the verbs that change it, and which thread may call them.

Ids are kept and never made anew from text. Text of users and of corrections is encoded with specials off.

Threads. One thread at a time runs `stream`. It may call any verb between two events, and the loop goes on from what the
verb left. Other threads get SessionBusyError, except for `interrupt`, after which the session is free.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from unsay.core import Float32Array, SamplingParams, TokenEvent
from unsay.engine.engine import Engine
from unsay.engine.params import changed, validate
from unsay.errors import RequestError
from unsay.session.correction import Correction, Corrections
from unsay.session.handler import came_into_us
from unsay.session.history import Entry, History, Node, Place
from unsay.session.replay import Verb
from unsay.session.run import Runner
from unsay.session.text import Diff, answer_text, diff_of, find_before
from unsay.session.timeline import Timeline
from unsay.session.tokenizer import Tokenizer
from unsay.session.turns import Turns
from unsay.vm.context import check_position


class Session:
    """Made by `Model.session`; close it, or use it in a `with` block.

    params: how tokens are chosen unless `stream` says otherwise. finish: why the answer ended ("stop", "length",
    "interrupt"), None while it is open.
    """

    __slots__ = (
        "__weakref__", "_corrections", "_engine", "_lock", "_runner", "_timeline", "_tokenizer", "_turns", "params",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, turns: Turns, timeline: Timeline, params: SamplingParams
    ) -> None:
        self.params = params
        self._engine = engine
        self._tokenizer = tokenizer
        self._turns = turns
        self._timeline = timeline
        self._corrections = Corrections()
        self._runner = Runner(engine, tokenizer, timeline, self._corrections)
        self._lock = self._runner.lock

    # What is there

    @property
    def finish(self) -> str | None:
        """Why the answer ended, None while it may go on."""
        return self._runner.finish

    @property
    def token_ids(self) -> list[int]:
        """Every token of the context."""
        with self._lock:
            return self._runner.look().token_ids

    @property
    def answer_ids(self) -> list[int]:
        """The tokens of the answer; one that ended it is among them."""
        with self._lock:
            return self._runner.look().answer_ids

    @property
    def answer(self) -> str:
        """The answer as shown: whole characters, up to a stop string. While it streams, what was streamed."""
        with self._lock:
            timeline, streamed = self._runner.look(), self._runner.streamed
            if streamed is not None:
                return streamed
            place = timeline.place
            return answer_text(self._tokenizer, timeline.answer_ids, place.stop, is_final=place.finish is not None)

    @property
    def correction(self) -> Correction | None:
        """Figures of the last correction (rollback, injection); those of its first token are None until it is there."""
        return self._corrections.last

    def logits(self) -> Float32Array:
        """Logits of the next token [V], at the end of what was delivered.

        They are computed in a fork, and the session's context gets what that has if it is there still and nobody
        streams in it: meanwhile nobody waits for this session.
        """
        with self._lock:
            context = self._runner.settle().context
            self._timeline.check_not_empty()
            context.abort(context.length)
            fork = context.fork()
        try:
            logits = self._engine.compute(fork, 1)[0]
            fork.abort(fork.length)
            with self._lock:
                if self._runner.streamed is None:
                    self._timeline.exchange(context, fork)
            return logits
        finally:
            fork.release()

    # Growing

    def user(self, text: str) -> None:
        """Close the turn that is open, say `text`, and open the answer.

        Raises RequestError for no text, ContextFullError when it does not fit.
        """
        _check_text("user message", text)
        with self._lock:
            self._runner.settle()
            if not self._place.has_turns:
                ids = self._turns.first(text)
                ids = ids if self._place.length else self._tokenizer.with_bos(ids)
            else:
                ids = self._without_second_end(self._turns.next(text))
            self._grow(Verb.USER, ids, opens_answer=True, has_turns=True)
            self._corrections.forget()

    def append(self, text: str, special: bool = False) -> None:
        """Add raw text, without a template; the answer begins after it. special: names of special tokens count."""
        _check_text("text", text)
        with self._lock:
            self._runner.settle()
            ids = self._tokenizer.encode(text, special)
            ids = ids if self._place.length else self._tokenizer.with_bos(ids)
            self._grow(Verb.APPEND, ids, opens_answer=True, has_turns=self._place.has_turns)
            self._corrections.forget()

    def inject(self, text: str) -> None:
        """Put literal text into the answer where it stands; the next token continues it. An ended answer is open again.

        What a rollback left of a token before the place it was asked for goes in front.
        """
        _check_text("injection", text)
        started = perf_counter()
        with self._lock:
            timeline = self._runner.settle()
            ids = self._tokenizer.encode(self._corrections.carry + text)
            self._check_fits(Verb.INJECT, len(ids) - self._runner.has_end)
            timeline.enter()  # with why it ended, before it is open again
            self._runner.reopen()
            kept = self._place.length
            self._grow(Verb.INJECT, ids, opens_answer=False, has_turns=self._place.has_turns)
            self._corrections.inject(kept, len(ids), started)

    # Answering

    def stream(self, max_tokens: int | None = None, **params: Any) -> Iterator[TokenEvent]:
        """Go on with the answer, token by token. params: fields of SamplingParams to change for this call.

        max_tokens bounds the tokens made by the call, whatever is taken back meanwhile. Nothing is held before the
        first event is asked for. Raises RequestError, ContextFullError or SessionBusyError at once.
        """
        merged = changed(self.params, params if max_tokens is None else {**params, "max_tokens": max_tokens})
        validate(merged, self._tokenizer.vocab_size)
        with self._lock:
            self._runner.settle()
            self._runner.check_goes_on()
        return self._runner.stream(merged)

    def generate(self, max_tokens: int | None = None, **params: Any) -> str:
        """`stream` to its end; returns the whole answer."""
        for _ in self.stream(max_tokens, **params):
            pass
        return self.answer

    def interrupt(self) -> bool:
        """Stop what streams, inside the token; from any thread. False if nothing did.

        When it returns the session is free; the interrupted loop ends. With a log the stop is on the disk then, unless
        a signal handler came into the library: it may call this, and no other verb, wherever it comes
        (docs/decisions/015).
        """
        is_stopped = self._runner.interrupt()
        if is_stopped and self._timeline.is_logged and not came_into_us(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            with self._lock:
                self._runner.look()
        return is_stopped

    # Taking back

    def rollback(self, to: int | None = None, *, before: str | None = None) -> int:
        """Take back the answer from token `to` on, or from the first occurrence of the text `before` on.

        Returns the number of tokens kept, and costs the same for any context. A token that holds the first character of
        `before` goes; characters before it in that token are put in front of the next injection.
        Raises PositionError, or RequestError if the text is not in the answer.
        """
        started = perf_counter()
        if (to is None) == (before is None):
            raise RequestError("rollback takes one of to=<token index of the answer> and before=<text of the answer>")
        with self._lock:
            timeline = self._runner.claim()
            place = timeline.place
            if before is None:
                index, carry = check_position(to, (0, place.length - place.answer_start), "rollback position"), ""
            else:
                index, carry = find_before(self._tokenizer, timeline.answer_ids, before)
            target = place.answer_start + index
            dropped = timeline.rollback(target)
            self._corrections.rollback(target, dropped, started, carry)
            return index

    def fork(self) -> Session:
        """A second session in the same state, with a history of its own; shares every page."""
        with self._lock:
            timeline = self._runner.claim().fork()
            child = Session(self._engine, self._tokenizer, self._turns, timeline, self.params)
            child._corrections.carry = self._corrections.carry
            return child

    # History

    def undo(self, steps: int = 1) -> None:
        """Be as before the last verb; the tokens sampled since the last verb count as one. Exact, and O(1)."""
        self._walk(steps, Verb.UNDO, History.undo)

    def redo(self, steps: int = 1) -> None:
        """Take an undo back."""
        self._walk(steps, Verb.REDO, History.redo)

    def checkout(self, number: int) -> None:
        """Be as at an entry of `history()`."""
        with self._lock:
            timeline = self._runner.settle()
            timeline.enter()
            timeline.go_to([timeline.history.find(number)], Verb.CHECKOUT, number)
            self._corrections.forget()

    def history(self) -> list[Entry]:
        """Everything that happened, also what was undone. RequestError if the session is closed."""
        with self._lock:
            timeline = self._runner.look()
            timeline.check_open()
            timeline.enter()
            return timeline.entries(self._tokenizer)

    def diff(self, a: int | None = None, b: int | None = None) -> Diff:
        """What entry b has that entry a has not; by default the current entry and the one before it."""
        with self._lock:
            timeline = self._runner.settle()
            timeline.enter()
            history = timeline.history
            new = history.current if b is None else history.find(b)
            old = (new.parent or new) if a is None else history.find(a)
            return diff_of(self._tokenizer, timeline.ids_at(old), timeline.ids_at(new))

    def _walk(self, steps: int, verb: Verb, step: Callable[[History, Node], Node]) -> None:
        check_position(steps, (1, 2**31 - 1), "number of steps")
        with self._lock:
            timeline = self._runner.settle()
            timeline.enter()
            path = [timeline.history.current]
            for _ in range(steps):
                path.append(step(timeline.history, path[-1]))
            timeline.go_to(path[1:], verb, steps)
            self._corrections.forget()

    # The end

    def close(self) -> None:
        """Stop, and give everything back; idempotent. What was said stays readable, but in a fork or behind an undo
        only if it was read before; the history does not."""
        with self._lock:
            self._runner.interrupt()  # in the lock: no stream begins before the session is closed
            self._runner.look().release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Shared by the verbs; the lock is held

    def _grow(self, verb: Verb, ids: list[int], opens_answer: bool, has_turns: bool) -> None:
        self._check_fits(verb, len(ids))
        self._timeline.grow(verb, ids, opens_answer, has_turns)
        self._corrections.carry = ""

    @property
    def _place(self) -> Place:
        return self._timeline.place

    def _without_second_end(self, ids: list[int]) -> list[int]:
        """The ids that close a turn, without its end token if the answer has it already."""
        last = self._timeline.ids[self._place.length - 1]
        return ids[1:] if ids[0] == last and last in self._tokenizer.eos_ids else ids

    def _check_fits(self, verb: Verb, num_ids: int) -> None:
        self._runner.check_room(num_ids + 1, f"the {verb.value} text and one token of answer")


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str) or not text:
        raise RequestError(f"the {what} is {text!r}: it must be text of at least one character")
