"""The sampler: what it allows, what each filter keeps, and that the fast way chooses what the definition chooses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unsay.core import Lane, SamplingParams
from unsay.engine import noise, portable_math
from unsay.engine.params import validate
from unsay.engine.sampler import choose
from unsay.errors import RequestError
from unsay.runtime.defined_scan import words
from unsay.runtime.scan import is_plain

V = 2000


def lane(position: int = 9, history: list[int] | None = None, answer_start: int = 0, **params: object) -> Lane:
    chosen = SamplingParams(**params)  # type: ignore[arg-type]
    return Lane(1, chosen, position, history or [], answer_start, is_plain=is_plain(chosen))


def row(seed: int = 0, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=V) * spread).astype(np.float32)


def allowed(logits: np.ndarray, **params: object) -> set[int]:
    """Every token some position chooses."""
    return {choose(logits, lane(position=p, **params)).token_id for p in range(250)}


def by_definition(logits: np.ndarray, where: Lane) -> int:
    """Temperature and noise only, nothing pruned, everything portable."""
    scaled = logits.astype(np.float64) / where.params.temperature
    drawn = words(where.params.seed, where.position, logits.size).tolist()
    return int((scaled - [portable_math.log(noise.exponential(word)) for word in drawn]).argmax())


def test_slices_of_a_large_vocabulary_choose_what_the_definition_chooses() -> None:
    rng = np.random.default_rng(8)
    for seed in range(8):
        logits = rng.normal(size=49152).astype(np.float32)
        where = lane(position=seed, seed=seed, temperature=0.8)
        assert choose(logits, where).token_id == by_definition(logits, where)


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0, 40.0])
def test_the_fast_way_chooses_what_the_definition_chooses(spread: float) -> None:
    for seed in range(40):
        logits, where = row(seed, spread), lane(position=seed, seed=seed, temperature=1.3)
        assert choose(logits, where).token_id == by_definition(logits, where)


def test_sampling_draws_from_the_softmax() -> None:
    probabilities = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    logits = np.log(probabilities).astype(np.float32)
    drawn = [choose(logits, lane(position=p, temperature=1.0, seed=3)).token_id for p in range(3000)]
    assert np.abs(np.bincount(drawn, minlength=6) / 3000 - probabilities).max() < 0.03


def test_temperature_zero_takes_the_lowest_id_of_the_best() -> None:
    logits = np.zeros(V, np.float32)
    logits[[700, 70, 1700]] = 4.0
    assert choose(logits, lane(temperature=0.0)).token_id == 70
    assert choose(logits, lane(temperature=1e-8)).token_id == 70


@pytest.mark.parametrize("top_k", [1, 2, 5, 50])
def test_top_k_keeps_exactly_k(top_k: int) -> None:
    logits = row(1, 0.5)
    best = set(np.argsort(-logits, kind="stable")[:top_k].tolist())
    kept = allowed(logits, top_k=top_k, temperature=5.0)
    assert kept <= best
    assert len(kept) >= min(top_k, 20)


def test_top_k_of_equals_keeps_the_lower_ids() -> None:
    assert allowed(np.zeros(V, np.float32), top_k=3, temperature=1.0) == {0, 1, 2}


def test_top_k_beyond_the_vocabulary_is_off() -> None:
    logits = row(2)
    assert choose(logits, lane(top_k=10**9)) == choose(logits, lane(top_k=0))


@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.5, 0.79, 0.9, 0.999])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float) -> None:
    probabilities = np.array([0.4, 0.3, 0.2, 0.06, 0.04])
    count = max(1, int(np.searchsorted(np.cumsum(probabilities), top_p - 1e-6)) + 1)
    kept = allowed(np.log(probabilities).astype(np.float32), top_p=top_p, temperature=1.0)
    assert kept <= set(range(count))
    assert max(kept) == count - 1 or count == 5


def test_top_p_on_the_very_edge_is_decided_by_the_portable_sums() -> None:
    equal = np.zeros(10, np.float32)
    assert allowed(equal, top_p=0.5, temperature=1.0) == set(range(5))


def test_top_p_of_a_flat_distribution_ranks_the_whole_vocabulary() -> None:
    logits = row(3, 0.1)
    best = set(np.argsort(-logits, kind="stable")[: V - 10].tolist())
    assert allowed(logits, top_p=0.99, temperature=1.0) <= best


def test_min_p_is_relative_to_the_best() -> None:
    logits = np.log(np.array([0.6, 0.25, 0.1, 0.05])).astype(np.float32)
    assert allowed(logits, min_p=0.3, temperature=1.0) == {0, 1}
    assert allowed(logits, min_p=1.0, temperature=1.0) == {0}


def test_the_seed_decides_and_large_seeds_count_in_full() -> None:
    logits = row(4, 0.5)

    def drawn(seed: int) -> list[int]:
        return [choose(logits, lane(position=p, seed=seed)).token_id for p in range(20)]

    assert drawn(5) == drawn(5)
    assert len({tuple(drawn(seed)) for seed in (0, 5, 2**32 + 5, 2**63 + 5, 2**64 - 1)}) == 5


def test_presence_penalty_sees_the_whole_answer_and_not_the_prompt() -> None:
    logits = np.array([1.0, 0.9, 0.8, 0.7], np.float32)
    greedy = {"temperature": 0.0, "presence_penalty": 0.5}
    assert choose(logits, lane(history=[0, 1, 2], answer_start=3, **greedy)).token_id == 0
    assert choose(logits, lane(history=[3, 0, 1, 2], answer_start=1, **greedy)).token_id == 3


def test_frequency_penalty_counts() -> None:
    logits = np.array([1.0, 0.9], np.float32)
    once = lane(history=[0], temperature=0.0, frequency_penalty=0.08)
    assert choose(logits, once).token_id == 0
    assert choose(logits, once._replace(history=[0, 0])).token_id == 1


@pytest.mark.parametrize(("best", "other"), [(2.0, 1.5), (-1.0, -1.2)])
def test_repetition_penalty_lowers_what_was_there_whatever_its_sign(best: float, other: float) -> None:
    logits = np.array([best, other], np.float32)
    where = lane(history=[0], answer_start=1, temperature=0.0, repetition_penalty=1.5)
    assert choose(logits, where).token_id == 1
    assert choose(logits, where._replace(history=[])).token_id == 0


def test_repetition_penalty_counts_a_token_once_however_often_it_was_there() -> None:
    logits = np.array([2.0, 1.5, 0.1], np.float32)
    penalised = {"temperature": 0.0, "repetition_penalty": 1.2}
    assert [choose(logits, lane(history=[0] * count, **penalised)).token_id for count in (1, 9)] == [0, 0]


def test_logit_bias_bans_and_forces() -> None:
    logits = row(5)
    best = int(logits.argmax())
    assert choose(logits, lane(temperature=0.0, logit_bias={best: -1000.0})).token_id != best
    assert choose(logits, lane(temperature=0.7, logit_bias={77: 1000.0})).token_id == 77


def test_logprob_is_of_the_model_before_penalties_and_temperature() -> None:
    logits = np.log(np.array([0.7, 0.2, 0.1])).astype(np.float32)
    choice = choose(logits, lane(temperature=0.0, logit_bias={2: 100.0}))
    assert choice.token_id == 2
    assert math.isclose(choice.logprob, math.log(0.1), abs_tol=1e-6)


def test_the_row_is_not_changed() -> None:
    logits = row(6)
    before = logits.copy()
    choose(logits, lane(history=[1, 2], repetition_penalty=2.0, presence_penalty=1.0, logit_bias={3: 1.0}, top_p=0.5))
    assert np.array_equal(logits, before)


ALLOWED = [
    {"temperature": 0.0}, {"temperature": 100.0}, {"top_k": 0}, {"top_k": 2**31 - 1}, {"top_p": 0.0}, {"top_p": 1.0},
    {"min_p": 1.0}, {"seed": 0}, {"seed": 2**64 - 1}, {"logit_bias": {V - 1: -1000.0}}, {"max_tokens": 1},
    {"temperature": 1}, {"repetition_penalty": 0.5}, {"presence_penalty": -2.0}, {"stop": ("a", "bc")},
]  # fmt: skip

REFUSED = [
    {"temperature": -0.1}, {"temperature": math.nan}, {"temperature": math.inf}, {"temperature": "hot"},
    {"temperature": True}, {"top_k": -1}, {"top_k": 2.5}, {"top_k": 2**31}, {"top_p": 1.1}, {"top_p": -0.1},
    {"top_p": math.nan}, {"min_p": 2.0}, {"seed": -1}, {"seed": 2**64}, {"seed": 1.5}, {"seed": None},
    {"logit_bias": 3}, {"logit_bias": [3]}, {"ignore_eos": 1}, {"ignore_eos": None},
    {"logit_bias": {V: 1.0}}, {"logit_bias": {-1: 1.0}}, {"logit_bias": {3: math.nan}}, {"logit_bias": {"3": 1.0}},
    {"max_tokens": 0}, {"max_tokens": -5}, {"repetition_penalty": 0.0}, {"frequency_penalty": math.inf},
    {"stop": "END"}, {"stop": ("",)}, {"stop": (5,)},
]  # fmt: skip


@pytest.mark.parametrize("fields", ALLOWED, ids=str)
def test_validate_allows(fields: dict[str, object]) -> None:
    validate(SamplingParams(**fields), V)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", REFUSED, ids=str)
def test_validate_refuses_naming_field_and_value(fields: dict[str, object]) -> None:
    with pytest.raises(RequestError) as caught:
        validate(SamplingParams(**fields), V)  # type: ignore[arg-type]
    assert next(iter(fields)) in str(caught.value)
    assert "must be" in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}], ids=str)
def test_of_logits_that_are_no_numbers_nothing_is_chosen(value: float, params: dict[str, object]) -> None:
    logits = row()
    logits[7] = value
    assert math.isnan(choose(logits, lane(**params)).logprob)
    assert math.isnan(choose(np.full(V, -np.inf, np.float32), lane(**params)).logprob)
