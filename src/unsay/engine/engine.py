"""The engine: the step, and who runs it.

There is no engine thread. Whoever needs a token runs a step for all requests while the others sleep; what a step makes
goes to the queues of its owners.

    reader A:  next_event -> steps (A, B) -> own event  -> next_event -> steps ...
    reader B:  next_event -> sleeps       -> own event  -> next_event -> sleeps ...
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from unsay.core import PAGE_TOKENS, Float32Array, TokenEvent
from unsay.engine.bell import Bell
from unsay.engine.drafter import Drafter
from unsay.engine.request import Request
from unsay.engine.sampler import Sampler
from unsay.engine.scheduler import Scheduler, Share, make_batch
from unsay.errors import RequestError
from unsay.forked import begins_anew, free
from unsay.isa.classes import num_of_one_class
from unsay.runtime.executor import Executor
from unsay.vm.context import Context
from unsay.vm.machine import Machine


class Engine:
    """Runs requests on one executor. Every method may be called from any thread.

    speculate: compute guesses along with the next token; the tokens are the same with and without (drafter.py).
    A KeyboardInterrupt may come anywhere and leaves the model to others (docs/decisions/015).
    """

    def __init__(self, executor: Executor, *, speculate: bool = True) -> None:
        self._speculates = speculate
        self.scheduler = Scheduler(executor.max_tokens, executor.max_rows, executor.spec.context_length)
        self.sampler = Sampler(executor.scan)
        self._changed = Bell()
        self.machine = Machine(executor)
        self._interrupt_word = executor.interrupt_word
        self._stepper: int | None = None
        self._computing: list[int] = []
        """Threads that wait for a turn of their own, in order: whoever would step once more lets them go first."""
        self._is_step_due = False
        """Whether a chunk of such a thread was computed since the last step: they take turns."""
        self._is_closed = False
        begins_anew(self)

    def begin_anew(self) -> None:
        """In a forked child: a step of another thread is dropped there, and may be run again."""
        free(self.scheduler.lock)
        self._computing = [thread for thread in self._computing if thread == threading.get_ident()]
        if self._stepper is not None and not self.is_stepping_here:
            self._end_step()
            self._stepper = None

    def step(self) -> list[TokenEvent]:
        """One token for every lane, one chunk for every prompt that fits."""
        batch = self.scheduler.next_batch()
        logits = self.machine.run(batch)
        choices = self.sampler.sample(logits, batch)
        return self.scheduler.commit(batch, choices)

    def close(self) -> None:
        """Stop what runs and end the executor's threads; requests end with RequestError. Idempotent."""
        self._check_outside()
        self._is_closed = True
        self._interrupt_word[0] = 1
        try:
            self._take_turn(even_closed=True)
            self.machine.executor.close()
            self._let_go()
        except BaseException:
            self._let_go()
            raise

    def drafter(self, history: list[int], dropped: Sequence[int] = ()) -> Drafter | None:
        """Where a request may get guesses from; see `Drafter`."""
        return Drafter(history, dropped) if self._speculates else None

    def submit(self, request: Request) -> None:
        """Let a request that was not withdrawn take part in the steps to come, from where the tree has its tokens."""
        with self.scheduler.lock:
            if not request.is_withdrawn:
                _reuse_prefix(request.context)
                self.scheduler.add(request)

    def next_event(self, request: Request) -> TokenEvent | None:
        """The request's next token, computed here if nobody else is at it; None when it is over or withdrawn.

        Raises what ended the request, as OutOfPagesError.
        """
        while True:
            try:
                sleeper = None
                with self.scheduler.lock:
                    if request.is_withdrawn:
                        return None
                    if request.events:
                        return request.events.popleft()
                    if request.error is not None:
                        raise request.error
                    if request.finish is not None:
                        return None
                    if self._stepper is None and not self._computing:
                        self._check_open()
                        self._stepper = threading.get_ident()
                        self._is_step_due = False
                    else:
                        sleeper = self._changed.listen()
                if sleeper is None:
                    self.step()
                else:
                    sleeper.acquire()
            finally:
                self._let_go()

    @property
    def is_stepping_here(self) -> bool:
        """Whether this thread is in the middle of a step: then a signal handler asks."""
        return self._stepper == threading.get_ident()

    def recover(self) -> None:
        """When a stream ends, in whatever way: a KeyboardInterrupt may have come into the end of a step."""
        self._let_go()

    def stop(self, request: Request) -> None:
        """Compute nothing for a request any more, in the middle of a step if need be; `withdraw` follows.

        Takes no lock and waits for nothing, so until then its context may be in use. What a step makes for it is
        dropped; if a step was stopped, the others in it have it run again, to its end.
        """
        request.is_withdrawn = True
        scheduler = self.scheduler
        if request in scheduler.in_flight and (not scheduler.must_end or scheduler.is_for_nobody):
            self._interrupt_word[0] = 1

    def withdraw(self, request: Request) -> None:
        """Stop a request and take it out; when this returns its context is the caller's.

        No step is waited for. Machine code on its way out may still write behind the context's length, in pages it had
        reserved: rows nobody reads, and a page finds another owner only through who steps next.
        """
        with self.scheduler.lock:
            self.stop(request)
            self.scheduler.remove(request)

    def compute(self, context: Context, num_rows: int) -> Float32Array:
        """Compute what is pending in a context no request uses; logits [num_rows, V] of its last tokens, in NumPy.

        Between two chunks, of one call or of several, those who stream have a step: here, if no reader makes it. Calls
        of several threads take turns. Raises OutOfPagesError.
        """
        import numpy as np

        chunks: list[bytes] = []
        try:
            while context.pending:
                self._take_turn()
                if self._is_step_due:
                    self.step()
                    self._end_step()
                chunks.append(self._compute_chunk(context, num_rows))
                self._is_step_due = True
                self._let_go()
        except BaseException:
            self._let_go()
            raise
        logits = np.frombuffer(bytearray().join(chunks), np.float32)
        return logits.reshape(-1, self.machine.executor.spec.vocab_size)[-num_rows:]

    def _compute_chunk(self, context: Context, num_rows: int) -> bytes:
        """One step for this context alone; only rows among the wanted ones."""
        num_wanted = max(0, min(num_rows, len(context.pending)))
        num_before = len(context.pending) - num_wanted
        limit = min(self.scheduler.max_tokens, num_before or self.scheduler.max_rows)
        num_tokens = num_of_one_class(context.pending, limit)
        context.branch.reserve(num_tokens)
        batch = make_batch([Share(context, num_tokens, 0 if num_before else num_tokens)])
        while (logits := self.machine.run(batch)) is None:
            self._interrupt_word[0] = 0
        copied = b"".join(logits)
        context.commit(num_tokens)
        return copied

    def _take_turn(self, even_closed: bool = False) -> None:
        """Wait for the right to run the machine, which one thread has at a time; `_let_go` follows."""
        self._check_outside()
        me = threading.get_ident()
        try:
            while True:
                with self.scheduler.lock:
                    if me not in self._computing:
                        self._computing.append(me)
                    if self._stepper is None and self._computing[0] == me:
                        if not even_closed:
                            self._check_open()
                        self._stepper = me
                        return
                    sleeper = self._changed.listen()
                sleeper.acquire()
        finally:
            self._wait_no_more(me)

    def _wait_no_more(self, me: int) -> None:
        """For a turn of its own; who let it go first is told, unless it has that turn."""
        with self.scheduler.lock:
            if me in self._computing:
                self._computing.remove(me)
            if self._stepper is None:
                self._changed.ring()

    def _check_outside(self) -> None:
        if self.is_stepping_here:
            raise RequestError("a signal handler came into a step of its own thread: it may call interrupt() only")

    def _check_open(self) -> None:
        if self._is_closed:
            raise RequestError("the model is closed: load() it again")

    def _let_go(self) -> None:
        """Let others step, if this thread was, wherever a KeyboardInterrupt came."""
        if not self.is_stepping_here:
            return
        with self.scheduler.lock:
            self._end_step()
            self._stepper = None

    def _end_step(self) -> None:
        """Its events are there for who waits for them, and what stopped it is over."""
        with self.scheduler.lock:
            self.scheduler.in_flight = {}
            self._interrupt_word[0] = 0
            self._changed.ring()


def _reuse_prefix(context: Context) -> None:
    """Move a context to the branch that holds most of its tokens, in their classes; the last stays pending."""
    if len(context.pending) <= PAGE_TOKENS:
        return
    old = context.branch
    keys = context.keys()
    found = old.tree.match(keys[:-1])
    if found.length <= old.length:
        found.release()
        return
    pending = keys[found.length :]
    context.branch, context.pending[:] = found, pending
    old.release()
