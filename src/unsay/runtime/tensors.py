"""Tensors in the machine's memory, as NumPy sees them: what isa/formats.py says, turned into arrays.

A `Tensor` is what a TENSOR instruction names. Nothing is copied: its arrays are views of the region it lies in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array
from unsay.errors import MachineError
from unsay.isa.formats import (
    FLOAT_WEIGHTS,
    QUANT_BLOCK,
    QUANTISED_WEIGHTS,
    ROW_GROUP,
    WHOLE_ACTIVATIONS,
    DType,
    activation_bytes,
    group_block_bytes,
    padded_rows,
    weight_bytes,
)
from unsay.isa.opcodes import Dim0
from unsay.runtime.arithmetic import expand, fma, parts, quantise, quantise_rows, quantise_wide
from unsay.runtime.interpreted import ArrayBatch

_CHUNK_ELEMENTS = 8192
"""Elements of an output worked on at a time: stays in a core's cache, and a product with 32 columns is just below the
size from which OpenBLAS splits it over threads, whose waiting costs far more than it saves here."""


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Rows of a Q8A or Q8W tensor: lo int8 [T, K] (q of Q8A), scale f32, total i32 [T, K/32]; hi int8 [T, K] and wide
    i32 [T, K/32] of Q8W, else None."""

    lo: NDArray[np.int8]
    scale: Float32Array
    total: NDArray[np.int32]
    hi: NDArray[np.int8] | None
    wide: NDArray[np.int32] | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """dims[0] is the room for rows; `extent` says what counts the rows of a step. memory: from its first byte to the
    end of its region, uint8."""

    dtype: DType
    dims: tuple[int, ...]
    extent: Dim0
    memory: NDArray[np.uint8]

    @property
    def num_columns(self) -> int:
        """Elements of a row: the product of all dims but the first."""
        return math.prod(self.dims[1:])

    def num_rows(self, batch: ArrayBatch) -> int:
        """Rows in use in this step; MachineError when there are more than the tensor has room for."""
        used = {Dim0.FIXED: self.dims[0], Dim0.TOKENS: len(batch.token_ids), Dim0.ROWS: len(batch.logit_rows)}
        if used[self.extent] > self.dims[0]:
            raise MachineError(f"{used[self.extent]} {self.extent.name.lower()} in a tensor for {self.dims[0]}")
        return used[self.extent]

    def bytes(self, num_bytes: int) -> NDArray[np.uint8]:
        """The first `num_bytes`; MachineError when the region ends before."""
        if num_bytes > len(self.memory):
            raise MachineError(f"tensor of {num_bytes} bytes, its region ends after {len(self.memory)}")
        return self.memory[:num_bytes]

    def vector(self) -> Float32Array:
        """All elements, f32, flat."""
        self._want(DType.F32)
        return self.bytes(self.dims[0] * self.num_columns * 4).view(np.float32)

    def rows(self, batch: ArrayBatch) -> Float32Array:
        """f32 [rows in use, columns]."""
        return self.vector().reshape(self.dims[0], self.num_columns)[: self.num_rows(batch)]

    def quantised(self, batch: ArrayBatch) -> QuantisedRows:
        """The arrays of a Q8A or Q8W tensor, rows in use only."""
        self._want(DType.Q8A, DType.Q8W)
        capacity, num_columns, used = self.dims[0], self.num_columns, self.num_rows(batch)
        raw = self.bytes(activation_bytes(self.dtype, capacity, num_columns))
        sizes = capacity * num_columns * np.array([8, 1, 1, 8, 1]) // 8
        parts = [part.reshape(capacity, -1)[:used] for part in np.split(raw, np.cumsum(sizes[:-1]))]
        lo, scale, total, hi, wide = parts
        is_wide = self.dtype is DType.Q8W
        return QuantisedRows(
            lo.view(np.int8),
            scale.view(np.float32),
            total.view(np.int32),
            hi.view(np.int8) if is_wide else None,
            wide.view(np.int32) if is_wide else None,
        )

    def whole(self, batch: ArrayBatch) -> tuple[NDArray[np.int16], Float32Array]:
        """A Q16 or Q16P tensor, rows in use only: q int16 [T, K], scale f32 [T]."""
        *planes, scale = self._whole(batch)
        return planes[0] if len(planes) == 1 else planes[0].astype(np.int16) * 128 + planes[1], scale

    def _whole(self, batch: ArrayBatch) -> list[NDArray[Any]]:
        """The arrays of a Q16 or Q16P tensor, rows in use only."""
        self._want(*WHOLE_ACTIVATIONS)
        capacity, num_columns, used = self.dims[0], self.num_columns, self.num_rows(batch)
        raw = self.bytes(activation_bytes(self.dtype, capacity, num_columns))
        integers, scale = np.split(raw, [capacity * num_columns * 2])
        kind = np.int16 if self.dtype is DType.Q16 else np.int8
        return [*integers.view(kind).reshape(-1, capacity, num_columns)[:, :used], scale.view(np.float32)[:used]]

    def write(self, values: Float32Array, batch: ArrayBatch) -> None:
        """Set the rows in use to `values` [rows, columns]; quantised when it is Q8A (N3), Q8W (N3w), Q16
        or Q16P (N14)."""
        if not self.memory.flags.writeable:
            raise MachineError("the output tensor lies in memory that cannot be written")
        expected = (self.num_rows(batch), self.num_columns)
        if values.shape != expected:
            raise MachineError(f"the instruction makes {values.shape}, its output tensor is {expected}")
        if self.dtype is DType.F32:
            self.rows(batch)[:] = values
            return
        if self.dtype in WHOLE_ACTIVATIONS:
            q, scale = quantise_rows(values)
            planes = [q] if self.dtype is DType.Q16 else [q >> 7, q & 127]
            for array, made in zip(self._whole(batch), [*planes, scale], strict=True):
                array[:] = made
            return
        out = self.quantised(batch)
        if out.hi is None or out.wide is None:
            out.lo[:], out.scale[:], out.total[:] = quantise(values)
        else:
            made = quantise_wide(values)
            out.lo[:], out.scale[:], out.total[:], out.hi[:], out.wide[:] = (
                made.lo, made.scale, made.total, made.hi, made.wide,
            )  # fmt: skip

    def _want(self, *dtypes: DType) -> None:
        if self.dtype not in dtypes:
            needed = " or ".join(dtype.name for dtype in dtypes)
            raise MachineError(f"a tensor of {self.dtype.name} where {needed} is needed")


@dataclass(frozen=True, slots=True)
class WeightBlocks:
    """Some row groups of a quantised matrix, n rows: w = d * q + m. q: f32 [K/32, 32, n] (integers, for Q4_0 less 8);
    d: f32 [K/32, n]; m: f32 [K/32, n], or None when the format has none."""

    q: Float32Array
    d: Float32Array
    m: Float32Array | None


def unpack_blocks(weight: Tensor, groups: NDArray[np.integer]) -> WeightBlocks:
    """The row groups named, side by side, of a quantised matrix [N, K]."""
    num_rows, num_columns = weight.dims[0], weight.num_columns
    raw = weight.bytes(weight_bytes(weight.dtype, num_rows, num_columns))
    raw = raw.reshape(-1, num_columns // QUANT_BLOCK, group_block_bytes(weight.dtype))[groups]
    num_q_bytes = 512 if weight.dtype is DType.Q8_0 else 256
    q = _unpack_bytes(raw) if weight.dtype is DType.Q8_0 else _unpack_nibbles(raw)
    if weight.dtype is DType.Q4_0:
        q -= np.float32(8)
    d = _unpack_scales(raw[..., num_q_bytes : num_q_bytes + 32])
    m = _unpack_scales(raw[..., num_q_bytes + 32 :]) if weight.dtype is DType.Q4_1 else None
    return WeightBlocks(q, d, m)


def _unpack_bytes(raw: NDArray[np.uint8]) -> Float32Array:
    """[G, K/32, ...] to [K/32, 32, 16 G]: byte[64 j + 4 r + i] is q[r][4 j + i]."""
    q = raw[..., :512].view(np.int8).reshape(*raw.shape[:2], 8, ROW_GROUP, 4)
    return q.transpose(1, 2, 4, 0, 3).reshape(raw.shape[1], QUANT_BLOCK, -1).astype(np.float32)


def _unpack_nibbles(raw: NDArray[np.uint8]) -> Float32Array:
    """[G, K/32, ...] to [K/32, 32, 16 G]: byte[64 j + 4 r + i] holds q[r][4 j + i] and, high, q[r][16 + 4 j + i]."""
    q = raw[..., :256].reshape(*raw.shape[:2], 4, ROW_GROUP, 4)
    q = q.transpose(1, 2, 4, 0, 3).reshape(raw.shape[1], QUANT_BLOCK // 2, -1)
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.float32)


def _unpack_scales(raw: NDArray[np.uint8]) -> Float32Array:
    """f16 [G, K/32, 16] as bytes to f32 [K/32, 16 G]."""
    scales = np.ascontiguousarray(raw).view(np.float16)
    return scales.transpose(1, 0, 2).reshape(raw.shape[1], -1).astype(np.float32)


def unpack_floats(weight: Tensor, groups: NDArray[np.integer]) -> Float32Array:
    """The row groups named, of a float matrix [N, K], as f32 [K, 16 G]."""
    num_rows, num_columns = weight.dims[0], weight.num_columns
    raw = weight.bytes(weight_bytes(weight.dtype, num_rows, num_columns))
    raw = raw.reshape(-1, num_columns, raw.size // (padded_rows(num_rows) * num_columns) * ROW_GROUP)[groups]
    return _to_f32(weight.dtype, raw).transpose(1, 0, 2).reshape(num_columns, -1)


def _to_f32(dtype: DType, raw: NDArray[np.uint8]) -> Float32Array:
    """Bytes of a float format as f32; exact."""
    if dtype is DType.BF16:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view(np.float16 if dtype is DType.F16 else np.float32).astype(np.float32)


def _as_floats(weight: Tensor, groups: NDArray[np.integer]) -> Float32Array:
    """The row groups named, of a matrix [N, K] of any format, as f32 [K, 16 G]: N11."""
    if weight.dtype in FLOAT_WEIGHTS:
        return unpack_floats(weight, groups)
    blocks = unpack_blocks(weight, groups)
    d = blocks.d[:, None]
    values = blocks.q * d if blocks.m is None else fma(blocks.q, d, blocks.m[:, None])
    return values.reshape(weight.num_columns, -1)


def _check_weight(weight: Tensor) -> None:
    """Before anything is computed: a format that weights have, and bytes that are all there."""
    if weight.dtype not in QUANTISED_WEIGHTS | FLOAT_WEIGHTS:
        raise MachineError(f"a tensor of {weight.dtype.name} where a weight matrix is needed")
    weight.bytes(weight_bytes(weight.dtype, weight.dims[0], weight.num_columns))


def embedding(weight: Tensor, token_ids: NDArray[np.int32]) -> Float32Array:
    """N11: the rows `token_ids` of a matrix [V, E], f32 [T, E]."""
    _check_weight(weight)
    if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < weight.dims[0]:
        raise MachineError(f"token ids {token_ids.min()}..{token_ids.max()}, the vocabulary is 0..{weight.dims[0] - 1}")
    groups, lanes = token_ids // ROW_GROUP, token_ids % ROW_GROUP
    columns = np.arange(len(token_ids)) * ROW_GROUP + lanes
    return np.ascontiguousarray(_as_floats(weight, groups)[:, columns].T)


def product(x: Tensor, weight: Tensor, batch: ArrayBatch, num_coarse: int | None = None) -> Float32Array:
    """N4, N5, N15: W x for every row of x, f32 [T, N padded to 16]; padding rows give zero.

    num_coarse: how many rows of W the fast class takes once, all by default; it takes the others twice.
    """
    if x.num_columns != weight.num_columns:
        raise MachineError(f"x has {x.num_columns} columns, the weight matrix {weight.num_columns}")
    _check_weight(weight)
    num_tokens = x.num_rows(batch)
    out = np.zeros((num_tokens, padded_rows(weight.dims[0])), np.float32)
    is_coarse: NDArray[np.bool_] = np.arange(out.shape[1]) < (out.shape[1] if num_coarse is None else num_coarse)
    for groups in _chunks(out.shape[1] // ROW_GROUP, num_tokens) if num_tokens else ():
        columns = slice(groups[0] * ROW_GROUP, (groups[-1] + 1) * ROW_GROUP)
        if x.dtype in WHOLE_ACTIVATIONS:
            out[:, columns] = _whole_product(*x.whole(batch), _as_floats(weight, groups), is_coarse[columns])
        elif weight.dtype in QUANTISED_WEIGHTS:
            out[:, columns] = _block_product(x.quantised(batch), unpack_blocks(weight, groups))
        else:
            out[:, columns] = _float_product(x.rows(batch), unpack_floats(weight, groups))
    return out


def _chunks(num_groups: int, num_tokens: int) -> Iterator[NDArray[np.intp]]:
    size = max(1, _CHUNK_ELEMENTS // (num_tokens * ROW_GROUP))
    for start in range(0, num_groups, size):
        yield np.arange(start, min(start + size, num_groups))


def _block_product(x: QuantisedRows, w: WeightBlocks) -> Float32Array:
    """N4. The dot of a block of one plane is exact in f32: every partial sum is an integer below 2^24. So is 128 times
    it, and adding the two planes rounds i once, as f32(i) does."""
    acc = np.zeros((len(x.lo), w.q.shape[2]), np.float32)
    lo, hi = _in_blocks(x.lo), None if x.hi is None else _in_blocks(x.hi)
    offsets = x.scale * x.total.astype(np.float32)
    for b in range(len(w.q)):
        dots = lo[b] @ w.q[b]
        if hi is not None and hi[b].any():
            dots += np.float32(128) * (hi[b] @ w.q[b])
        acc = fma(dots, w.d[b] * x.scale[:, b, None], acc)
        if w.m is not None:
            acc = fma(w.m[b], offsets[:, b, None], acc)
    return acc


def _in_blocks(plane: NDArray[np.int8]) -> Float32Array:
    """int8 [T, K] as f32 [K/32, T, 32]."""
    blocks = plane.astype(np.float32).reshape(len(plane), -1, QUANT_BLOCK)
    return np.ascontiguousarray(blocks.transpose(1, 0, 2))


def _whole_product(
    q: NDArray[np.int16], scale: Float32Array, w: Float32Array, is_coarse: NDArray[np.bool_]
) -> Float32Array:
    """N15. q: [T, K]; scale: [T]; w: [K, n], is_coarse: which rows of it are taken once, [n]."""
    coarse, fine = np.zeros((2, len(q), w.shape[1]), np.float32)
    for columns in parts(len(w)):
        made, x = expand(w[columns].T), q[:, columns].astype(np.float64)
        coarse = fma(_sums(x, made.v), made.d * scale[:, None], coarse)
        fine = fma(_sums(x, made.r), made.e * scale[:, None], fine)
    return np.where(is_coarse, coarse, coarse + fine)


def _sums(x: NDArray[np.float64], integers: NDArray[np.int32]) -> Float32Array:
    """The exact sums, below 2^31, rounded to f32: [T, n]."""
    return (x @ integers.T.astype(np.float64)).astype(np.float32)


def _float_product(x: Float32Array, w: Float32Array) -> Float32Array:
    """N5. x: [T, K]; w: [K, n]."""
    acc = np.zeros((len(x), w.shape[1]), np.float32)
    for k in range(len(w)):
        acc = fma(w[k], x[:, k, None], acc)
    return acc


def tensor_dtype(value: int) -> DType:
    """A DType from an instruction's field; MachineError for a number that is none."""
    try:
        return DType(value)
    except ValueError:
        raise MachineError(f"0x{value:02X} is not an element type") from None
