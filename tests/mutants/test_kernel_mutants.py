"""Mutants of tile functions: none computes N4, and each is told from one that does."""

from functools import partial

import pytest

from tests.mutants.kernel_mutants import mutants
from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.kernels.tile import Product, notes_function, pair_function, tile_function
from unsay.compiler.verify.kernels.products import Kind, prove_tile
from unsay.compiler.verify.obligation import Status, attempt
from unsay.isa.formats import DType
from unsay.isa.targets import find_target

PER_TARGET = 6


@pytest.mark.parametrize("kind", ["tile", "pair"])
@pytest.mark.parametrize(("target", "dtype"), [("avx512-vnni", "Q8_0"), ("avx2", "Q4_1"), ("aarch64-dotprod", "Q4_0")])
def test_no_mutant_of_a_tile_is_proved(target: str, dtype: str, kind: Kind):
    unit, product, module = dot_unit(find_target(target)), Product(DType[dtype], 64, 64, DType.Q8A, 8), Module("")
    notes_function(notes := Module(""), unit, product, 1)
    if kind == "pair":
        pair_function(module, unit, product)
    else:
        tile_function(module, unit, product, 1)
    for mutant in mutants(module.text(), seed=20, count=PER_TARGET):
        result = attempt(partial(prove_tile, unit, product, 1, notes.text() + mutant, kind))
        different = set(mutant.splitlines()) - set(module.text().splitlines())
        assert result.status is not Status.PROVED, different
