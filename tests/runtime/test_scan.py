"""Rows of logits as the machine code of an image looks at them: the definition's bits, and bounds that hold."""

from __future__ import annotations

import ctypes
import math
import mmap
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from unsay.compiler.codegen.builder import I32, I64, PTR, Function, Module
from unsay.compiler.codegen.kernels.look import look
from unsay.compiler.codegen.kernels.scan import add_scan
from unsay.compiler.codegen.kernels.sync import add_sync
from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.core import Float32Array, Lane, SamplingParams
from unsay.engine.sampler import choose
from unsay.isa.abi import StepArgs
from unsay.isa.formats import padded_rows
from unsay.isa.scan import RowDraw, seen_bytes
from unsay.isa.targets import find_target
from unsay.runtime.defined_scan import DefinedScan
from unsay.runtime.defined_scan import look as looked_at
from unsay.runtime.native_scan import NativeScan
from unsay.runtime.scan import Draw, Glance, Race, Survey, is_plain

SIZES = [1, 31, 32, 1000, 1024, 1025, 3 * 1024 + 32, 5000]
DEFINED = DefinedScan()
LOOK = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 3)


def native(num_tokens: int) -> NativeScan:
    return NativeScan(*compiled(num_tokens), num_tokens, memoryview(b""))


@cache
def compiled(num_tokens: int) -> tuple[mmap.mmap, dict[str, int]]:
    """The entries for one row, and `look0`, `look1`, `look2`: the kernels of a step for rows of so many tokens."""
    module = Module(ATTRIBUTES)
    add_scan(module)
    add_sync(module, "x86")
    module.define("step", [(PTR, "args"), (I32, "thread")], no_step, "not run", result=I32, linkage="")
    for place, kernel in enumerate(look(module, num_tokens, padded_rows(num_tokens))):
        pointers = [(PTR, name) for name in ("args", "logits", "draws", "seen")]
        numbers = [(I64, name) for name in ("thread", "threads", "count")]
        module.define(f"look{place}", pointers + numbers, calling(kernel), "a kernel for ctypes", linkage="")
    blob, symbols = compile_module(module.text(), find_target("avx2"))
    with tempfile.TemporaryFile() as file:
        file.write(blob)
        file.flush()
        code = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    return code, symbols


def no_step(f: Function) -> None:
    f.result_value = f.constant(I32, 0)


def calling(kernel: str) -> Callable[[Function], None]:
    names = ("args", "thread", "threads", "count", "logits", "draws", "seen")
    return lambda f: f.run(kernel, *(f[name] for name in names))


def glances(rows: Float32Array, draws: list[Draw | None], num_threads: int) -> list[Glance]:
    """What a step notes of rows [R, V], its threads one after the other."""
    count, num_tokens = rows.shape
    logits = np.full((count, padded_rows(num_tokens)), 1e30, np.float32)  # what lies behind a row does not matter
    logits[:, :num_tokens] = rows
    seen = np.zeros(count * seen_bytes(num_tokens), np.uint8)
    asked = (RowDraw * count)(*(RowDraw(0, 0, 0, 0) if draw is None else asked_for(draw) for draw in draws))
    word = np.zeros(1, np.int32)
    args = StepArgs(interrupt=word.ctypes.data)
    pointers = ctypes.addressof(args), logits.ctypes.data, ctypes.addressof(asked), seen.ctypes.data
    code, symbols = compiled(num_tokens)
    base = int(np.frombuffer(code, np.uint8).ctypes.data)
    for place in range(3):
        kernel = LOOK(base + symbols[f"look{place}"])
        for thread in range(num_threads):
            kernel(*pointers, thread, num_threads, count)
    scan = NativeScan(code, symbols, num_tokens, seen.data)
    return [scan.glance(number, row, draw) for number, (row, draw) in enumerate(zip(rows, draws, strict=True))]


def asked_for(draw: Draw) -> RowDraw:
    return RowDraw(draw.inverse, draw.seed & 0xFFFFFFFF, draw.seed >> 32, draw.position)


def row(size: int, spread: float, seed: int = 0) -> Float32Array:
    """Without a -0: which zero is the largest is left open (N12)."""
    return (np.random.default_rng(seed).normal(size=size) * spread).astype(np.float32) + np.float32(0)


def bits(found: Survey | Race) -> list[bytes]:
    return [array.tobytes() for array in found]


@pytest.mark.parametrize("size", [*SIZES, 17, 1024 + 40])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_step_notes_what_the_definition_says(size: int, num_threads: int) -> None:
    settings = [(0.0, 1.0), (4.0, 1.0), (4.0, 1 / 0.7), (60.0, 3.0), (1.0, 1e4), (4.0, None)]
    rows = np.stack([row(size, spread, place) for place, (spread, _) in enumerate(settings)])
    rows[1, -1] = rows[1].max()  # of equals the first
    draws = [inverse and Draw(0.0, inverse, 2**64 - 3 - size, 2**31 + size) for _, inverse in settings]
    found = glances(rows, draws, num_threads)
    for number, draw in enumerate(draws):
        count = 3 if draw is None else 7
        assert found[number][:count] == looked_at(DEFINED, rows[number], draw)[:count]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1023, 1024, 4999])
def test_a_step_notes_what_is_no_number(value: float, place: int) -> None:
    rows = row(5000, 3.0)[None].copy()
    rows[0, place] = value
    (found,) = glances(rows, [Draw(0.0, 1.0, 1, 1)], 2)
    assert np.array_equal(found.largest, value, equal_nan=True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("spread", "inverse"), [(0.0, 1.0), (4.0, 1.0), (4.0, 1 / 0.7), (60.0, 3.0), (1.0, 1e4)])
def test_machine_code_gives_the_bits_of_the_definition(size: int, spread: float, inverse: float) -> None:
    logits = row(size, spread)
    draw = Draw(float(logits.max()), inverse, 2**64 - 3 - size, 2**31 + size)
    assert bits(native(size).survey(logits, inverse)) == bits(DEFINED.survey(logits, inverse))
    assert bits(native(size).race(logits, draw)) == bits(DEFINED.race(logits, draw))


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0}, {"temperature": 0.7}, {"temperature": 100.0}, {"temperature": 2e-4}, {"top_k": 40},
        {"top_p": 0.9}, {"min_p": 0.05}, {"temperature": 0.0, "repetition_penalty": 1.2},
        {"repetition_penalty": 1.2, "presence_penalty": 0.4, "top_k": 30, "top_p": 0.8, "logit_bias": {3: 2.0}},
    ],
    ids=str,
)  # fmt: skip
def test_the_same_is_chosen_with_either(params: dict[str, Any]) -> None:
    for seed in range(10):
        logits, history = row(5000, 4.0, seed), list(range(40 + seed))
        chosen = SamplingParams(seed=seed, **params)
        lane = Lane(1, chosen, len(history), history, 5, is_plain=is_plain(chosen))
        assert choose(logits, lane, native(5000)) == choose(logits, lane, DEFINED)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1023, 1024, 4999])
def test_what_is_no_number_shows_in_its_part(value: float, place: int) -> None:
    logits = row(5000, 3.0)
    logits[place] = value
    largest = native(5000).survey(logits, 1.0).largest
    assert largest.tobytes() == DEFINED.survey(logits, 1.0).largest.tobytes()
    assert math.isnan(largest[place // 1024]) == np.isnan(value)


def test_a_row_need_not_lie_in_one_piece() -> None:
    logits = row(2 * 1024, 3.0)[::2]
    assert bits(native(1024).survey(logits, 1.0)) == bits(DEFINED.survey(logits, 1.0))


def test_weights_sum_to_the_softmax_denominator() -> None:
    logits = row(5000, 4.0)
    found = DEFINED.survey(logits, 1 / 0.7)
    exact = np.exp((logits.astype(np.float64) - logits.max()) / 0.7).sum()
    assert abs(np.sum(found.weight, dtype=np.float64) / exact - 1) < 1e-5


@pytest.mark.parametrize("temperature", [1e-4, 0.7, 100.0])
def test_bounds_are_above_what_a_token_scores_and_close_where_that_is_much(temperature: float) -> None:
    logits = row(5000, 4.0)
    race = DEFINED.race(logits, Draw(float(logits.max()), 1 / temperature, 5, 6))
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    variates = -np.log((np.asarray(race.words) + 0.5) * 2.0**-32)
    seen = weights > 1e-30
    ratio = (np.asarray(race.bounds) * variates)[seen] / weights[seen]
    assert np.all(ratio > 1 - 1e-4)
    assert np.all(ratio[variates[seen] < 1e-3] < 1 + 1e-3)


@pytest.mark.parametrize("word", [0, 1, 2**32 - 2, 2**32 - 1])
def test_bounds_of_the_extreme_words_are_finite(word: int) -> None:
    rest = (np.float32(~np.uint32(word)) + np.float32(0.5)) * np.float32(2.0**-32)
    assert 0 < rest <= 1 and np.isfinite(np.float32(1) / rest)
