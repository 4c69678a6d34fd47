"""Wrong passes: the source of a pass changed in one place, as a slip of its author might have.

Operands change places, a comparison is turned or is one off, a condition is forgotten, a number is one more, a kind or
a format is another.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

from unsay.compiler.ir.core import Graph
from unsay.compiler.passes.pipeline import Pass

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_STRINGS = {
    "f32": "q8w",
    "q8a": "q8w",
    "q8w": "q8a",
    "halves": "adjacent",
    "rms_norm": "layer_norm",
    "add": "mul",
    "mul": "add",
    "sqrt": "rsqrt",
    "rsqrt": "sqrt",
    "gpu": "cpu",
    "cpu": "gpu",
    "silu": "relu",
    "div": "mul",
}


@dataclass(frozen=True, slots=True)
class WrongPass:
    """A change to the source of a pass: of the node at a place of the walk over its tree, on a line."""

    name: str
    line: int
    place: int
    change: Callable[[ast.AST], None]
    source: ast.Module
    module: ModuleType

    def load(self, step: Pass) -> Callable[[Graph], int]:
        """The changed function."""
        changed = copy.deepcopy(self.source)
        self.change(list(ast.walk(changed))[self.place])
        names = {"__name__": self.module.__name__, "__file__": self.module.__file__}
        exec(compile(ast.fix_missing_locations(changed), f"<{self.module.__name__}>", "exec"), names)
        return names[step.name]  # type: ignore[return-value]


def wrong_passes(step: Pass) -> Iterator[WrongPass]:
    """Every change in one place of the pass's own file."""
    module = sys.modules[step.run.__module__]
    tree = ast.parse(inspect.getsource(module))
    for place, node in enumerate(ast.walk(tree)):
        for name, change in _changes(node):
            yield WrongPass(name, getattr(node, "lineno", 0), place, change, tree, module)


_Change = tuple[str, Callable[[ast.AST], None]]


def _changes(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "comparison turned", _turn
    if isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            yield f"condition {place} forgotten", lambda twin, place=place: _forget(twin, place)
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        last = len(node.args) - 1
        if not any(isinstance(arg, ast.Starred) for arg in node.args[last - 1 :]):
            yield "last two arguments swapped", _swap_arguments
    if isinstance(node, ast.Tuple) and len(node.elts) >= 2 and isinstance(node.ctx, ast.Load):
        yield "first two of a tuple swapped", _swap_elements
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield f"{node.value} one more", _increment
    if isinstance(node, ast.Constant) and node.value in _STRINGS:
        yield f"{node.value} is {_STRINGS[node.value]}", _rename


def _turn(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[0] = _TURNED[type(node.ops[0])]()


def _forget(node: ast.AST, place: int) -> None:
    assert isinstance(node, ast.BoolOp)
    node.values[place] = ast.Constant(isinstance(node.op, ast.And))


def _swap_arguments(node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    node.args[-1], node.args[-2] = node.args[-2], node.args[-1]


def _swap_elements(node: ast.AST) -> None:
    assert isinstance(node, ast.Tuple)
    node.elts[0], node.elts[1] = node.elts[1], node.elts[0]


def _increment(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    node.value += 1


def _rename(node: ast.AST) -> None:
    assert isinstance(node, ast.Constant)
    node.value = _STRINGS[str(node.value)]
