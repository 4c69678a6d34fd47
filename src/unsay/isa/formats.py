"""Element types, and how a weight matrix lies in PERSISTENT memory.

A matrix W [N, K] (N outputs, K inputs, y = W x) is stored in groups of 16 rows, so that one vector lane is one
row on every target. N is padded to a multiple of 16 with zero rows. g = row // 16, r = row % 16.

    Q4_1  [N/16][K/32]{ nibbles 256 B | d 16 x f16 | m 16 x f16 }  320 B    w = d*q + m      q 0..15
    Q4_0  [N/16][K/32]{ nibbles 256 B | d 16 x f16 }               288 B    w = d*(q - 8)    q 0..15
    Q8_0  [N/16][K/32]{ bytes   512 B | d 16 x f16 }               544 B    w = d*q          q -128..127
    F16, BF16, F32   [N/16][K][16]                                 2, 2, 4 B an element

    nibbles: byte[64*j + 4*r + i], j 0..3, i 0..3: low half  = q[r][k = 4*j + i]
                                                   high half = q[r][k = 16 + 4*j + i]     (k inside the block)
    bytes:   byte[64*j + 4*r + i], j 0..7, i 0..3: q[r][k = 4*j + i]

Activations X [T, K] for a quantised W are Q8A: three arrays, one after the other, each with room for
`max_tokens` rows: q int8 [T][K] | scale f32 [T][K/32] | sum i32 [T][K/32] (sum of the 32 q).
Q8W is the same with wide blocks (docs/numerics.md N3w), five arrays:
lo int8 [T][K] | scale f32 [T][K/32] | sum i32 [T][K/32] | hi int8 [T][K] | wide i32 [T][K/32] (0 or 1; if 0, hi is 0).
Q16 is what every product of the fast class reads, whatever the format of its W (N14), two arrays:
q int16 [T][K] | scale f32 [T].
Q16P is Q16 in two planes, for machines that multiply bytes, wherever Q16 may stand: q = 128 * hi + lo, three arrays:
hi int8 [T][K] (-127..127) | lo int8 [T][K] (0..127) | scale f32 [T].
"""

from __future__ import annotations

from enum import IntEnum


class DType(IntEnum):
    """Element types; the number is what a TENSOR instruction carries, never reused. F64, I64, I8, BOOL: IR only."""

    F32 = 0x00
    F16 = 0x01
    BF16 = 0x02
    F64 = 0x03
    I32 = 0x04
    I64 = 0x05
    I8 = 0x06
    BOOL = 0x07
    Q4_0 = 0x10
    Q4_1 = 0x11
    Q8_0 = 0x12
    Q8A = 0x20
    Q8W = 0x21
    Q16 = 0x22
    Q16P = 0x23


QUANT_BLOCK = 32
"""Elements along K that share one scale."""

WIDE_FACTOR = 4.5
"""A block is wide when this many times its largest magnitude is more than the sum of its magnitudes (N3w)."""

ROW_GROUP = 16
"""Rows of a weight matrix stored side by side; also the canonical vector width."""

QUANTISED_WEIGHTS = frozenset({DType.Q4_0, DType.Q4_1, DType.Q8_0})
QUANTISED_ACTIVATIONS = frozenset({DType.Q8A, DType.Q8W})
WHOLE_ACTIVATIONS = frozenset({DType.Q16, DType.Q16P})
FLOAT_WEIGHTS = frozenset({DType.F32, DType.F16, DType.BF16})

_GROUP_BLOCK_BYTES = {DType.Q4_1: 320, DType.Q4_0: 288, DType.Q8_0: 544}
_FLOAT_BYTES = {DType.F32: 4, DType.F16: 2, DType.BF16: 2}


WHOLE_MOST = 127 * 128
"""Largest magnitude of an element of Q16 (N14): two int8 planes hold it."""

PART_COLUMNS = 192
"""Columns of a part of a row, summed in one integer by the fast class (N15); the last part of a row may have fewer."""

PART_WEIGHT_MOST = 127
"""Largest magnitude of a weight there."""


def num_parts(num_columns: int) -> int:
    """Parts of a row."""
    return -(-num_columns // PART_COLUMNS)


def padded_rows(num_rows: int) -> int:
    """N rounded up to whole row groups."""
    return -(-num_rows // ROW_GROUP) * ROW_GROUP


def group_block_bytes(dtype: DType) -> int:
    """Bytes of one 16-row x 32-column block of a quantised weight."""
    return _GROUP_BLOCK_BYTES[dtype]


def weight_bytes(dtype: DType, num_rows: int, num_columns: int) -> int:
    """Bytes of a packed weight matrix [num_rows, num_columns]."""
    groups = padded_rows(num_rows) // ROW_GROUP
    if dtype in QUANTISED_WEIGHTS:
        assert num_columns % QUANT_BLOCK == 0, num_columns
        return groups * (num_columns // QUANT_BLOCK) * _GROUP_BLOCK_BYTES[dtype]
    return groups * ROW_GROUP * num_columns * _FLOAT_BYTES[dtype]


def activation_bytes(dtype: DType, max_tokens: int, num_columns: int) -> int:
    """Bytes of an activation tensor with room for `max_tokens` rows: F32, Q16, Q16P, Q8A or Q8W."""
    if dtype is DType.F32:
        return max_tokens * num_columns * 4
    if dtype in WHOLE_ACTIVATIONS:
        return max_tokens * (num_columns * 2 + 4)
    assert dtype in QUANTISED_ACTIVATIONS, dtype
    assert num_columns % QUANT_BLOCK == 0, num_columns
    bytes_per_block = QUANT_BLOCK + 8 if dtype is DType.Q8A else 2 * QUANT_BLOCK + 12
    return max_tokens * (num_columns // QUANT_BLOCK) * bytes_per_block
