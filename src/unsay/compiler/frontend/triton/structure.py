"""What operations of Triton IR are made of: numbers of operands, results and regions, and shapes that fit.

MLIR's own verifier holds of what Triton prints; a file may come from anywhere. Only operations of the table in
operations.py are looked at: others are refused by name when the kernel is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from unsay.compiler.frontend.triton.text import Block, Op, Type
from unsay.errors import IrError

Check: TypeAlias = Callable[[Op], bool]


def check(function: Op) -> None:
    """Raise IrError for the first operation of a function that is not built as its name says."""
    if len(function.blocks) != 1 or not _ends(function.blocks[0], "tt.return"):
        raise IrError("tt.func must have one block that ends in tt.return", *function.location)
    for op in function.blocks[0].ops:
        _check(op)


def _check(op: Op) -> None:
    holds = _CHECKS.get(op.name, _elementwise if op.name.startswith(("arith.", "math.")) else None)
    if holds is not None and not holds(op):
        takes = ", ".join(str(operand.type) for operand in op.operands)
        gives = ", ".join(str(result.type) for result in op.results)
        raise IrError(
            f"{op.name} cannot take ({takes}) and give ({gives}), or has regions that do not fit", *op.location
        )
    for block in op.blocks:
        for inner in block.ops:
            _check(inner)


def _ends(block: Block, name: str) -> bool:
    """The block ends in this operation, and nothing before it ends it."""
    ends = [op.name for op in block.ops if op.name in ("tt.return", "scf.yield", "tt.reduce.return")]
    return ends == [name] and block.ops[-1].name == name


def _types(op: Op) -> tuple[list[Type], list[Type]]:
    return [operand.type for operand in op.operands], [result.type for result in op.results]


def _elementwise(op: Op) -> bool:
    """Shapes of operands and the result are one; a condition may be a scalar."""
    takes, gives = _types(op)
    fits = len(gives) == 1 and not op.blocks and len(takes) == _ARITY.get(op.name, 1 if op.name in _UNARY else 2)
    return fits and all(kind.shape == gives[0].shape for kind in takes[op.name == "arith.select" :])


_UNARY = frozenset({
    "arith.negf", "arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.extsi",
    "arith.extui", "arith.trunci", "arith.index_cast", "math.exp", "math.exp2", "math.log", "math.log2", "math.sqrt",
    "math.rsqrt", "math.sin", "math.cos", "math.erf", "math.tanh", "math.absf", "math.absi", "math.floor", "math.ceil",
})  # fmt: skip
_ARITY = {"arith.constant": 0, "arith.select": 3, "math.fma": 3}


def _numbers(takes: int, gives: int) -> Check:
    return lambda op: len(op.operands) == takes and len(op.results) == gives and not op.blocks


def _splat(op: Op) -> bool:
    takes, gives = _types(op)
    return len(takes) == len(gives) == 1 and takes[0].shape == ()


def _broadcast(op: Op) -> bool:
    takes, gives = _types(op)
    if not len(takes) == len(gives) == 1 or len(takes[0].shape) != len(gives[0].shape):
        return False
    return all(a in (1, b) for a, b in zip(takes[0].shape, gives[0].shape, strict=True))


def _expand_dims(op: Op) -> bool:
    takes, gives = _types(op)
    position = op.integer("axis")
    if not len(takes) == len(gives) == 1 or not 0 <= position <= len(takes[0].shape):
        return False
    return gives[0].shape == (*takes[0].shape[:position], 1, *takes[0].shape[position:])


def _trans(op: Op) -> bool:
    takes, gives = _types(op)
    order = op.integers("order")
    fits = len(takes) == len(gives) == 1 and sorted(order) == list(range(len(takes[0].shape)))
    return fits and gives[0].shape == tuple(takes[0].shape[index] for index in order)


def _add_pointer(op: Op) -> bool:
    takes, gives = _types(op)
    return len(takes) == 2 and gives == takes[:1] and takes[0].shape == takes[1].shape


def _load(op: Op) -> bool:
    takes, gives = _types(op)
    fits = 1 <= len(takes) <= 3 and len(gives) == 1 and all(kind.shape == gives[0].shape for kind in takes)
    return fits and takes[0].is_pointer and takes[0].element == gives[0].element


def _store(op: Op) -> bool:
    takes, gives = _types(op)
    fits = 2 <= len(takes) <= 3 and not gives and all(kind.shape == takes[0].shape for kind in takes)
    return fits and takes[0].is_pointer and takes[0].element == takes[1].element


def _dot(op: Op) -> bool:
    takes, gives = _types(op)
    if len(takes) != 3 or gives != takes[2:] or any(len(kind.shape) != 2 for kind in takes):
        return False
    (rows, inner), (other, columns) = takes[0].shape, takes[1].shape
    return inner == other and gives[0].shape == (rows, columns)


def _reduce(op: Op) -> bool:
    takes, gives = _types(op)
    position = op.integer("axis")
    fits = len(op.blocks) == 1 and _ends(op.blocks[0], "tt.reduce.return") and len(takes) == len(gives) > 0
    if not fits or len(op.blocks[0].arguments) != 2 * len(takes):
        return False
    return all(
        0 <= position < len(kind.shape) and made.shape == (*kind.shape[:position], *kind.shape[position + 1 :])
        for kind, made in zip(takes, gives, strict=True)
    )


def _for(op: Op) -> bool:
    """Low, high, step, then what is carried: in, inside, yielded and out of the same types."""
    takes, gives = _types(op)
    if len(takes) < 3 or len(op.blocks) != 1 or not _ends(op.blocks[0], "scf.yield"):
        return False
    inside = [argument.type for argument in op.blocks[0].arguments]
    yielded = [operand.type for operand in op.blocks[0].ops[-1].operands]
    return takes[3:] == gives == inside[1:] == yielded and len(inside) == len(gives) + 1


def _if(op: Op) -> bool:
    """A condition, and one or two regions that yield the results; one without an else gives nothing."""
    takes, gives = _types(op)
    blocks = [block for block in op.blocks if block.ops]
    fits = takes == [Type("i1")] and 1 <= len(op.blocks) <= 2 and (len(blocks) == 2 or not gives)
    return fits and all(
        _ends(block, "scf.yield") and [operand.type for operand in block.ops[-1].operands] == gives for block in blocks
    )


_CHECKS: dict[str, Check] = {
    "tt.get_program_id": _numbers(0, 1),
    "tt.get_num_programs": _numbers(0, 1),
    "tt.make_range": _numbers(0, 1),
    "tt.reshape": _numbers(1, 1),
    "tt.splat": _splat,
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand_dims,
    "tt.trans": _trans,
    "tt.addptr": _add_pointer,
    "tt.load": _load,
    "tt.store": _store,
    "tt.dot": _dot,
    "tt.reduce": _reduce,
    "tt.fp_to_fp": lambda op: _numbers(1, 1)(op) and op.operands[0].type.shape == op.results[0].type.shape,
    "tt.clampf": lambda op: _numbers(3, 1)(op) and all(x.type.shape == op.results[0].type.shape for x in op.operands),
    "tt.extern_elementwise": lambda op: _numbers(1, 1)(op) and op.operands[0].type.shape == op.results[0].type.shape,
    "tt.precise_divf": lambda op: _numbers(2, 1)(op) and all(x.type == op.results[0].type for x in op.operands),
    "tt.precise_sqrt": lambda op: _numbers(1, 1)(op) and op.operands[0].type == op.results[0].type,
    "scf.for": _for,
    "scf.if": _if,
}
"""Checks of operations that are not element by element."""
