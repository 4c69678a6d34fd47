"""The real model against the float64 oracle. The whole text is measured by benchmarks/accuracy.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import unsay
from tests.accuracy.agreement import TEXT, Agreement, chunks, measure
from tests.oracle import Oracle

_NUM_CHUNKS = 4
_CONTEXT = 512


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[unsay.Model]:
    with unsay.load(smollm2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def agreement(smollm2: Path, model: unsay.Model) -> Agreement:
    """Over stretches spread through the text: 2,044 scored tokens."""
    documents = chunks(model.tokenize(TEXT.read_text(encoding="utf-8")), _CONTEXT)
    *_, total = measure(model, Oracle(smollm2), documents[:: len(documents) // _NUM_CHUNKS][:_NUM_CHUNKS])
    return total


def test_perplexity_is_within_half_a_percent(agreement: Agreement) -> None:
    assert abs(agreement.perplexity_ratio) < 0.005, str(agreement)


def test_mean_divergence_is_below_five_millinats(agreement: Agreement) -> None:
    assert 0 <= agreement.mean_kl < 0.005, str(agreement)


def test_first_choices_agree_on_97_percent(agreement: Agreement) -> None:
    assert agreement.top1 > 0.97, str(agreement)


def test_native_and_reference_give_the_same_bits_on_the_real_model(smollm2: Path, model: unsay.Model) -> None:
    ids = model.tokenize(TEXT.read_text(encoding="utf-8"))[:48]
    with unsay.load(smollm2, executor="reference") as reference:
        expected = reference.logits(ids)
    np.testing.assert_array_equal(model.logits(ids).view(np.int32), expected.view(np.int32))
