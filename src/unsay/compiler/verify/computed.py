"""Axioms whose right side is computed, where no pattern can say it."""

from __future__ import annotations

import numpy as np

from unsay.compiler.dialect.domains import FLOAT
from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.types import NARROW, dtype_name
from unsay.compiler.verify.equations import Builder
from unsay.compiler.verify.evaluation import as_operation
from unsay.compiler.verify.terms import Term
from unsay.isa.formats import DType

_PURE = frozenset(op.name for op in BY_NAME.values() if op.pure and op.name in SEMANTICS and op.operands)


class Folding:
    """f(constants) is the constant that dialect/semantics.py gives over floats."""

    kinds = _PURE

    def apply(self, builder: Builder, term: Term) -> Term | None:
        """The constant, if all operands are constants of fixed sizes."""
        types = [term.type, *[operand.type for operand in term.operands]]
        fixed = all(isinstance(extent, int) for tensor_type in types for extent in tensor_type.dims)
        if not fixed or any(operand.kind != "constant" for operand in term.operands):
            return None
        operation = as_operation(term, {})
        with np.errstate(all="ignore"):
            operands = [SEMANTICS["constant"](FLOAT, as_operation(operand, {}), ())[0] for operand in term.operands]
            result = FLOAT.round(SEMANTICS[term.kind](FLOAT, operation, operands)[term.index], term.type.dtype)
        return builder.declared("constant", (), {"value": _elements(result)}, term.type)


def _elements(array: np.ndarray) -> tuple[int, ...] | tuple[float, ...]:
    """All elements in order; one, where they are the same in every bit."""
    flat = array.ravel()
    kind = float if array.dtype.kind == "f" else int
    return tuple(map(kind, flat[:1] if flat.tobytes() == flat[:1].tobytes() * flat.size else flat))


class Widening:
    """f(x, ..) computed and stored in a narrow float type is f of the same numbers in f32, rounded."""

    kinds = _PURE - {"cast"}

    def apply(self, builder: Builder, term: Term) -> Term | None:
        """The cast of the wide operation, for a result in a narrow float type."""
        if term.type.dtype not in NARROW:
            return None
        operands = [self._wide(builder, operand) for operand in term.operands]
        if BY_NAME[term.kind].rule is None:
            wide = builder.declared(term.kind, operands, term.attributes, term.type.of(DType.F32))
        else:
            wide = builder.operation(term.kind, operands, term.attributes, term.index)
        return builder.operation("cast", (wide,), {"dtype": dtype_name(term.type.dtype)})

    def _wide(self, builder: Builder, operand: Term) -> Term:
        return builder.operation("cast", (operand,), {"dtype": "f32"}) if operand.type.dtype in NARROW else operand
