"""The models of instructions against NumPy, on random and extreme values; the lemmas about products."""

import numpy as np
import pytest

from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.obligation import Status
from unsay.compiler.verify.smt import decide, z3

RANDOM = np.random.default_rng(3)
EXTREMES = np.array([-128, -127, -1, 0, 1, 126, 127])


def _bytes(count: int) -> np.ndarray:
    return np.concatenate([RANDOM.choice(EXTREMES, count // 2), RANDOM.integers(-128, 128, count - count // 2)])


def _unknown(values: np.ndarray) -> list[Lane]:
    """Lanes of which only the type is known, and then their values put in: bounds are those of the type."""
    return [lanes.byte(z3.BitVecVal(int(value), 8)) for value in values]


def _value(lane: Lane) -> int:
    value = z3.simplify(lane.term).as_signed_long()
    assert lane.low <= value <= lane.high
    return value


def _wrapped(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("trial", range(8))
def test_dot_instructions_are_what_numpy_computes(trial: int):
    w, x = _bytes(4), _bytes(4)
    start = int(RANDOM.choice([-(2**31), 2**31 - 1, 0, 12345]))
    total, u = lanes.constant(start), w.astype(np.uint8).astype(int)
    assert _value(lanes.dpbusd(total, _unknown(w), _unknown(x))) == _wrapped(start + int(u @ x), 32)
    assert _value(lanes.sdot(total, _unknown(w), _unknown(x))) == _wrapped(start + int(w @ x), 32)
    pair = int(np.clip(u[:2] @ x[:2], -(2**15), 2**15 - 1))
    assert _value(lanes.maddubs(_unknown(w[:2]), _unknown(x[:2]))) == pair
    a, b = RANDOM.integers(-(2**15), 2**15, (2, 2))
    words = [[Lane(z3.BitVecVal(int(v), 32), -(2**15), 2**15 - 1) for v in side] for side in (a, b)]
    assert _value(lanes.maddwd(*words)) == _wrapped(int(a @ b), 32)


def test_maddubs_saturates_on_both_sides():
    most, least = (lanes.maddubs(_unknown(np.array([-1, -1])), _unknown(np.array([x, x]))) for x in (127, -128))
    assert (_value(most), _value(least)) == (32767, -32768)


def test_maddwd_wraps_where_both_products_are_largest():
    words = [Lane(z3.BitVecVal(-(2**15), 32), -(2**15), 2**15 - 1)] * 2
    assert _value(lanes.maddwd(words, words)) == -(2**31)


def test_smmla_multiplies_two_rows_with_two_columns():
    rows, columns, start = _bytes(16), _bytes(16), RANDOM.integers(-1000, 1000, (2, 2))
    made = lanes.smmla([lanes.constant(int(v)) for v in start.ravel()], _unknown(rows), _unknown(columns))
    assert [_value(lane) for lane in made] == (start + rows.reshape(2, 8) @ columns.reshape(2, 8).T).ravel().tolist()


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("op", "of_numpy"), [
    ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("and", np.bitwise_and), ("or", np.bitwise_or),
    ("xor", np.bitwise_xor),
])  # fmt: skip
def test_integer_arithmetic_wraps_as_numpy(op: str, of_numpy: np.ufunc, bits: int):
    kind = np.dtype(f"int{bits}")
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    for a, b in RANDOM.integers(least, most, (6, 2), endpoint=True):
        sides = [Lane(z3.BitVecVal(int(value), 32), least, most) for value in (a, b)]
        with np.errstate(over="ignore"):
            assert _value(lanes.binary(op, *sides, bits)) == of_numpy(a.astype(kind), b.astype(kind))


def test_shifts_take_the_bits_of_the_type():
    (byte,) = _unknown([-86])
    assert _value(lanes.binary("lshr", byte, lanes.constant(4, 8), 8)) == 10
    assert _value(lanes.binary("shl", lanes.constant(5), lanes.constant(7), 32)) == 640
    assert _value(lanes.binary("ashr", byte, lanes.constant(4, 8), 8)) == -6
    assert _value(lanes.unsigned(lanes.binary("xor", byte, lanes.constant(-128, 8), 8), 8)) == -86 + 128


def test_words_of_two_bytes_are_widened_by_shifts():
    low, high = _unknown([-86, 55])
    word, eight = lanes.joined((low, high)), lanes.constant(8, 16)
    assert _value(word) == 55 * 256 + 170
    assert _value(lanes.binary("ashr", word, eight, 16)) == 55
    assert _value(lanes.binary("ashr", lanes.binary("shl", word, eight, 16), eight, 16)) == -86


@pytest.mark.parametrize("lemma", lanes.lemmas(), ids=lambda lemma: lemma[0])
def test_lemmas_about_products_are_proved(lemma: tuple[str, object]):
    assert decide(lemma[1]).status is Status.PROVED
