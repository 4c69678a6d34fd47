"""Who runs in the next step: continuous batching over the requests that are waiting for a token.

    lanes     requests with one pending token: all of them, the least recently served first; one that is alone gets
              guesses at its next tokens along (drafter.py)
    prompts   requests with more: as many of their tokens as still fit, in order of arrival

A step computes in one class of arithmetic (isa/classes.py). Where both are wanted, they take turns.

A request joins and leaves between two steps. Where a prompt is cut shows nowhere in the bits (docs/numerics.md).
"""

from __future__ import annotations

import itertools
import math
import threading
from array import array
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from unsay.core import Batch, Int32View, Lane, TokenEvent
from unsay.engine.request import Request
from unsay.engine.sampler import Choice
from unsay.errors import ModelFileError, OutOfPagesError, UnsayError
from unsay.isa.classes import ids_of, is_fast, num_of_one_class
from unsay.vm.context import Context

_NOT_FINITE = (
    "the logits of token {} are not finite numbers: the model file is damaged, or a value in it is beyond what it is "
    "computed with"
)


class Share(NamedTuple):
    """A context's part of a step: its next `num_tokens` pending tokens, then guesses; logits of the last `num_rows`."""

    context: Context
    num_tokens: int
    num_rows: int
    guesses: Sequence[int] = ()

    @property
    def size(self) -> int:
        """Tokens it computes."""
        return self.num_tokens + len(self.guesses)


class Scheduler:
    """Holds the requests in order of arrival and the shares of the step in flight.

    max_tokens, max_rows: what one step takes. The lock guards the requests too; `next_batch` and `commit` alternate.
    must_end: whether the next step is one that others run again, since it was stopped: it is not stopped once more
    while one of them waits for it, or they might never get on.
    """

    def __init__(self, max_tokens: int, max_rows: int, context_length: int) -> None:
        self.lock = threading.RLock()
        self.max_tokens = max_tokens
        self.max_rows = max_rows
        self.context_length = context_length
        self.requests: list[Request] = []
        self.in_flight: dict[Request, Share] = {}
        self.must_end = False
        self._turns = itertools.count(1)
        self._was_fast = False

    def add(self, request: Request) -> None:
        """Let it take part from the next step on."""
        assert request.context.pending, "a request has something to compute"
        with self.lock:
            self.requests.append(request)

    def remove(self, request: Request) -> None:
        """Take it out if it is not yet. The lock is held."""
        if request in self.requests:
            self.requests.remove(request)

    @property
    def is_for_nobody(self) -> bool:
        """Whether none of the step in flight waits for it any more; asked without the lock."""
        return all(request.is_withdrawn for request in tuple(self.in_flight))

    def next_batch(self) -> Batch:
        """Choose who takes part in the next step, reserve the pages and write it down; empty if nobody waits.

        A request for which no pages are left ends with OutOfPagesError; the others go on.
        """
        guesses = self._guesses()
        lanes: list[Lane] = []
        with self.lock:
            self.in_flight = {}
            for request, wanted in self._candidates(guesses):
                self.in_flight[request] = wanted  # first: `Engine.stop`, without the lock, says it and looks here then
                share = None if request.is_withdrawn else self._reserve(request, wanted)
                if share is None:
                    del self.in_flight[request]
                    continue
                self.in_flight[request] = share
                if share.num_rows:
                    lanes += request.lanes(share.guesses)
            return make_batch([*self.in_flight.values()], lanes)

    def commit(self, batch: Batch, choices: Sequence[Choice | None] | None) -> list[TokenEvent]:
        """Move the lengths and hand every chosen token to its request; nothing at all if the step was interrupted."""
        with self.lock:
            in_flight, self.in_flight = self.in_flight, {}
            self.must_end = choices is None and any(not request.is_withdrawn for request in in_flight)
            if choices is None:
                return []
            assert len(choices) == len(batch.lanes), (len(choices), len(batch.lanes))
            events: list[TokenEvent] = []
            start = 0
            for request, share in in_flight.items():
                events += self._advance(request, share, choices[start : start + share.num_rows])
                start += share.num_rows
            return events

    def _advance(self, request: Request, share: Share, rows: Sequence[Choice | None]) -> list[TokenEvent]:
        """Take what was chosen after the pending tokens, and after each guess that was right."""
        if request.is_withdrawn:
            return []
        choices: list[Choice] = []
        for choice in rows:
            if choice is None:
                break
            if math.isnan(choice.logprob):
                self._end(request, ModelFileError(_NOT_FINITE.format(len(request.history))))
                return []
            choices.append(choice)
        if request.drafter is not None and share.guesses:
            request.drafter.learn(len(choices) - 1)
        events = self._accept(request, choices)
        request.context.commit(share.num_tokens + max(0, len(events) - 1))
        request.num_computed += share.size
        request.last_turn = next(self._turns)
        if request.is_over:
            self.remove(request)
        return events

    def _accept(self, request: Request, choices: Sequence[Choice]) -> list[TokenEvent]:
        """Until one ends the answer."""
        events: list[TokenEvent] = []
        for choice in choices:
            events.append(request.accept(choice.token_id, choice.logprob, self.context_length))
            if request.is_over:
                break
        return events

    def _guesses(self) -> dict[Request, list[int]]:
        """For a request that will have the step to itself, if it is one token. Without the lock, which others wait for:
        a drafter belongs to who steps, and guesses that come too late are for nobody."""
        runnable = [request for request in tuple(self.requests) if request.is_runnable]
        if len(runnable) != 1 or len(runnable[0].context.pending) != 1:
            return {}
        return {runnable[0]: runnable[0].guesses(min(self.max_tokens, self.max_rows) - 1, self.context_length)}

    def _candidates(self, guessed: Mapping[Request, list[int]]) -> list[tuple[Request, Share]]:
        runnable = [request for request in self.requests if request.is_runnable]
        lanes = [request for request in runnable if len(request.context.pending) == 1]
        lanes.sort(key=attrgetter("last_turn"))
        prompts = [request for request in runnable if len(request.context.pending) > 1]
        wants_fast = self._choose_class(runnable)
        room, room_for_rows = self.max_tokens, self.max_rows
        chosen: list[tuple[Request, Share]] = []
        for request in [*lanes, *prompts]:
            if is_fast(request.context.pending[0]) is not wants_fast:
                continue
            num_tokens = num_of_one_class(request.context.pending, room)
            if num_tokens == 0 or room_for_rows == 0:
                break
            is_last = num_tokens == len(request.context.pending)
            guesses = guessed.get(request, []) if len(runnable) == num_tokens == 1 and not wants_fast else []
            share = Share(request.context, num_tokens, int(is_last) + len(guesses), guesses)
            chosen.append((request, share))
            room -= share.size
            room_for_rows -= share.num_rows
        return chosen

    def _choose_class(self, runnable: Sequence[Request]) -> bool:
        """Whether the next step is of the fast class: the classes wanted take turns."""
        wanted = {is_fast(request.context.pending[0]) for request in runnable}
        self._was_fast = True in wanted and not (self._was_fast and False in wanted)
        return self._was_fast

    def _reserve(self, request: Request, share: Share) -> Share | None:
        """The share with its pages: without guesses if there are none for them, None if there are none at all."""
        try:
            share.context.branch.reserve(share.size)
        except OutOfPagesError as error:
            if share.guesses:
                return self._reserve(request, Share(share.context, share.num_tokens, 1))
            self._end(request, error)
            return None
        return share

    def _end(self, request: Request, error: UnsayError) -> None:
        """End a request with an error; its context stays as it is."""
        request.error = error
        self.remove(request)


def make_batch(shares: Sequence[Share], lanes: Sequence[Lane] = ()) -> Batch:
    """The shares, whose rows are reserved and whose tokens are of one class, as one batch."""
    keys: list[int] = []
    positions, sequence, logit_rows = array("i"), array("i"), array("i")
    for row, share in enumerate(shares):
        start, count = share.context.branch.length, share.size
        keys += share.context.pending[: share.num_tokens]
        keys += share.guesses
        positions.extend(range(start, start + count))
        sequence.extend([row] * count)
        logit_rows.extend(range(len(keys) - share.num_rows, len(keys)))
    wants_fast = is_fast(max(keys, default=0))
    assert is_fast(min(keys, default=0)) is wants_fast, "a step is of one class"
    tables = _side_by_side([share.context.branch.page_table() for share in shares])
    token_ids = array("i", ids_of(keys) if wants_fast else keys)
    ids, places, of, rows = map(memoryview, (token_ids, positions, sequence, logit_rows))
    return Batch(ids, places, of, tables, rows, tuple(lanes), wants_fast)


def _side_by_side(tables: Sequence[array[int]]) -> Int32View:
    """Page tables as rows of one length. Copies: a branch may change while machine code leaves a stopped step."""
    if not tables:
        return memoryview(array("i"))
    width = max(map(len, tables))
    rows = array("i")
    for table in tables:
        rows += table
        rows.extend([-1] * (width - len(table)))
    return memoryview(rows).cast("B").cast("i", (len(tables), width))
