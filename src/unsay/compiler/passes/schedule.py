"""Says in which stage each operation runs: what is in one stage does not depend on each other.

    y = op(x1, x2, ..)   ->   y = op(x1, x2, ..) {sema.stage = 1 + the latest stage of the x}         0 without operands

A schedule for any hardware: stages run one after the other; within a stage operations may run in any order or at once,
on the devices their types name, transfers beside computation. verify/spec.py checks every stage that is written down,
and plan_memory keeps the memory of all that may run at once apart.
"""

from __future__ import annotations

from unsay.compiler.dialect.sema import STAGE
from unsay.compiler.ir.core import Graph


def schedule(graph: Graph) -> int:
    """Number of operations whose stage was set or changed."""
    changed = 0
    for operation in graph.operations:
        stages = [operand.producer.integer(STAGE) for operand in operation.operands]
        stage = 1 + max(stages) if stages else 0
        changed += operation.attributes.get(STAGE) != stage
        operation.attributes[STAGE] = stage
    return changed
