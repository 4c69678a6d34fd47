"""What the engine knows of one answer in the making."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from unsay.core import Lane, SamplingParams, TokenEvent
from unsay.engine.drafter import Drafter
from unsay.errors import UnsayError
from unsay.runtime.scan import is_plain
from unsay.vm.context import Context

_ids = itertools.count(1)

MAX_UNDELIVERED = 2
"""Events a request may be ahead of its reader, so that requests read by different threads still share steps."""


class Request:
    """One answer in the making. Changed only under the scheduler's lock, but for the mark that `Engine.stop` makes.

    context: owned by the caller; holds all tokens before the next, at least one of them pending.
    history: ids of the context, kept by the caller and grown here as tokens are chosen.
    answer_start: where in `history` the answer begins. eos_ids: tokens that end it (empty to ignore them).
    num_left: tokens still allowed. drafter: where guesses at the next tokens come from, None for none.
    finish: why no more will come. error: what ended it instead.
    """

    __slots__ = (
        "_is_plain", "answer_start", "context", "drafter", "eos_ids", "error", "events", "finish", "history", "id",
        "is_withdrawn", "last_turn", "num_computed", "num_left", "params",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        params: SamplingParams,
        history: list[int],
        answer_start: int,
        eos_ids: frozenset[int],
        num_left: int,
        drafter: Drafter | None = None,
    ) -> None:
        self.context, self.params, self.history, self._is_plain = context, params, history, is_plain(params)
        self.answer_start, self.eos_ids, self.num_left, self.drafter = answer_start, eos_ids, num_left, drafter
        self.num_computed = 0
        self.last_turn = 0
        self.events: deque[TokenEvent] = deque()
        self.finish: str | None = None
        self.error: UnsayError | None = None
        self.is_withdrawn = False
        self.id = next(_ids)

    @property
    def is_over(self) -> bool:
        """Whether no step will run for it any more."""
        return self.is_withdrawn or self.finish is not None or self.error is not None

    @property
    def is_runnable(self) -> bool:
        """Whether the next step may compute for it."""
        return not self.is_over and len(self.events) < MAX_UNDELIVERED

    def guesses(self, most: int, context_length: int) -> list[int]:
        """Ids that may be the next ones, and leave room for one more. None for the first token: it is waited for."""
        if self.drafter is None or self.num_computed == 0:
            return []
        return self.drafter.propose(min(most, self.num_left - 1, context_length - len(self.history) - 1))

    def lanes(self, guesses: Sequence[int]) -> list[Lane]:
        """What the sampler has to know for the next token, and for the one behind each guess."""
        plain = self._is_plain
        lanes = [Lane(self.id, self.params, len(self.history), self.history, self.answer_start, None, plain)]
        for number, guess in enumerate(guesses, 1):
            before = [*self.history, *guesses[:number]]
            lanes.append(Lane(self.id, self.params, len(before), before, self.answer_start, guess, plain))
        return lanes

    def accept(self, token_id: int, logprob: float, context_length: int) -> TokenEvent:
        """Take a chosen token: it becomes pending, and may be the last one."""
        length, context, finish = len(self.history), self.context, None
        if token_id in self.eos_ids:
            finish = "stop"
        elif self.num_left == 1 or length + 1 == context_length:
            finish = "length"
        event = TokenEvent(length - self.answer_start, token_id, "", logprob, finish)
        # No call from here on: no KeyboardInterrupt comes between.
        context.pending += [token_id]
        self.history += [token_id]
        self.events += [event]
        self.num_left -= 1
        self.finish = finish
        return event
