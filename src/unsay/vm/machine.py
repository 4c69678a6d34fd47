"""The machine, and the two ways to run it.

`Machine.run` is a model's step: the executor runs the compiled program over a whole batch in one call.
`Machine.execute` runs a program written by hand, instruction by instruction (vm/interpreter.py). Nothing it needs is
imported before it is called: a model that only steps starts without.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from unsay.core import Batch, Float32Array, Float32View
from unsay.runtime.executor import Executor
from unsay.vm.context import Context

if TYPE_CHECKING:
    from unsay.isa.program import Program
    from unsay.vm.execution import Choose, Emitted, Outcome
    from unsay.vm.peripherals import Peripherals

MAX_STEPS = 1_000_000


def greedy(logits: Float32Array, context: Context) -> int:
    """The likeliest token; the lowest id of equals."""
    return int(logits.argmax())


class Machine:
    """Runs programs. weights: PERSISTENT memory for programs that name weights themselves; may be empty."""

    def __init__(self, executor: Executor, weights: memoryview | None = None) -> None:
        self.executor = executor
        self._weights = memoryview(b"") if weights is None else weights

    def run(self, batch: Batch) -> list[Float32View] | None:
        """Run the linked model over a batch: its R rows of logits, as the executor's; None also if it is empty."""
        return self.executor.run(batch) if len(batch.token_ids) else None

    def execute(
        self,
        program: Program,
        context: Context,
        *,
        peripherals: Peripherals | None = None,
        choose: Choose = greedy,
        max_steps: int = MAX_STEPS,
    ) -> Generator[Emitted, None, Outcome]:
        """Run a program from `context`, yielding tokens as it emits them; returns the Outcome.

        Raises MachineError for what the machine forbids, among it more than `max_steps` instructions, and PositionError
        for a correction whose target does not exist. The caller releases the contexts of the outcome.
        """
        from unsay.runtime.reference import TensorUnit
        from unsay.vm.execution import Execution
        from unsay.vm.interpreter import interpret
        from unsay.vm.layout import place
        from unsay.vm.memory import Memory
        from unsay.vm.peripherals import Peripherals

        kv_memory = context.branch.tree.pool.memory
        placed = place(program)
        memory = Memory(placed, self._weights, kv_memory)
        unit = TensorUnit(memory.find, kv_memory, self.executor.spec.kv_layout)
        execution = Execution(self.executor, placed, memory, unit, peripherals or Peripherals(), choose, max_steps)
        execution.add(context)
        yield from interpret(execution)
        return execution.outcome()
