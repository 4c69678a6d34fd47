"""What the fused tensor operations mean: the tensor operations they stand for, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.meaning import Meaning, silu
from unsay.compiler.dialect.step_semantics import STEP_SEMANTICS
from unsay.compiler.dialect.tensor_semantics import TENSOR_SEMANTICS
from unsay.compiler.ir.core import Operation


def _conv2d_relu(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    (y,) = TENSOR_SEMANTICS["conv2d"](d, op, operands)
    return (d.maximum(y, 0.0),)


def _matmul_silu(d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    a, b, *biases = operands
    y = d.matmul(a, b)
    for bias in biases:
        y = d.add(y, bias)
    return (silu(d, y),)


def _add_rms_norm(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    a, b, gamma = operands
    total = d.add(a, b)
    return total, *STEP_SEMANTICS["rms_norm"](d, op, (total, gamma))


FUSED_SEMANTICS: dict[str, Meaning] = {
    "conv2d_relu": _conv2d_relu,
    "matmul_silu": _matmul_silu,
    "add_rms_norm": _add_rms_norm,
}
