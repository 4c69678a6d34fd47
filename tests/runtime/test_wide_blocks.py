"""N3w and the product of wide blocks, element by element in plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.images import make_batch, plain_image
from tests.runtime.test_arithmetic import exact_fma, round_to_f32, scalar_sum16
from unsay.core import Batch
from unsay.isa.formats import DType, activation_bytes, weight_bytes
from unsay.isa.opcodes import Dim0
from unsay.runtime import arithmetic as ar
from unsay.runtime import tensors
from unsay.runtime.reference import ReferenceExecutor
from unsay.runtime.tensors import Tensor, product, unpack_blocks

F32 = np.float32


def rounded(exact: Fraction) -> float:
    """An f32 operation: the exact value, rounded once."""
    return round_to_f32(exact, 0.0)


def quantise_row(x):
    """N3w of one row: (lo, scale, sum, hi, wide), each a list of plain numbers."""
    blocks = [[float(value) for value in x[start : start + 32]] for start in range(0, len(x), 32)]
    made = ([], [], [], [], [])
    for block in blocks:
        peak = max(abs(value) for value in block)
        with np.errstate(over="ignore"):
            total = float(scalar_sum16([F32(abs(value)) for value in block], False))
        wide = peak >= 2.0**-100 and rounded(Fraction(peak) * Fraction(9, 2)) > total
        most = 16256 if wide else 127
        empty = peak < 2.0**-100
        scale = 0.0 if empty else rounded(Fraction(peak) / most)
        inverse = 0.0 if empty else rounded(most / Fraction(peak))
        q = [round(Fraction(rounded(Fraction(value) * Fraction(inverse)))) for value in block]
        hi = [(number + 64) // 128 if wide else 0 for number in q]
        lo = [number - 128 * high for number, high in zip(q, hi, strict=True)]
        assert all(-128 < number < 128 for number in (*lo, *hi))
        for place, values in zip(made, (lo, [scale], [sum(q)], hi, [int(wide)]), strict=True):
            place.extend(values)
    return made


def quantise_wide(x):
    with np.errstate(all="ignore"):
        return ar.quantise_wide(x)


def special_rows(num_blocks):
    """Rows of num_blocks blocks at the edges of the rule, by name."""
    rng = np.random.default_rng(num_blocks)
    noise = rng.standard_normal((8, num_blocks * 32)).astype(F32)
    rows = {"noise": noise[0], "zero": np.zeros_like(noise[0]), "negative zero": -np.zeros_like(noise[0])}
    for name, peak in (("one", 100.0), ("denormal", 2.0**-140), ("below 2^-100", 2.0**-101), ("at 2^-100", 2.0**-100)):
        rows[name] = np.zeros_like(noise[0])
        rows[name][-5] = peak
    rows["channel"] = noise[1].copy()
    rows["channel"][7] = -50.0
    rows["every second"] = noise[2].copy()
    rows["every second"][::64] = 30.0
    rows["all denormal"] = noise[3] * F32(2.0**-140)
    rows["equal peaks"] = np.tile(np.linspace(-1, 1, 32).astype(F32), num_blocks)
    rows["largest"] = noise[4] * F32(5e37)
    rows["too large"] = np.zeros_like(noise[0])
    rows["too large"][1] = 3e38
    ties = np.zeros_like(noise[0])
    ties[:32] = [16256, -16256, 0.5, 1.5, -0.5, -1.5, 63, 64, 65, -63, -64, -65, 63.5, 64.5, -64.5, 16191.5, *range(16)]
    rows["ties"] = ties
    return rows


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 5, 16, 17, 18, 33])
def test_wide_blocks_equal_the_definition_element_by_element(num_blocks):
    rows = special_rows(num_blocks)
    made = quantise_wide(np.stack(list(rows.values())))
    for index, (name, row) in enumerate(rows.items()):
        ours = (made.lo[index], made.scale[index], made.total[index], made.hi[index], made.wide[index])
        assert [array.tolist() for array in ours] == list(quantise_row(row)), name
    assert made.lo.dtype == made.hi.dtype == np.int8 and made.total.dtype == made.wide.dtype == np.int32


def test_which_blocks_are_wide():
    rows = special_rows(18)
    counts = {name: int(quantise_wide(row[None]).wide.sum()) for name, row in rows.items()}
    assert counts["one"] == counts["channel"] == counts["at 2^-100"] == counts["ties"] == 1
    none = ("noise", "zero", "negative zero", "denormal", "below 2^-100", "all denormal", "equal peaks", "largest")
    assert not any(counts[name] for name in none)
    assert counts["every second"] == 9


def test_at_exactly_the_limit_a_block_stays_narrow():
    x = np.zeros((2, 32), F32)
    x[:, 0] = 62
    x[:, 1:] = 7
    x[1, 0] = np.nextafter(x[1, 0], F32(np.inf))
    assert quantise_wide(x).wide.tolist() == [[0], [1]]


def test_narrow_blocks_are_those_of_q8a_and_wide_ones_128_times_finer():
    rows = np.stack([special_rows(18)[name] for name in ("noise", "zero", "one", "channel", "every second")])
    wide = quantise_wide(rows)
    with np.errstate(all="ignore"):
        q, scale, total = ar.quantise(rows)
    narrow = wide.wide == 0
    assert np.array_equal(wide.scale[narrow], scale[narrow]) and np.array_equal(wide.total[narrow], total[narrow])
    is_narrow = np.repeat(narrow, 32, axis=-1)
    assert np.array_equal(wide.lo[is_narrow], q[is_narrow]) and not wide.hi[is_narrow].any()
    value = (128.0 * wide.hi + wide.lo) * np.repeat(wide.scale, 32, axis=-1)
    assert (np.abs(value - rows) <= 0.503 * np.repeat(wide.scale, 32, axis=-1)).all()


@pytest.mark.parametrize("dtype", [DType.Q4_0, DType.Q4_1, DType.Q8_0])
def test_a_product_with_wide_blocks_is_exact_until_it_is_scaled(dtype):
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 256, weight_bytes(dtype, 16, 96), np.uint8).reshape(3, -1)
    raw[0, :256] = 0x80
    scales_at = 512 if dtype is DType.Q8_0 else 256
    scales = rng.standard_normal(raw[:, scales_at:].size // 2).astype(np.float16)
    raw[:, scales_at:] = scales.view(np.uint8).reshape(3, -1)
    weight = Tensor(dtype, (16, 96), Dim0.FIXED, raw.reshape(-1))
    x = Tensor(DType.Q8W, (2, 96), Dim0.TOKENS, np.zeros(activation_bytes(DType.Q8W, 2, 96), np.uint8))
    values = rng.standard_normal((2, 96)).astype(F32)
    values[0, 1:32] = 1
    values[0, 0] = 20  # a wide block
    ids = np.zeros(2, np.int32)
    batch = Batch(ids, ids, ids, np.zeros((1, 1), np.int32), ids[:0])
    x.write(values, batch)
    rows, blocks = x.quantised(batch), unpack_blocks(weight, np.arange(1))
    assert rows.wide.tolist() == [[1, 0, 0], [0, 0, 0]]
    result = product(x, weight, batch)
    for token, row in ((token, row) for token in range(2) for row in range(16)):
        acc = F32(0)
        for b in range(3):
            columns = slice(32 * b, 32 * b + 32)
            q_x = [
                128 * int(h) + int(low) for h, low in zip(rows.hi[token, columns], rows.lo[token, columns], strict=True)
            ]
            i = sum(int(w) * q for w, q in zip(blocks.q[b, :, row], q_x, strict=True))
            acc = F32(exact_fma(F32(i), blocks.d[b, row] * rows.scale[token, b], acc))
            if blocks.m is not None:
                acc = F32(exact_fma(blocks.m[b, row], rows.scale[token, b] * F32(rows.total[token, b]), acc))
        assert result[token, row] == acc


def test_every_norm_and_hidden_of_a_tiny_model_has_wide_blocks_in_some_rows(tiny_path, monkeypatch):
    made = []

    def record(x):
        made.append(ar.quantise_wide(x))
        return made[-1]

    monkeypatch.setattr(tensors, "quantise_wide", record)
    image = plain_image(tiny_path)
    pages = np.zeros((4, image.manifest.spec.kv_layout.page_bytes), np.uint8)
    ids = [int(number) for number in np.random.default_rng(1).integers(0, 290, 40)]
    ReferenceExecutor(image, pages).run(make_batch([(0, ids)], [[0, 1, 2]], list(range(40))))
    assert len(made) == 3 * image.manifest.spec.num_layers + 1
    assert all(0 < rows.wide.any(axis=1).mean() < 1 for rows in made)
