"""Integer sums are exact up to a length, and not beyond."""

from dataclasses import replace

import pytest

from unsay.compiler.verify.kernels.bounds import share_lemma
from unsay.compiler.verify.kernels.overflow import BLOCKS, LONGEST, WHOLE, prove_exact
from unsay.compiler.verify.obligation import Status


@pytest.mark.parametrize("formats", BLOCKS, ids=str)
def test_i_of_a_block_is_exact(formats):
    assert prove_exact(BLOCKS[formats]).status is Status.PROVED


@pytest.mark.parametrize("width", WHOLE)
def test_a_sum_over_a_whole_row_is_exact_and_no_step_of_its_integers_is_given_away(width: int):
    accumulator = WHOLE[width]
    assert prove_exact(accumulator).status is Status.PROVED
    finer = replace(accumulator, x=(accumulator.x[0] - 1, accumulator.x[1] + 1))
    assert accumulator.x[1] == 16256 or prove_exact(finer).status is Status.REFUTED


@pytest.mark.parametrize("kind", LONGEST)
def test_the_longest_sum_is_exact_and_one_more_may_overflow(kind: str):
    accumulator = LONGEST[kind]
    assert prove_exact(accumulator).status is Status.PROVED
    longer = prove_exact(replace(accumulator, count=accumulator.count + 1))
    assert longer.status is Status.REFUTED and f"n = {accumulator.count}" in longer.detail


def test_a_product_that_is_not_one_is_refuted():
    assert prove_exact(BLOCKS[next(iter(BLOCKS))], lambda w, x: w * x + 1).status is Status.REFUTED


def test_a_share_lies_within_the_units():
    assert share_lemma().status is Status.PROVED
