"""Loops, branches and calls of a kernel.

    for k in range(low, high, step):        k is low + step * iteration, a symbol
        pointer += 4096                     pointer is where it began + 4096 * iteration
        sum = sum + tile(k)                 after the loop: sum + the tile reduced over iteration
        acc = dot(a(k), b(k), acc)          after the loop: one product over the whole summed dimension

A loop that every program enters at its own id and leaves at one end (`for row in range(pid, rows, programs)`) visits
every row once: its body is guarded by `row < rows`. Anything else a loop may carry is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unsay.compiler.frontend.triton.affine import Affine, Symbol, of
from unsay.compiler.frontend.triton.folds import REDUCTIONS, contract, reduce
from unsay.compiler.frontend.triton.kernel import Kernel, dtype_of
from unsay.compiler.frontend.triton.text import Block, Dense, Op, Value
from unsay.compiler.frontend.triton.tiles import Data, RefusalError, Splat
from unsay.compiler.frontend.triton.values import Abstract, Accumulated, Carried, Dot, Index, Mask, Pointer, Poison
from unsay.isa.formats import DType


def loop(kernel: Kernel, op: Op, operands: list[Abstract]) -> tuple[Abstract, ...]:
    """scf.for(low, high, step, carried...)"""
    low, high, step = (_affine(operand) for operand in operands[:3])
    if not step.is_constant or step.constant < 1:
        raise RefusalError("a loop whose step is not a number")
    is_strided = not (high - low).is_constant
    if is_strided and not high.is_constant:
        raise RefusalError("a loop whose end differs between programs")
    count = -(-(high - low).high // step.constant)
    if count < 1:
        return tuple(operands[3:])
    iteration = Symbol("loop", kernel.new_index(), count)
    position = low + of(iteration) * step.constant
    with kernel.iterating(iteration, [high - Affine(1) - position] if is_strided else []):
        return _iterate(kernel, op.blocks[0], operands[3:], iteration, position, is_strided)


def _iterate(
    kernel: Kernel, body: Block, initial: Sequence[Abstract], iteration: Symbol, position: Affine, is_strided: bool
) -> tuple[Abstract, ...]:
    """The body once, for all iterations."""
    counter, *carried = body.arguments
    kernel.env[counter] = Index(position)
    steps = [_step(kernel.env, body, index, start) for index, start in enumerate(initial)]
    for index, (argument, start, step) in enumerate(zip(carried, initial, steps, strict=True)):
        if step is None:
            kernel.env[argument] = Carried(iteration.index, index, dtype_of(argument.type))
        else:
            kernel.env[argument] = _advanced(start, of(iteration) * step)
    ended = kernel.block(body)
    results: list[Abstract] = []
    for start, step, end in zip(initial, steps, ended, strict=True):
        if step is not None:
            results.append(_advanced(start, Affine(step * iteration.extent)))
        elif isinstance(end, Poison):
            results.append(end)
        elif is_strided:
            raise RefusalError("a loop that programs stride through, carrying a tile")
        else:
            results.append(_finished(kernel, start, end, iteration))
    return tuple(results)


def _finished(kernel: Kernel, start: Abstract, end: Abstract, iteration: Symbol) -> Abstract:
    """What a tile is after the loop: where it began, combined with the terms of all iterations."""
    if isinstance(end, Carried) and end.loop == iteration.index:
        return start
    if not isinstance(end, Accumulated) or end.carried.loop != iteration.index:
        raise RefusalError("carries a tile that is not the one of the iteration before with something accumulated")
    total = start
    for term in end.terms:
        total = _combined(kernel, total, end, _over_iterations(kernel, term, end.combine, iteration))
    return total


def _over_iterations(kernel: Kernel, term: Data | Dot, combine: str, iteration: Symbol) -> Data:
    if isinstance(term, Dot):
        return contract(kernel.tiles, term.a, term.b, [term.summed, iteration], term.dtype)
    return reduce(kernel.tiles, term, iteration, REDUCTIONS[combine])


def _combined(kernel: Kernel, total: Abstract, end: Accumulated, reduced: Data) -> Abstract:
    """total combine reduced; a total that changes nothing is left out."""
    dtype: DType = end.carried.dtype
    if isinstance(total, Carried | Accumulated):
        return kernel.accumulate(total, end.combine, reduced, dtype)
    whole = kernel.data(total, dtype)
    if isinstance(whole, Splat) and whole.number == REDUCTIONS[end.combine].neutral:
        return reduced
    return kernel.tiles.apply(end.combine, whole, reduced)


def _affine(value: Abstract) -> Affine:
    if not isinstance(value, Index) or value.below:
        raise RefusalError("bounds that are not plain index arithmetic")
    return value.value


def _advanced(start: Abstract, by: Affine) -> Abstract:
    match start:
        case Index():
            return Index(start.value + by, start.below)
        case Pointer():
            return replace(start, offset=start.offset + by)
        case _:
            raise AssertionError(start)


def _step(env: Mapping[Value, Abstract], body: Block, index: int, start: Abstract) -> int | None:
    """By how much a carried integer or pointer moves in an iteration; None for a tile."""
    if not isinstance(start, Index | Pointer):
        return None
    argument = body.arguments[index + 1]
    producers = {result: op for op in body.ops for result in op.results}
    step = _distance(env, producers, body.ops[-1].operands[index], argument)
    if step is None and isinstance(start, Pointer):
        raise RefusalError(f"carries {argument.name}, which does not move by a fixed step")
    return step


def _distance(env: Mapping[Value, Abstract], producers: Mapping[Value, Op], end: Value, argument: Value) -> int | None:
    """end - argument, where end is argument plus numbers; None for anything else."""
    total = 0
    while end is not argument:
        op = producers.get(end)
        if op is None or op.name not in ("tt.addptr", "arith.addi", "arith.subi"):
            return None
        onto, by = op.operands
        if op.name == "arith.addi" and _constant(env, producers, onto) is not None:
            onto, by = by, onto
        step = _constant(env, producers, by)
        if step is None:
            return None
        total += -step if op.name == "arith.subi" else step
        end = onto
    return total


def _constant(env: Mapping[Value, Abstract], producers: Mapping[Value, Op], value: Value) -> int | None:
    """A number known before the loop, or made of such in its body."""
    found, op = env.get(value), producers.get(value)
    if isinstance(found, Index) and found.value.is_constant:
        return found.value.constant
    if op is None:
        return None
    if op.name == "arith.constant":
        given = op.attributes.get("value")
        given = given.value if isinstance(given, Dense) else given
        return given if isinstance(given, int) else None
    parts = [_constant(env, producers, operand) for operand in op.operands]
    if op.name in ("tt.splat", "arith.extsi"):
        return parts[0]
    whole = [part for part in parts if part is not None]
    return whole[0] * whole[1] if op.name == "arith.muli" and len(whole) == 2 else None


def branch(kernel: Kernel, op: Op, operands: list[Abstract]) -> tuple[Abstract, ...]:
    """scf.if with a condition that is the same for all programs of this launch"""
    (mask,) = operands
    if not isinstance(mask, Mask) or mask.known is None:
        raise RefusalError("a branch that some programs take and others do not")
    taken = op.blocks[0 if mask.known else 1 :][:1]
    return kernel.block(taken[0]) if taken else ()


def call(kernel: Kernel, op: Op, operands: list[Abstract]) -> tuple[Abstract, ...]:
    """tt.call: the function in place, as often as it is called"""
    name = str(op.attributes.get("callee"))
    function = kernel.functions.get(name)
    if function is None or not function.blocks:
        raise RefusalError(f"calls {name[:80]!r}, whose body is not in the file")
    (body,) = function.blocks
    takes, gives = ([value.type for value in values] for values in (body.arguments, body.ops[-1].operands))
    if takes != [value.type for value in op.operands] or gives != [value.type for value in op.results]:
        raise RefusalError(f"calls {name[:80]!r} with other types than it has")
    with kernel.entered(op):
        kernel.env.update(zip(body.arguments, operands, strict=True))
        return kernel.block(body)
