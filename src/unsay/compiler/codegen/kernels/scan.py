"""What the sampler asks of a row of scores f32 [count], in machine code: N12 and N13, with the bits of runtime/scan.py.

    survey(row, count, inverse, largest, weight)
    race(row, count, shift, inverse, key0, key1, position, words, bounds, reach)

largest, weight, reach: f32 [parts]; words: i32 [count]; bounds: f32 [count]. They are entries of their own, called by
one thread between two steps, for scores a step does not know (look.py does its own logits). count is a multiple of 32;
what fills a row up to that is -inf, which weighs nothing.
"""

from __future__ import annotations

from unsay.compiler.codegen.builder import F32, F32X16, I32, I64, PTR, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.vector import LANES, exp, largest, maximum, tree_sum
from unsay.isa.scan import PART_TOKENS, SCAN_TOKENS

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_COUNTERS = SCAN_TOKENS // 4
_WIDE = vector(I64, _COUNTERS)
_MASK = 0xFFFF_FFFF


def add_scan(module: Module) -> None:
    """Write both functions into the module."""
    row = [(PTR, "row"), (I64, "count")]
    module.define(
        "survey", [*row, (F32, "inverse"), (PTR, "largest"), (PTR, "weight")], _survey,
        "N12: largest score and weight of each part", linkage="",
    )  # fmt: skip
    numbers = [(F32, "shift"), (F32, "inverse"), (I32, "key0"), (I32, "key1"), (I32, "position")]
    module.define(
        "race", [*row, *numbers, (PTR, "words"), (PTR, "bounds"), (PTR, "reach")], _race,
        "N13: words, bounds, and the largest bound of each part", linkage="",
    )  # fmt: skip


def _survey(f: Function) -> None:
    top = f.slot(F32X16, float("-inf"))
    with f.loop("part", 0, f["count"], PART_TOKENS) as begin:
        part = f.slot(F32X16, float("-inf"))
        with f.loop("largest", begin, _part_end(f, begin), LANES) as at:
            part.set(maximum_or_nan(f, part.get(), _scores(f, at)))
        top.set(maximum_or_nan(f, top.get(), part.get()))
        f.store(largest_or_nan(f, part.get()), _of_part(f, "largest", begin), align=4)
    highest, inverse = largest_or_nan(f, top.get()).splat(LANES), f["inverse"].splat(LANES)
    with f.loop("part", 0, f["count"], PART_TOKENS) as begin:
        total = f.slot(F32X16, 0.0)
        with f.loop("weight", begin, _part_end(f, begin), LANES) as at:
            total.set(total.get() + exp(f, (_scores(f, at) - highest) * inverse))
        f.store(tree_sum(total.get()), _of_part(f, "weight", begin), align=4)


def _race(f: Function) -> None:
    shift, inverse = f["shift"].splat(LANES), f["inverse"].splat(LANES)
    keys = f["key0"], f["key1"]
    with f.loop("part", 0, f["count"], PART_TOKENS) as begin:
        reach = f.slot(F32X16, 0.0)
        with f.loop("token", begin, _part_end(f, begin), SCAN_TOKENS) as at:
            for half, word in enumerate(noise_words(f, at, keys, f["position"])):
                first = at + half * LANES
                bound = score_bound(f, (_scores(f, first) - shift) * inverse, word)
                reach.set(maximum(f, reach.get(), bound))
                f.store(word, f["words"].at(first * 4), align=4)
                f.store(bound, f["bounds"].at(first * 4), align=4)
        f.store(largest(f, reach.get()), _of_part(f, "reach", begin), align=4)


def noise_words(f: Function, token: Value, keys: tuple[Value, Value], position: Value) -> list[Value]:
    """The words <16 x i32> of the tokens from `token` on, SCAN_TOKENS of them."""
    lanes = ", ".join(f"i64 {lane}" for lane in range(_COUNTERS))
    counter = (token // 4).splat(_COUNTERS) + Value(f, _WIDE, f"<{lanes}>")
    place = position.cast("zext", I64).splat(_COUNTERS)
    zero = f.constant(_WIDE, 0)
    four = _philox(f, [counter, place, zero, zero], [key.splat(_COUNTERS) for key in keys])
    pairs = [_alternating(four[start], four[start + 1]).cast("bitcast", _WIDE) for start in (0, 2)]
    every = _alternating(*pairs).cast("bitcast", vector(I32, SCAN_TOKENS))
    return [every.shuffle(range(start, start + LANES)) for start in range(0, SCAN_TOKENS, LANES)]


def score_bound(f: Function, scores: Value, words: Value) -> Value:
    """N13: what tokens of these words can score; scores: (x - shift) * inverse."""
    return exp(f, scores) / (((words ^ -1).cast("uitofp", F32X16) + 0.5) * 2.0**-32)


def _philox(f: Function, counter: list[Value], keys: list[Value]) -> list[Value]:
    """Philox4x32-10 (runtime/philox.py): four words <n x i32> for counters of four 32-bit words <n x i64>."""
    c0, c1, c2, c3 = counter
    for number in range(_ROUNDS):
        k0, k1 = ((key + (number * weyl & _MASK)).cast("zext", _WIDE) for key, weyl in zip(keys, _WEYL, strict=True))
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = (second >> 32) ^ c1 ^ k0, second & _MASK
        c2, c3 = (first >> 32) ^ c3 ^ k1, first & _MASK
    return [word.cast("trunc", vector(I32, _COUNTERS)) for word in (c0, c1, c2, c3)]


def _alternating(a: Value, b: Value) -> Value:
    """a0 b0 a1 b1 ..."""
    return a.beside(b).shuffle([lane + _COUNTERS * second for lane in range(_COUNTERS) for second in (0, 1)])


def _part_end(f: Function, begin: Value) -> Value:
    return f.smaller(begin + PART_TOKENS, f["count"])


def _of_part(f: Function, array: str, begin: Value) -> Value:
    return f[array].at(begin // (PART_TOKENS // 4))


def _scores(f: Function, at: Value) -> Value:
    return f.load(F32X16, f["row"].at(at * 4), align=4)


def maximum_or_nan(f: Function, a: Value, b: Value) -> Value:
    """The larger, lane by lane; NaN where one is."""
    return f.intrinsic("llvm.maximum.v16f32", F32X16, a, b)


def largest_or_nan(f: Function, x: Value) -> Value:
    """The largest lane; NaN if one is."""
    return f.intrinsic("llvm.vector.reduce.fmaximum.v16f32", F32, x)
