from itertools import product
from math import prod

import pytest

from unsay.compiler.ir.bounds import most
from unsay.compiler.ir.parser import parse


@pytest.mark.parametrize(
    ("head", "extents", "expected"),
    [
        ("B: 1..8, T: 1..512", "B T 576", 8 * 512 * 576),
        ("B: 1..64, T: 1..8192) where B*T <= 8192, (B + T) % 2 == 0", "B T 576", 8192 * 576),
        ("B: 1..64, T: 1..8192) where B*T < 8192, B != 3, T >= 2", "B T", 8191),
        ("B: 1..64, T: 1..8192) where 2*B*T <= 101", "B T", 50),
        ("B: 1..64, T: 1..8192) where B*B <= 100, T == 7", "B B T", 700),
        ("P: 0..2047, T: 1..512, S: 1..4000 = P + T", "S", 2559),
        ("P: 0..2047, T: 1..512, S: 1..2000 = P + T", "S 2", 4000),
        ("P: 0..2047, T: 1..512, S: 1..4000 = P + T) where P + T <= 2048", "S", 2048),
        ("P: 0..2047, T: 1..512, S: 1..4000 = P + T) where S <= 2048", "S 3", 3 * 2048),
        ("P: 5..10, S: 1..100 = 50 - 2*P", "S", 40),
        ("", "3 4", 12),
        ("", "", 1),
    ],
)
def test_the_most_a_product_can_be(head: str, extents: str, expected: int):
    graph = parse(f"graph g({head}{'' if ')' in head else ')'} {{ }}")
    given = [graph.dims[word] if word in graph.dims else int(word) for word in extents.split()]
    assert most(given, graph.constraints) == expected


@pytest.mark.parametrize(
    ("head", "extents"),
    [
        ("B: 1..6, T: 2..7) where B*T <= 17, (B + T) % 2 == 1", "B T 3"),
        ("B: 0..6, T: 1..7, S: 0..100 = 2*B + T) where S < 12, B*B <= 20", "S B"),
        ("B: 1..5, T: 1..5, S: 0..30 = 25 - B*T) where 2*B + T <= 9", "S T"),
    ],
)
def test_no_sizes_that_are_allowed_exceed_it(head: str, extents: str):
    graph = parse(f"graph g({head} {{ }}")
    free = [dim for dim in graph.dims.values() if dim.formula is None]
    seen: list[int] = []
    for numbers in product(*(range(dim.low, dim.high + 1) for dim in free)):
        sizes = {dim.name: number for dim, number in zip(free, numbers, strict=True)}
        for dim in graph.dims.values():
            sizes.setdefault(dim.name, dim.formula.value(sizes) if dim.formula else 0)
        inside = all(dim.low <= sizes[dim.name] <= dim.high for dim in graph.dims.values())
        if inside and all(constraint.holds(sizes) for constraint in graph.constraints):
            seen.append(prod(sizes[word] if word in sizes else int(word) for word in extents.split()))
    given = [graph.dims[word] if word in graph.dims else int(word) for word in extents.split()]
    assert seen and max(seen) <= most(given, graph.constraints)
