"""The state of one run of a program: its contexts as tasks, its memory, and what it has done so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from unsay.core import Float32Array
from unsay.errors import MachineError
from unsay.isa.opcodes import NO_REGISTER
from unsay.isa.program import Program
from unsay.runtime.executor import Executor
from unsay.runtime.interpreted import ArrayBatch
from unsay.runtime.reference import TensorUnit
from unsay.vm.context import Context
from unsay.vm.memory import Memory
from unsay.vm.peripherals import Peripherals

MAX_CONTEXTS = 1024
_REGISTER_MASK = 2**128 - 1

Choose: TypeAlias = Callable[[Float32Array, Context], int]
"""Picks the next token from logits [V]."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """A token a program handed out, and which context did."""

    context_id: int
    token_id: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended. contexts: by id, 0 is the one it began with, alive until released; logits: [V] of the last
    step of any context; interrupted: the executor was told to stop, and nothing of that step was committed."""

    contexts: dict[int, Context]
    logits: Float32Array | None
    num_steps: int
    interrupted: bool


@dataclass(slots=True)
class Task:
    """A context and what the machine knows of it. batch: this step's tokens, while tensor instructions work on them;
    num_idle: SENSE that found nothing, since anything else of note."""

    id: int
    context: Context
    logits: Float32Array | None = None
    batch: ArrayBatch | None = None
    is_halted: bool = False
    turn_is_over: bool = False
    num_idle: int = 0

    def get(self, register: int) -> int:
        """Value of a register; R0 is zero."""
        return self.context.registers[register]

    def set(self, register: int, value: int) -> None:
        """Set a register; R0 and an unused field take nothing."""
        if register not in (0, NO_REGISTER):
            self.context.registers[register] = value & _REGISTER_MASK


@dataclass(slots=True)
class Execution:
    """One run of a program."""

    executor: Executor
    program: Program
    memory: Memory
    unit: TensorUnit
    peripherals: Peripherals
    choose: Choose
    max_steps: int
    tasks: dict[int, Task] = field(default_factory=dict[int, Task])
    emitted: deque[Emitted] = field(default_factory=deque[Emitted])
    logits: Float32Array | None = None
    num_steps: int = 0
    interrupted: bool = False

    def add(self, context: Context) -> Task:
        """A new task; its id is the next number."""
        if len(self.tasks) >= MAX_CONTEXTS:
            raise MachineError(f"FORK: a program may have {MAX_CONTEXTS} contexts")
        task = Task(len(self.tasks), context)
        self.tasks[task.id] = task
        return task

    def outcome(self) -> Outcome:
        """What is left."""
        contexts = {task.id: task.context for task in self.tasks.values()}
        return Outcome(contexts, self.logits, self.num_steps, self.interrupted)

    def keep_logits(self, task: Task, logits: Float32Array) -> int:
        """A step of this task is done: keep its last row, for SAMPLE and the outcome. Returns its address."""
        task.batch = None
        task.num_idle = 0
        task.turn_is_over = True
        task.logits = self.logits = logits[-1].copy()
        return self.memory.write_logits(logits[-1:])


def open_batch(context: Context, num_tokens: int, *, wants_logits: bool = True) -> ArrayBatch:
    """Reserve rows for the first `num_tokens` pending tokens, as a batch of their own."""
    context.branch.reserve(num_tokens)
    start = context.branch.length
    return ArrayBatch(
        token_ids=np.array(context.pending[:num_tokens], np.int32),
        positions=np.arange(start, start + num_tokens, dtype=np.int32),
        sequence=np.zeros(num_tokens, np.int32),
        page_tables=np.asarray(context.branch.page_table())[None],
        logit_rows=np.arange(num_tokens, dtype=np.int32)[-1 if wants_logits else num_tokens :],
    )
