"""The loop: fetch, decode, do.

Control instructions are done by the table in vm/control.py, tensor instructions one by one by the reference
(`runtime.reference.TensorUnit`), STEP by the executor.

Contexts take turns. A turn ends after STEP, SENSE, FORK, HALT and STREAM LOGITS; tensor instructions between two of
these run undisturbed, so contexts of one program may share activation memory. The tensor instructions of a turn see
the pending tokens of the context as this step's tokens; STREAM LOGITS commits them, as STEP does.
"""

from __future__ import annotations

from collections.abc import Generator

from unsay.errors import MachineError
from unsay.isa.opcodes import Channel
from unsay.isa.program import Instruction
from unsay.vm.control import HANDLERS
from unsay.vm.execution import Emitted, Execution, Task, open_batch

_IDLE_WAIT_S = 0.05


def interpret(execution: Execution) -> Generator[Emitted, None, None]:
    """Give every context its turn, round and round, until all have halted."""
    while running := [task for task in execution.tasks.values() if not task.is_halted]:
        for task in running:
            yield from _turn(execution, task)
            if execution.interrupted:
                return
        if all(task.num_idle > 1 for task in running):
            if execution.peripherals.is_over:
                raise MachineError("every context waits to sense something, and nothing more will come")
            execution.peripherals.wait(_IDLE_WAIT_S)


def _turn(execution: Execution, task: Task) -> Generator[Emitted, None, None]:
    task.turn_is_over = task.is_halted
    while not task.turn_is_over:
        _do(execution, task, _fetch(execution, task))
        while execution.emitted:
            yield execution.emitted.popleft()


def _fetch(execution: Execution, task: Task) -> Instruction:
    """The next instruction, with the pc moved past it."""
    if execution.num_steps >= execution.max_steps:
        raise MachineError(f"the program did not halt within {execution.max_steps} instructions; raise --max-steps")
    execution.num_steps += 1
    pc = task.context.pc
    if not 0 <= pc < len(execution.program):
        raise MachineError(f"context {task.id} ran off the program: pc {pc} of {len(execution.program)}; end with HALT")
    task.context.pc = pc + 1
    return execution.program.instructions[pc]


def _do(execution: Execution, task: Task, op: Instruction) -> None:
    if _is_tensor(op):
        _do_tensor(execution, task, op)
    else:
        task.batch = None
        HANDLERS[op.row.name](execution, task, op)


def _do_tensor(execution: Execution, task: Task, op: Instruction) -> None:
    context = task.context
    if op.row.name == "STREAM" and not context.pending:
        raise MachineError(f"STREAM: context {task.id} has no pending tokens; begin with a prompt, or INJECT first")
    if task.batch is None:
        task.batch = open_batch(context, len(context.pending))
    logits = execution.unit.execute(op, context.registers, task.batch)
    if logits is not None:
        if not len(logits):
            raise MachineError("STREAM LOGITS of no rows: the tensor is empty")
        context.commit(len(task.batch.token_ids))
        execution.keep_logits(task, logits)


def _is_tensor(op: Instruction) -> bool:
    """Whether the tensor unit executes it; of STREAM, the channels EMBED and LOGITS."""
    return op.row.tensor and (op.row.name != "STREAM" or op.integer("channel") in (Channel.EMBED, Channel.LOGITS))
