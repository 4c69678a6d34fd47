"""Integer sums are exact up to a length, and not beyond."""

from dataclasses import replace

import pytest

from unsay.compiler.verify.kernels.bounds import share_lemma
from unsay.compiler.verify.kernels.overflow import ATTENTION, BLOCKS, LONGEST, PART, prove_exact, prove_planes
from unsay.compiler.verify.obligation import Status


@pytest.mark.parametrize("formats", BLOCKS, ids=str)
def test_i_of_a_block_is_exact(formats):
    assert prove_exact(BLOCKS[formats]).status is Status.PROVED


def test_a_sum_over_a_part_of_a_row_is_exact_and_far_from_the_longest_that_is():
    assert prove_exact(PART).status is Status.PROVED
    assert prove_exact(replace(PART, count=1040)).status is Status.PROVED
    assert prove_exact(replace(PART, count=1041)).status is Status.REFUTED


@pytest.mark.parametrize("kind", ATTENTION)
def test_a_sum_over_int8_pages_is_exact(kind: str):
    assert prove_exact(ATTENTION[kind]).status is Status.PROVED


def test_a_head_of_a_multiple_of_16_more_elements_may_overflow():
    longest = next(iter(ATTENTION.values()))
    assert prove_exact(replace(longest, count=longest.count + 16)).status is Status.REFUTED


def test_integers_of_15_bits_are_two_planes():
    assert prove_planes().status is Status.PROVED
    assert prove_planes(6).status is prove_planes(8).status is Status.REFUTED


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
