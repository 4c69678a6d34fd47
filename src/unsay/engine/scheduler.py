"""Who runs in the next step: continuous batching over the requests that are waiting for a token.

    lanes     requests with one pending token: all of them, the least recently served first
    prompts   requests with more: as many of their tokens as still fit, in order of arrival

A request joins and leaves between two steps. Where a prompt is cut shows nowhere in the bits (docs/numerics.md).
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unsay.core import Batch, Int32Array, Lane, TokenEvent
from unsay.engine.request import Request
from unsay.engine.sampler import Choice
from unsay.errors import ModelFileError, OutOfPagesError, UnsayError
from unsay.vm.context import Context

_NOT_FINITE = (
    "the logits of token {} are not finite numbers: the model file is damaged, or a value in it is beyond what it is "
    "computed with"
)


@dataclass(frozen=True, slots=True)
class Share:
    """A context's part of a step: its next `num_tokens` pending tokens, with logits of the last `num_rows`."""

    context: Context
    num_tokens: int
    num_rows: int


class Scheduler:
    """Holds the requests in order of arrival and the shares of the step in flight.

    max_tokens, max_rows: what one step takes. The lock guards the requests too; `next_batch` and `commit` alternate.
    """

    def __init__(self, max_tokens: int, max_rows: int, context_length: int) -> None:
        self.lock = threading.RLock()
        self.max_tokens = max_tokens
        self.max_rows = max_rows
        self.context_length = context_length
        self.requests: list[Request] = []
        self.in_flight: list[tuple[Request, Share]] = []
        self._turns = itertools.count(1)

    def add(self, request: Request) -> None:
        """Let it take part from the next step on."""
        assert request.context.pending, "a request has something to compute"
        with self.lock:
            self.requests.append(request)

    def remove(self, request: Request) -> None:
        """Take it out; nothing happens if it is out already."""
        with self.lock:
            if request in self.requests:
                self.requests.remove(request)

    def select(self) -> tuple[Request, ...]:
        """Choose who takes part in the next step and reserve the pages; () if there is nothing to do.

        A request for which no pages are left ends with OutOfPagesError; the others go on.
        """
        with self.lock:
            self.in_flight = [pair for pair in self._candidates() if self._reserve(*pair)]
            return tuple(request for request, _ in self.in_flight)

    def next_batch(self) -> Batch:
        """The step in flight as arrays."""
        with self.lock:
            shares = [share for _, share in self.in_flight]
            return make_batch(shares, [request.lane for request, share in self.in_flight if share.num_rows])

    def commit(self, batch: Batch, choices: Sequence[Choice] | None) -> list[TokenEvent]:
        """Move the lengths and hand every chosen token to its request; nothing at all if the step was interrupted."""
        with self.lock:
            in_flight, self.in_flight = self.in_flight, []
            if choices is None:
                return []
            assert len(choices) == len(batch.lanes), (len(choices), len(batch.lanes))
            chosen = iter(choices)
            events = (self._advance(*pair, chosen) for pair in in_flight)
            return [event for event in events if event is not None]

    def _advance(self, request: Request, share: Share, chosen: Iterator[Choice]) -> TokenEvent | None:
        choice = next(chosen) if share.num_rows else None
        if request.is_withdrawn:
            return None
        if choice is not None and math.isnan(choice.logprob):
            self._end(request, ModelFileError(_NOT_FINITE.format(len(request.history))))
            return None
        request.context.commit(share.num_tokens)
        request.num_computed += share.num_tokens
        request.last_turn = next(self._turns)
        if choice is None:
            return None
        event = request.accept(choice.token_id, choice.logprob, self.context_length)
        if request.is_over:
            self.remove(request)
        return event

    def _candidates(self) -> list[tuple[Request, Share]]:
        runnable = [request for request in self.requests if request.is_runnable]
        lanes = sorted((r for r in runnable if len(r.context.pending) == 1), key=lambda request: request.last_turn)
        prompts = [request for request in runnable if len(request.context.pending) > 1]
        room = self.max_tokens
        chosen: list[tuple[Request, Share]] = []
        for request in [*lanes, *prompts]:
            num_tokens = min(room, len(request.context.pending))
            if num_tokens == 0 or len(chosen) == self.max_rows:
                break
            is_last = num_tokens == len(request.context.pending)
            chosen.append((request, Share(request.context, num_tokens, int(is_last))))
            room -= num_tokens
        return chosen

    def _reserve(self, request: Request, share: Share) -> bool:
        try:
            share.context.branch.reserve(share.num_tokens)
        except OutOfPagesError as error:
            self._end(request, error)
            return False
        return True

    def _end(self, request: Request, error: UnsayError) -> None:
        """End a request with an error; its context stays as it is."""
        request.error = error
        self.remove(request)


def make_batch(shares: Sequence[Share], lanes: Sequence[Lane] = ()) -> Batch:
    """The shares, whose rows are reserved, as one batch."""
    token_ids: list[int] = []
    positions: list[int] = []
    sequence: list[int] = []
    logit_rows: list[int] = []
    for row, share in enumerate(shares):
        start, count = share.context.branch.length, share.num_tokens
        token_ids += share.context.pending[:count]
        positions += range(start, start + count)
        sequence += [row] * count
        logit_rows += range(len(token_ids) - share.num_rows, len(token_ids))
    return Batch(
        np.array(token_ids, np.int32),
        np.array(positions, np.int32),
        np.array(sequence, np.int32),
        _page_tables([share.context for share in shares]),
        np.array(logit_rows, np.int32),
        tuple(lanes),
    )


def _page_tables(contexts: Sequence[Context]) -> Int32Array:
    tables = [context.branch.page_table() for context in contexts]
    rows = np.full((len(tables), max(map(len, tables))), -1, np.int32)
    for row, table in zip(rows, tables, strict=True):
        row[: len(table)] = table
    return rows
