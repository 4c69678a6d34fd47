"""NORM (N7): RMS and layer norm of rows, to F32 or straight to Q8A, Q8W or Q16.

Up to REPEATED_ROWS rows every thread normalises all of them, to the same place and with the same bytes: what a thread
reads after that it has written itself, so nobody has to wait. More rows are dealt out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from unsay.compiler.codegen.builder import F32, F32X16, Function, Module, Value
from unsay.compiler.codegen.kernels.rows import store_row
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    Output,
    argument,
    index_at,
    kernel_parameters,
    leave_if_interrupted,
    share_or_all,
    tree_sum,
)
from unsay.isa.formats import DType


@dataclass(frozen=True, slots=True)
class Norm:
    """What a norm kernel is made for. rows: only the step's logit rows; out_dtype: of out [capacity, width]."""

    width: int
    eps: float
    layer: bool
    rows: bool
    has_beta: bool
    out_dtype: DType
    capacity: int


def norm(module: Module, shape: Norm) -> str:
    """Kernel (out, x f32, gamma f32[, beta f32])."""

    def write(f: Function) -> None:
        out = Output(f["out"], shape.out_dtype, shape.capacity, shape.width)
        begin, end = share_or_all(f, f["count"])
        wanted = argument(f, "logit_rows") if shape.rows else None
        with f.loop("row", begin, end) as row:
            leave_if_interrupted(f)
            source = row if wanted is None else index_at(f, wanted, row)
            x = f["x"].at(source * (shape.width * 4))
            mean = _mean(f, shape, x) if shape.layer else None
            root = f.unary("sqrt", _mean_square(f, shape, x, mean) + shape.eps)
            gain = (f.constant(F32, 1.0) / root).splat(LANES)
            store_row(f, out, row, partial(_scaled, f, shape, x, mean, gain))

    kind = "layer" if shape.layer else "rms"
    name = f"{kind}_norm_{shape.width}_{shape.out_dtype.name.lower()}_t{shape.capacity}"
    name += ("_rows" if shape.rows else "") + ("_beta" if shape.has_beta else "") + f"_{shape.eps.hex()[2:]}"
    pointers = ("out", "x", "gamma", *(("beta",) if shape.has_beta else ()))
    doc = f"out {shape.out_dtype.name} [T][{shape.width}] = {kind} norm of x f32 [T][{shape.width}]"
    return module.define(name.replace("+", "").replace("-", "m"), kernel_parameters(*pointers), write, doc)


def _mean(f: Function, shape: Norm, x: Value) -> Value:
    total = f.slot(F32X16, 0.0)
    with f.loop("column", 0, shape.width, LANES) as column:
        total.set(total.get() + f.load(F32X16, x.at(column * 4), align=4))
    return (tree_sum(total.get()) / float(shape.width)).splat(LANES)


def _mean_square(f: Function, shape: Norm, x: Value, mean: Value | None) -> Value:
    total = f.slot(F32X16, 0.0)
    with f.loop("column", 0, shape.width, LANES) as column:
        values = _centred(f, x, mean, column)
        total.set(f.fma(values, values, total.get()))
    return tree_sum(total.get()) / float(shape.width)


def _centred(f: Function, x: Value, mean: Value | None, column: Value) -> Value:
    values = f.load(F32X16, x.at(column * 4), align=4)
    return values if mean is None else values - mean


def _scaled(f: Function, shape: Norm, x: Value, mean: Value | None, gain: Value, column: Value) -> Value:
    y = (_centred(f, x, mean, column) * gain) * f.load(F32X16, f["gamma"].at(column * 4), align=4)
    return y + f.load(F32X16, f["beta"].at(column * 4), align=4) if shape.has_beta else y
