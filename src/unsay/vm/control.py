"""What each control instruction does: one function each, and the table that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from unsay.errors import ContextFullError, MachineError
from unsay.isa.opcodes import NO_REGISTER, Channel, Peripheral
from unsay.isa.program import Instruction
from unsay.runtime.interpreted import in_views
from unsay.vm.execution import Emitted, Execution, Task, open_batch

Handler: TypeAlias = Callable[[Execution, Task, Instruction], None]


def _step(execution: Execution, task: Task, op: Instruction) -> None:
    context, spec = task.context, execution.executor.spec
    if not context.pending:
        raise MachineError(f"STEP: context {task.id} has no pending tokens; SAMPLE or STREAM INJECT first")
    if context.length > spec.context_length:
        raise ContextFullError(f"{context.length} tokens, the model's context holds {spec.context_length}")
    if (largest := max(context.pending)) >= spec.vocab_size > 0:
        raise MachineError(
            f"STEP: token {largest} is not in the vocabulary of the linked model, 0..{spec.vocab_size - 1}"
        )
    while context.pending:
        num_tokens = min(len(context.pending), execution.executor.max_tokens)
        batch = open_batch(context, num_tokens, wants_logits=num_tokens == len(context.pending))
        logits = execution.executor.run(in_views(batch))
        if logits is None:
            execution.interrupted = task.turn_is_over = True
            return
        context.commit(num_tokens)
        if logits:
            task.set(op.registers[0], execution.keep_logits(task, np.stack(logits)))


def _stream(execution: Execution, task: Task, op: Instruction) -> None:
    handlers: dict[int, Handler] = {Channel.SAMPLE: _sample, Channel.EMIT: _emit, Channel.INJECT: _inject}
    handler = handlers.get(op.integer("channel"))
    if handler is None:
        raise MachineError(f"STREAM: there is no channel {op.integer('channel')}")
    handler(execution, task, op)


def _sample(execution: Execution, task: Task, op: Instruction) -> None:
    if task.logits is None:
        raise MachineError(f"STREAM SAMPLE: context {task.id} has no logits; STEP first")
    token_id = execution.choose(task.logits, task.context)
    task.context.append([token_id])
    task.logits = None
    task.set(op.registers[0], token_id)


def _emit(execution: Execution, task: Task, op: Instruction) -> None:
    execution.emitted.append(Emitted(task.id, task.get(_used(op, 1))))


def _inject(execution: Execution, task: Task, op: Instruction) -> None:
    task.context.append(execution.memory.record(task.get(_used(op, 1))).token_ids)
    task.logits = None


def _used(op: Instruction, place: int) -> int:
    """The register in a field that the table calls optional and this use of it needs."""
    register = op.registers[place]
    if register == NO_REGISTER:
        raise MachineError(f"{op.row.name}: {('rd', 'ra', 'rb', 'rc')[place]} is needed here")
    return register


def _halt(execution: Execution, task: Task, op: Instruction) -> None:
    task.is_halted = task.turn_is_over = True


def _fork(execution: Execution, task: Task, op: Instruction) -> None:
    child = execution.add(task.context.fork())
    child.logits = task.logits
    child.context.pc = op.integer("label")
    child.set(op.registers[0], 0)
    task.set(op.registers[0], child.id)
    task.turn_is_over = True


def _abort(execution: Execution, task: Task, op: Instruction) -> None:
    number = task.get(op.registers[1])
    other = task if number == 0 else execution.tasks.get(number)
    if other is None:
        raise MachineError(f"ABORT: there is no context {number}; there are 0..{len(execution.tasks) - 1}")
    record = execution.memory.record(task.get(op.registers[2]))
    other.context.abort(record.target, record.token_ids)
    other.logits = None
    other.is_halted = False
    other.num_idle = 0


def _sense(execution: Execution, task: Task, op: Instruction) -> None:
    number = op.integer("peripheral")
    if number not in tuple(Peripheral):
        raise MachineError(f"SENSE: there is no peripheral {number}")
    record = execution.peripherals.take(Peripheral(number))
    task.set(op.registers[0], 0 if record is None else execution.memory.deliver(record))
    task.num_idle = task.num_idle + 1 if record is None else 0
    task.turn_is_over = True


def _jump(execution: Execution, task: Task, op: Instruction) -> None:
    task.context.pc = op.integer("label")


def _branch(execution: Execution, task: Task, op: Instruction) -> None:
    if (task.get(op.registers[1]) == 0) == op.has("IF_ZERO"):
        task.context.pc = op.integer("label")


def _load(execution: Execution, task: Task, op: Instruction) -> None:
    task.set(op.registers[0], op.integer("high") << 64 | op.integer("low"))


def _checkpoint(execution: Execution, task: Task, op: Instruction) -> None:
    task.set(op.registers[0], task.context.length)
    task.context.checkpoint()


def _compare(execution: Execution, task: Task, op: Instruction) -> None:
    a, b = task.get(op.registers[1]), task.get(op.registers[2])
    task.set(op.registers[0], int((op.has("LESS") and a < b) or (op.has("EQUAL") and a == b)))


def _iadd(execution: Execution, task: Task, op: Instruction) -> None:
    task.set(op.registers[0], task.get(op.registers[1]) + task.get(op.registers[2]))


HANDLERS: dict[str, Handler] = {
    "HALT": _halt,
    "STREAM": _stream,
    "FORK": _fork,
    "ABORT": _abort,
    "SENSE": _sense,
    "JUMP": _jump,
    "BRANCH": _branch,
    "STEP": _step,
    "LOAD": _load,
    "CHECKPOINT": _checkpoint,
    "COMPARE": _compare,
    "IADD": _iadd,
}
