"""Runs Triton IR as a GPU would: program after program, with real addresses and memory. Slow, obvious, the judge.

It shares the parser with the front end and nothing else. A FaultError is what a kernel must not do: leave a tensor,
write one element twice with different values. Masked loads that give no `other` read NaN, or a number that stands out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.triton.launch import Launch
from unsay.compiler.frontend.triton.text import Block, Dense, Op, Type, Value, parse
from unsay.compiler.ir.types import TensorType

Array = NDArray[Any]

_DTYPES = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32}
_PREDICATES = (np.equal, np.not_equal, *(np.less, np.less_equal, np.greater, np.greater_equal) * 2)
_FLOAT_PREDICATES = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal}


class FaultError(Exception):
    """The kernel does what no launch may do."""


class Pointers:
    """Elements of a parameter's tensor, by their places in memory."""

    def __init__(self, parameter: int, places: Array) -> None:
        self.parameter = parameter
        self.places = places

    def map(self, function: Callable[[Array], Array]) -> Pointers:
        return Pointers(self.parameter, function(self.places))


class Interpreter:
    """One launch: `memory` is a flat array for each pointer parameter, NaN where nothing was written."""

    def __init__(self, text: str, launch: Launch, inputs: dict[int, Array]) -> None:
        self._function = parse(text).blocks[0].ops[0]
        self._launch = launch
        self.memory: dict[int, Array] = {}
        self.written: dict[int, Array] = {}
        for position, argument in enumerate(launch.arguments):
            if isinstance(argument, TensorType):
                self.memory[position] = inputs[position].copy().ravel()
                self.written[position] = np.zeros(self.memory[position].shape, bool)

    def run(self) -> None:
        """All programs."""
        x, y, z = self._launch.grid
        for program in np.ndindex(z, y, x):
            self._program = program[::-1]
            env: dict[Value, Any] = {}
            for position, parameter in enumerate(self._function.blocks[0].arguments):
                given = self._launch.arguments[position]
                is_tensor = isinstance(given, TensorType)
                env[parameter] = Pointers(position, np.array(0)) if is_tensor else _number(given, parameter.type)
            with np.errstate(all="ignore"):
                self._block(self._function.blocks[0], env)

    def _block(self, block: Block, env: dict[Value, Any]) -> list[Any]:
        for op in block.ops:
            operands = [env[operand] for operand in op.operands]
            if op.name in ("scf.yield", "tt.return", "tt.reduce.return"):
                return operands
            made = self._op(op, operands, env)
            env.update(zip(op.results, made if isinstance(made, list) else [made], strict=True))
        return []

    def _op(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Any:
        if op.name == "scf.for":
            low, high, step, *carried = operands
            counter, *arguments = op.blocks[0].arguments
            for position in range(int(low), int(high), int(step)):
                env.update({counter: np.int32(position), **dict(zip(arguments, carried, strict=True))})
                carried = self._block(op.blocks[0], env)
            return carried
        if op.name == "tt.load":
            return self._load(op, *operands)
        if op.name == "tt.store":
            self._store(*operands)
            return []
        if op.name == "tt.reduce":
            return self._reduce(op, operands[0], env)
        if op.name == "tt.get_program_id":
            return np.int32(self._program[op.integer("axis")])
        if op.name == "tt.get_num_programs":
            return np.int32(self._launch.grid[op.integer("axis")])
        return _plain(op, operands)

    def _load(self, op: Op, pointer: Pointers, mask: Any = None, other: Any = None) -> Array:
        memory, places = self.memory[pointer.parameter], pointer.places
        seen = np.broadcast_to(True if mask is None else mask, places.shape)
        _check(places[seen], memory)
        garbage = np.nan if memory.dtype.kind == "f" else -12345
        filled = np.broadcast_to(garbage if other is None else other, places.shape)
        return np.where(seen, memory[np.where(seen, places, 0)], filled).astype(memory.dtype)

    def _store(self, pointer: Pointers, value: Any, mask: Any = None) -> None:
        memory, places = self.memory[pointer.parameter], pointer.places
        seen = np.broadcast_to(True if mask is None else mask, places.shape)
        where, values = places[seen], np.broadcast_to(value, places.shape)[seen].astype(memory.dtype)
        _check(where, memory)
        written = self.written[pointer.parameter]
        for place, number in zip(where.ravel(), values.ravel(), strict=True):
            if written[place] and memory[place] != number and number == number:
                raise FaultError(f"two values for element {place}")
            memory[place], written[place] = number, True

    def _reduce(self, op: Op, x: Array, env: dict[Value, Any]) -> Array:
        """Element after element, by the operation in the region."""
        parts = np.moveaxis(x, op.integer("axis"), 0)
        total = parts[0]
        for part in parts[1:]:
            env.update(zip(op.blocks[0].arguments, (total, part), strict=True))
            (total,) = self._block(op.blocks[0], env)
        return np.asarray(total)


def _check(places: Array, memory: Array) -> None:
    if places.size and (places.min() < 0 or places.max() >= len(memory)):
        raise FaultError("an access outside the tensor")


def _number(value: Any, kind: Type) -> Any:
    return _DTYPES[kind.element](value)


def _plain(op: Op, operands: list[Any]) -> Any:
    """Operations on values alone."""
    kind = op.results[0].type
    if op.name == "arith.constant":
        given = op.attributes["value"]
        return np.full(kind.shape, given.value if isinstance(given, Dense) else given, _DTYPES[kind.element])
    if op.name == "tt.make_range":
        return np.arange(op.integer("start"), op.integer("end"), dtype=np.int32)
    if op.name in ("tt.splat", "tt.broadcast"):
        return _shaped(operands[0], lambda x: np.broadcast_to(x, kind.shape))
    if op.name == "tt.expand_dims":
        return _shaped(operands[0], lambda x: np.expand_dims(x, op.integer("axis")))
    if op.name == "tt.trans":
        return _shaped(operands[0], lambda x: np.transpose(x, op.integers("order")))
    if op.name == "tt.addptr":
        return operands[0].map(lambda places: places + np.asarray(operands[1], np.int64))
    if op.name == "tt.dot":
        a, b, c = operands
        return (a.astype(np.float32) @ b.astype(np.float32) + c).astype(_DTYPES[kind.element])
    if op.name == "arith.select":
        return np.where(*operands)
    if op.name == "arith.cmpi":
        return _PREDICATES[op.integer("predicate")](*operands)
    if op.name == "arith.cmpf":
        return _FLOAT_PREDICATES[op.integer("predicate")](*operands)
    if op.name in ("arith.extf", "arith.truncf", "arith.sitofp", "arith.extsi"):
        return operands[0].astype(_DTYPES[kind.element])
    return _FUNCTIONS[op.name](*operands)


def _shaped(value: Any, function: Callable[[Array], Array]) -> Any:
    return value.map(function) if isinstance(value, Pointers) else function(np.asarray(value))


def _quotient(a: Array, b: Array) -> Array:
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.result_type(a))


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.andi": np.bitwise_and,
    "arith.divsi": _quotient, "arith.remsi": lambda a, b: a - b * _quotient(a, b), "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum, "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply,
    "arith.divf": np.divide, "arith.maximumf": np.maximum, "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
    "math.exp": np.exp, "math.exp2": np.exp2, "math.sqrt": np.sqrt, "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.absf": np.abs, "arith.negf": np.negative, "tt.clampf": np.clip,
}  # fmt: skip


def run(text: str, launch: Launch, inputs: dict[int, Array], stored: Sequence[int]) -> list[Array]:
    """The tensors of these parameters after the launch, in their shapes; NaN where nothing was written."""
    interpreter = Interpreter(text, launch, inputs)
    interpreter.run()
    made: list[Array] = []
    for position in stored:
        argument = launch.arguments[position]
        assert isinstance(argument, TensorType), argument
        memory = np.where(interpreter.written[position], interpreter.memory[position], np.nan)
        made.append(memory.astype(interpreter.memory[position].dtype).reshape(argument.dims))
    return made
