"""What the semantic baseline covers, a line each; run as a module, writes it to baseline.txt.

python -m tests.compiler.extension.baseline
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
from pathlib import Path

import numpy as np

from tests.compiler.dialect.run_op import graph_of
from tests.compiler.dialect.test_tensor_semantics import CASES
from tests.compiler.shapes import TINY, tensor_types
from unsay.compiler.dialect.domains import FIELD, PRIME, Array, Domain
from unsay.compiler.dialect.op import Attribute, Op
from unsay.compiler.dialect.ops import OPS
from unsay.compiler.extension import BASELINE, Extension, OpExtension, PassExtension, Rule, Version
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.types import DTYPES, TensorType
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import Pass
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.scopes import Scope

PINNED = Path(__file__).parent / "baseline.txt"
_CLASSES = (Extension, OpExtension, PassExtension, Rule, Op, Attribute, Pass, Axiom, Scope, TensorType)


def lines() -> list[str]:
    """The baseline as it is."""
    types = [f"type {name}" for name in DTYPES]
    return sorted([*types, *map(_row, OPS), *_domain(), *map(_fields, _CLASSES), *_meanings(), _step()])


def _row(op: Op) -> str:
    attributes = ", ".join(f"{item.name}: {'/'.join(item.choices) or item.kind_name}" for item in op.attributes)
    invariants = "; ".join([*(rule.text for rule in op.attribute_invariants), *op.value_invariants])
    return (
        f"op {op.family} {op.name}({', '.join(op.operands)}) {{{attributes}}} -> {', '.join(op.results)} | {invariants}"
    )


def _domain() -> list[str]:
    methods = inspect.getmembers(Domain, inspect.isfunction)
    return [f"domain {name}{inspect.signature(method)}" for name, method in methods if not name.startswith("_")]


def _fields(kind: type) -> str:
    return f"class {kind.__name__}({', '.join(field.name for field in dataclasses.fields(kind) if field.init)})"


def _meanings() -> list[str]:
    """What each operation gives at fixed inputs over the field."""
    digests: dict[str, list[str]] = {}
    for kind, operands, attributes, _ in CASES:
        given = {f"x{place}": _residues(array, place) for place, array in enumerate(operands)}
        digests.setdefault(kind, []).append(_digest(evaluate(graph_of(kind, operands, attributes), given, {}, FIELD)))
    return [f"meaning {kind} {' '.join(each)}" for kind, each in digests.items()]


def _step() -> str:
    """What a small language model gives, for the step operations."""
    graph = build_graph(TINY, tensor_types(TINY), 32, 4)
    weights = [operation for operation in graph.operations if operation.kind == "weight"]
    arrays = {w.string("tensor"): _residues(np.empty(w.result.type.dims), place) for place, w in enumerate(weights)}
    given = {"tokens": np.arange(5), "rows": np.array([4])}
    return f"meaning of a step {_digest(evaluate(graph, given, arrays, FIELD))}"


def _residues(like: Array, seed: int) -> Array:
    """Residues that look random, of the shape of an array; integers and bools as they are."""
    if like.dtype.kind in "ib":
        return like
    return ((np.arange(1, like.size + 1) * 40503 + seed * 977) ** 2 % PRIME).reshape(like.shape).astype(np.uint64)


def _digest(arrays: list[Array]) -> str:
    data = b"".join(array.astype(np.int64).tobytes() for array in arrays)
    return hashlib.sha256(data).hexdigest()[:12]


def pinned() -> tuple[Version, list[str]]:
    """The version and lines of the file."""
    head, *rest = PINNED.read_text().splitlines()
    return Version.parse(head.removeprefix("baseline ")), rest


def wanted(version: Version, before: list[str], after: list[str]) -> Version:
    """The version that a change of lines asks for."""
    if set(before) - set(after):
        return Version(version.major + 1, 0)
    return Version(version.major, version.minor + 1) if set(after) - set(before) else version


def main() -> None:
    """Write the file, if the version fits."""
    current = lines()
    if PINNED.exists():
        needed = wanted(*pinned(), current)
        if needed != BASELINE:
            sys.exit(f"BASELINE of compiler/extension/contract.py must be {needed} for this change, it is {BASELINE}")
    PINNED.write_text("\n".join([f"baseline {BASELINE}", *current]) + "\n")


if __name__ == "__main__":
    main()
