"""The definition with invariants checked as it runs (`--checked`): the first instruction that breaks one ends the run.

What is written is finite; of what is quantised |q| <= most and |x - q * scale| <= scale / 2, up to the rounding of
verify/bounds.py. Beyond that, with n = sqrt(columns):

    NORM      |y| <= |gamma| * n (+ |beta|)           because mean((y / gamma)^2) <= 1
    ROPE      |head| is what it was
    ATTN      min v <= y <= max v, each column over the token's own past
    SILU_MUL  y / up >= -0.27846...                   the least value of silu
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsay.core import Batch, Float32Array, Float32View
from unsay.errors import InvariantError
from unsay.isa.formats import QUANT_BLOCK, WHOLE_ACTIVATIONS, WHOLE_MOST
from unsay.isa.opcodes import NO_REGISTER
from unsay.isa.program import Instruction
from unsay.runtime.attention import KvRows
from unsay.runtime.interpreted import ArrayBatch
from unsay.runtime.reference import ReferenceExecutor, TensorUnit
from unsay.runtime.tensors import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


_TOLERANCE = 1e-4
"""Of the largest magnitude on a side: far more than rounding, far less than a wrong scale, row or position."""

_LEAST_SILU = -0.2784645427610738
_NARROW, _WIDE = 127, 16256


class CheckedTensor(Tensor):
    """A tensor that looks at what is written to it."""

    __slots__ = ()

    def write(self, values: Float32Array, batch: ArrayBatch) -> None:
        """As Tensor.write; raises InvariantError."""
        _hold(bool(np.isfinite(values).all()), "a value that is not finite", values)
        Tensor.write(self, values, batch)
        if self.dtype.name in ("Q8A", "Q8W"):
            self._check_blocks(values, batch)
        elif self.dtype in WHOLE_ACTIVATIONS:
            self._check_rows(values, batch)

    def _check_rows(self, values: Float32Array, batch: ArrayBatch) -> None:
        q, scale = self.whole(batch)
        _hold(bool((np.abs(q.astype(np.int32)) <= WHOLE_MOST).all()), f"abs(q) <= {WHOLE_MOST}", q)
        half = scale.astype(np.float64)[:, None] / 2
        error = np.abs(values.astype(np.float64) - q * 2 * half)
        _hold(bool((error <= half * (1 + 2.0**-7) + 2.0**-100).all()), "abs(x - q * scale) <= scale / 2", error)

    def _check_blocks(self, values: Float32Array, batch: ArrayBatch) -> None:
        made = self.quantised(batch)
        q, most = made.lo.astype(np.int32), np.full(made.scale.shape, _NARROW)
        if made.hi is not None and made.wide is not None:
            q, most = q + 128 * made.hi.astype(np.int32), np.where(made.wide, _WIDE, _NARROW)
        q, x = (array.reshape(*made.scale.shape, QUANT_BLOCK) for array in (q, values.astype(np.float64)))
        scale = made.scale.astype(np.float64)[..., None]
        slack = np.where(most == _WIDE, 2.0**-7, 2.0**-14)[..., None]
        _hold(bool((np.abs(q) <= most[..., None]).all()), "abs(q) <= most", q)
        error = np.abs(x - q * scale)
        _hold(bool((error <= scale / 2 * (1 + slack) + 2.0**-100).all()), "abs(x - q * scale) <= scale / 2", error)
        _hold(bool((q.sum(axis=-1) == made.total).all()), "sum == sum(q)", made.total)


class CheckedUnit(TensorUnit):
    """Checks every instruction after it ran."""

    tensor = CheckedTensor
    num_done = 0

    def execute(self, instruction: Instruction, registers: list[int], batch: ArrayBatch) -> Float32Array | None:
        """As TensorUnit.execute; raises InvariantError with the place in the program."""
        name = instruction.row.name
        try:
            before = self.operand(instruction, registers, 0).rows(batch).copy() if name == "ROPE" else None
            result = super().execute(instruction, registers, batch)
            check = _CHECKS.get(name)
            if check is not None:
                check(self, instruction, registers, batch, before)
        except InvariantError as error:
            raise InvariantError(f"instruction {self.num_done} ({name}): {error}") from error
        self.num_done += 1
        return result


class CheckedExecutor(ReferenceExecutor):
    """A ReferenceExecutor that stops at the first broken invariant."""

    unit = CheckedUnit

    def run(self, batch: Batch) -> list[Float32View] | None:
        """As ReferenceExecutor.run; raises InvariantError, but not of a run whose pages may be given back already."""
        assert isinstance(self._unit, CheckedUnit)
        self._unit.num_done = 0
        try:
            return super().run(batch)
        except InvariantError:
            if self.interrupt_word[0]:
                return None
            raise


def _real(tensor: Tensor, batch: ArrayBatch) -> NDArray[np.float64]:
    """What a tensor's rows stand for."""
    if tensor.dtype.name == "F32":
        return tensor.rows(batch).astype(np.float64)
    if tensor.dtype in WHOLE_ACTIVATIONS:
        whole, scale = tensor.whole(batch)
        return whole * scale.astype(np.float64)[:, None]
    made = tensor.quantised(batch)
    q = made.lo.astype(np.float64) + (0 if made.hi is None else 128.0 * made.hi)
    scaled = q.reshape(*made.scale.shape, QUANT_BLOCK) * made.scale[..., None]
    return scaled.reshape(q.shape)


def _norm(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch, before: object) -> None:
    out, gamma = unit.operand(op, registers, 0), unit.operand(op, registers, 2)
    most = np.abs(gamma.vector()) * np.sqrt(out.num_columns)
    if op.registers[3] != NO_REGISTER:
        most = most + np.abs(unit.operand(op, registers, 3).vector())
    y = _real(out, batch)
    _hold(bool((np.abs(y) <= most + _slack(y)).all()), "mean(n * n) <= 1", y)


def _rope(
    unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch, before: Float32Array | None
) -> None:
    assert before is not None
    after = unit.operand(op, registers, 0).rows(batch)
    heads, dim, column = (op.integer(name) for name in ("num_heads", "head_dim", "column"))
    old, new = (
        np.linalg.norm(
            rows[:, column : column + heads * dim].reshape(len(rows), heads, dim).astype(np.float64), axis=-1
        )
        for rows in (before, after)
    )
    _hold(bool((np.abs(old - new) <= _slack(old)).all()), "sum(y * y) == sum(x * x)", new)


def _attention(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch, before: object) -> None:
    out, num_heads, dim = unit.operand(op, registers, 0), op.integer("num_heads"), op.integer("head_dim")
    y = _real(out, batch)
    y = y.reshape(len(y), num_heads, dim)
    cache = KvRows(unit.kv_memory, unit.layout, op.integer("layer"))
    group = num_heads // op.integer("num_kv_heads")
    for token, (row, position) in enumerate(zip(batch.sequence, batch.positions, strict=True)):
        values = cache.read(batch.page_tables[row], int(position) + 1).values()
        low, high = (np.repeat(edge, group, axis=0) for edge in (values.min(axis=0), values.max(axis=0)))
        slack = _slack(values) if out.dtype.name == "F32" else _slack(values) + np.abs(values).max() / 127
        inside = (low - slack <= y[token]) & (y[token] <= high + slack)
        _hold(bool(inside.all()), f"min(V) <= y <= max(V) at position {position}", y[token])


def _silu_mul(unit: TensorUnit, op: Instruction, registers: list[int], batch: ArrayBatch, before: object) -> None:
    up = unit.operand(op, registers, 2).rows(batch).astype(np.float64)
    y = _real(unit.operand(op, registers, 0), batch)
    slack = _slack(up) + _slack(y) + np.abs(y).max(initial=0) / 127
    _hold(bool((y * np.sign(up) >= _LEAST_SILU * np.abs(up) - slack).all()), "silu >= -0.2784...", y)


_CHECKS = {"NORM": _norm, "ROPE": _rope, "ATTN": _attention, "SILU_MUL": _silu_mul}


def _slack(values: NDArray[np.floating]) -> float:
    return _TOLERANCE * max(1.0, float(np.abs(values).max(initial=0)))


def _hold(holds: bool, invariant: str, values: NDArray[np.generic]) -> None:
    if not holds:
        finite = values[np.isfinite(values)]
        seen = f"within {finite.min()} .. {finite.max()}" if finite.size else "nowhere finite"
        raise InvariantError(f"broken: {invariant}; the result is {seen}, shape {list(values.shape)}")
