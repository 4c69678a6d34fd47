"""How a session streams, and how it is stopped.

    stream      a generator of one Run: begin, next_event until there is none, end
    claim       every verb begins with it: the run makes nothing more of its own, and goes on from what the verb leaves
    settle      and with this, but a rollback: what the run made ahead of its reader is dropped
    interrupt   the run is stopped, in the middle of a token if need be
    look        whoever wants to know anything of the session ends a run that was stopped first

One thread runs the generator. It may call verbs between two events; others are refused, until they interrupt it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import get_ident

from unsay.core import SamplingParams, TokenEvent
from unsay.engine.engine import Engine
from unsay.engine.request import Request
from unsay.errors import ContextFullError, SessionBusyError
from unsay.forked import begins_anew, free
from unsay.session.correction import Corrections
from unsay.session.lock import HoldingLock
from unsay.session.replay import Verb
from unsay.session.text import answer_text
from unsay.session.textstream import TextStream
from unsay.session.timeline import Timeline
from unsay.session.tokenizer import Tokenizer


class Run:
    """One call of `stream`: whose it is, what it may still make, and the request that makes it.

    text: the answer as far as it was streamed. is_stopped: set by `interrupt`, which takes no lock; whoever has the
    session's lock next, the loop or a verb, ends the run.
    """

    __slots__ = ("is_stopped", "num_left", "params", "stream", "text", "thread")

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.num_left = params.max_tokens
        self.thread = get_ident()
        self.stream: TextStream | None = None
        self.text = ""
        self.is_stopped = False


class Runner:
    """The run of one session, if there is one.

    lock: the session's. It is held where a verb asks (streamed, look, claim, settle, reopen), and taken by the
    others but `interrupt` and `finish`, which a signal handler may ask for.
    Around each token it is taken plain: there it holds nothing back (session/lock.py).
    """

    __slots__ = ("__weakref__", "_corrections", "_engine", "_plain", "_run", "_timeline", "_tokenizer", "lock")

    def __init__(self, engine: Engine, tokenizer: Tokenizer, timeline: Timeline, corrections: Corrections) -> None:
        holding = HoldingLock() if timeline.is_logged else None
        self._plain = threading.RLock() if holding is None else holding.plain
        self.lock: AbstractContextManager[object] = holding or self._plain
        self._engine = engine
        self._tokenizer = tokenizer
        self._timeline = timeline
        self._corrections = corrections
        self._run: Run | None = None
        begins_anew(self)

    def begin_anew(self) -> None:
        """In a forked child: what another thread streamed has stopped."""
        free(self._plain)
        run = self._run
        if run is not None and run.thread != get_ident():
            run.is_stopped = True
            if run.stream is not None:
                run.stream.request.is_withdrawn = True

    # What the verbs ask

    @property
    def finish(self) -> str | None:
        """Why the answer ended, None while it may go on."""
        run, finish = self._run, self._timeline.place.finish
        return "interrupt" if finish is None and run is not None and run.is_stopped else finish

    @property
    def streamed(self) -> str | None:
        """The answer as streamed; None where nothing streams."""
        run = self._run
        return None if run is None or run.stream is None else run.text

    def look(self) -> Timeline:
        """Where the session stands, a run that was stopped being over."""
        run = self._run
        if run is not None and run.is_stopped:
            self._finish(run)
        return self._timeline

    def claim(self) -> Timeline:
        """Where a verb begins: nobody else changes the session. What runs ahead is still there.

        Raises SessionBusyError if another thread generates, RequestError if the session is closed.
        """
        run, timeline = self._run, self._timeline
        if run is not None:
            if run.is_stopped:
                self._finish(run)
            elif run.thread != get_ident():
                raise SessionBusyError("another thread is generating on this session: call interrupt() first")
            else:
                self._withdraw(run)
        if not timeline.is_open:
            timeline.check_open()
        return timeline

    def settle(self) -> Timeline:
        """The same, and what runs ahead is dropped."""
        timeline = self.claim()
        timeline.settle()
        return timeline

    @property
    def has_end(self) -> bool:
        """Whether the last token of the answer said its end."""
        place = self._timeline.place
        is_ended = place.finish == "stop" and place.length > place.answer_start
        return is_ended and self._timeline.ids[place.length - 1] in self._tokenizer.eos_ids

    def reopen(self) -> None:
        """An answer that ended may go on: a token that said its end is taken out."""
        if self.has_end:
            self._timeline.take_end()
        else:
            self._timeline.open_answer()

    def check_goes_on(self) -> None:
        """Something is there to continue, and room for one token: asked when `stream` is called, and where it begins
        and goes on, since verbs may have come between."""
        self._timeline.check_not_empty()
        self.check_room(1, "the answer")

    def check_room(self, num_tokens: int, what: str) -> None:
        """ContextFullError if so many do not fit."""
        length, limit = self._timeline.place.length, self._engine.scheduler.context_length
        if length + num_tokens > limit:
            advice = "shorten it" if num_tokens > limit else "roll back, or start a new session"
            raise ContextFullError(
                f"no room for {what}: {num_tokens} tokens on top of {length}, and the model's context holds {limit}; "
                f"{advice}"
            )

    # A run

    def stream(self, params: SamplingParams) -> Iterator[TokenEvent]:
        """The events of a run, which begins when the first is asked for and ends in whatever way the generator does."""
        run = Run(params)
        try:
            self._begin(run)
            while (event := self._next_event(run)) is not None:
                yield event
        finally:
            try:
                self._end(run)
            except BaseException:  # once more: a KeyboardInterrupt may have come before it did anything
                self._end(run)
                raise

    def _begin(self, run: Run) -> None:
        with self.lock:
            self.settle()
            self._run = None
            self.reopen()
            self._run = run

    def _next_event(self, run: Run) -> TokenEvent | None:
        """The next event of a run; None when it is over, here or by somebody else."""
        with self._plain:
            if run.is_stopped or self._run is not run or self._timeline.place.finish is not None or not run.num_left:
                return None
            stream = run.stream = run.stream or self._start_stream(run)
        event = None if run.is_stopped else stream.next()
        with self._plain:
            if event is None or self._run is not run or run.stream is not stream or not self._deliver(run, event):
                return None
            self._corrections.first_token(stream.request.num_computed)
        if self.lock is not self._plain and self._timeline.is_behind:
            with self.lock:
                self._timeline.log_answer()
        return event

    def _start_stream(self, run: Run) -> TextStream:
        timeline = self._timeline
        timeline.settle()
        self.check_goes_on()
        context, ids = timeline.context, timeline.ids
        context.abort(context.length)
        run.text = answer_text(self._tokenizer, timeline.answer_ids, (), is_final=False)
        eos_ids = frozenset[int]() if run.params.ignore_eos else self._tokenizer.eos_ids
        drafter = self._engine.drafter(ids, timeline.dropped)
        request = Request(context, run.params, ids, timeline.place.answer_start, eos_ids, run.num_left, drafter)
        return TextStream(self._engine, self._tokenizer, request)

    def _deliver(self, run: Run, event: TokenEvent) -> bool:
        """Make it part of the answer; False if the run was stopped first."""
        timeline = self._timeline
        assert event.index == timeline.place.length - timeline.place.answer_start, (event, timeline.place)
        place = timeline.grown(event.finish, run.params.stop if event.finish == "stop" else ())
        if run.is_stopped:
            return False
        # No call from here on: an interrupt() that has returned finds the token in the answer, or it never comes in.
        run.num_left -= 1
        run.text += event.text
        timeline.place = place
        return True

    def _end(self, run: Run) -> None:
        self._engine.recover()
        with self.lock:
            if self._run is run:
                self._withdraw(run)
                self._timeline.settle()
                if run.is_stopped:
                    self._finish(run)
                self._run = None
                self._timeline.log_answer()

    # Its stop

    def interrupt(self) -> bool:
        """From here on nothing is computed for the run and nothing of it delivered; False if there is none.

        It takes no lock, so a signal handler may call it anywhere, and makes few calls, since a step has pushed the
        interpreter out of the caches. What a lock guards is left to `look` (docs/decisions/012).
        """
        run = self._run
        if run is None or run.is_stopped:
            return False
        run.is_stopped = True
        stream = run.stream
        if stream is not None:
            self._engine.stop(stream.request)
        return True

    def _finish(self, run: Run) -> None:
        if run.stream is not None:
            self._engine.withdraw(run.stream.request)
        self._timeline.stop()  # first: `finish` looks without the lock
        self._run = run.stream = None
        self._timeline.log_answer(Verb.INTERRUPT)

    def _withdraw(self, run: Run) -> None:
        if run.stream is not None:
            self._engine.withdraw(run.stream.request)
            run.stream = None
