"""A kernel with a number changed is still raised to what it does, or refused; the judge is an interpreter.

Masks are moved, neutral elements replaced, comparisons turned, sizes and grids changed: what a mask leaves out must
never show in a result.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.compiler.frontend.triton_interpreter import run
from unsay.compiler.frontend.triton import raise_kernel
from unsay.compiler.frontend.triton.launch import Launch, find_launch
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.types import TensorType
from unsay.errors import UnimportableError

DATA = Path(__file__).parents[2] / "data" / "triton"
STORED = {
    "add": 2, "gelu": 1, "row_sum": 1, "block_max": 1, "softmax": 0, "causal_softmax": 1, "layer_norm": 1,
    "rms_norm": 1, "matmul": 2, "linear": 3,
}  # fmt: skip
"""The parameter that each kernel stores to."""

_CHANGEABLE = re.compile(r"value = -?\d+ : i32|predicate = \d|dense<-?[\d.]+(?:e[+-]\d+)?>|0xFF800000")


def kernel(name: str) -> tuple[str, Launch]:
    text = (DATA / f"{name}.ttir").read_text()
    launch = find_launch(text)
    assert launch is not None, name
    return text, launch


def check(name: str, text: str, launch: Launch) -> None:
    """Raises UnimportableError if the kernel is refused; where it reads what no mask lets it know, nothing is asked."""
    values = np.random.default_rng(3)
    inputs: dict[int, NDArray[Any]] = {
        position: values.standard_normal(given.dims).astype(given.dtype.name.lower().replace("f", "float"))
        for position, given in enumerate(launch.arguments)
        if isinstance(given, TensorType)
    }
    graph = raise_kernel(text, launch=launch).graph
    (made,) = evaluate(graph, {f"arg{position}": array for position, array in inputs.items()}, {})
    (wanted,) = run(text, launch, inputs, [STORED[name]])
    tolerance = 3e-3 if wanted.dtype == np.float16 else 1e-4
    known = np.isfinite(wanted)
    np.testing.assert_allclose(made[known], wanted[known], rtol=tolerance, atol=tolerance)


def mutated(text: str, chance: random.Random) -> str:
    """One number of the text changed."""
    places = list(_CHANGEABLE.finditer(text))
    place = chance.choice(places)
    old = place[0]
    if old.startswith("predicate"):
        new = f"predicate = {chance.randint(2, 5)}"
    elif "0x" in old or "." in old:
        number = chance.choice(["0.000000e+00", "1.000000e+00", "-1.500000e+00"])
        new = f"dense<{number}>" if old.startswith("dense") else number
    else:
        new = re.sub(r"-?\d+", lambda match: str(max(0, int(match[0]) + chance.choice([-16, -1, 1, 16]))), old, count=1)
    return text[: place.start()] + new + text[place.end() :]


def resized(launch: Launch, chance: random.Random) -> Launch:
    """One size changed wherever it occurs, or the grid."""
    sizes = sorted({given for given in launch.arguments if isinstance(given, int)})
    if not sizes or chance.random() < 0.3:
        return replace(launch, grid=(max(1, launch.grid[0] + chance.choice([-1, 1])), *launch.grid[1:]))
    old = chance.choice(sizes)
    new = max(1, old + chance.choice([-30, -16, -1, 1, 5, 16]))

    def other(given: TensorType | int | float) -> TensorType | int | float:
        if isinstance(given, TensorType):
            return replace(given, dims=tuple(new if size == old else size for size in given.dims))
        return new if given == old and isinstance(given, int) else given

    return replace(launch, arguments=tuple(map(other, launch.arguments)))


@pytest.mark.parametrize("name", STORED)
def test_a_kernel_is_raised_to_what_its_programs_do(name: str) -> None:
    check(name, *kernel(name))


@pytest.mark.parametrize("seed", range(3))
def test_a_mutant_is_raised_to_what_it_does_or_refused(seed: int) -> None:
    chance, ends = random.Random(seed), Counter[str]()
    for name in STORED:
        text, launch = kernel(name)
        for change in (lambda: (mutated(text, chance), launch), lambda: (text, resized(launch, chance))):  # noqa: B023
            try:
                check(name, *change())
                ends["raised"] += 1
            except UnimportableError:
                ends["refused"] += 1
    assert min(ends.values()) >= 3, ends
