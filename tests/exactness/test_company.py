"""Logits and KV bytes depend on the ids alone: not on chunks, threads, company in the batch, or the instruction set."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import unsay
from tests.exactness.runs import Outcome, run_alone, run_together
from unsay import Model, SamplingParams
from unsay.engine.request import Request
from unsay.errors import TargetError
from unsay.isa.targets import TARGETS
from unsay.runtime.cpu import check_target, probe
from unsay.vm.context import Context

CHUNKS = (1, 7, 16, 512)
NUM_THREADS = (1, 2)
BATCH_SIZES = (1, 4, 8)


def runnable_targets() -> list[str]:
    """The targets whose code this CPU can run."""
    cpu = probe()
    return [target.name for target in TARGETS if cpu.flags.issuperset(target.cpu_flags)]


def make_sequences(model: Model, num_sequences: int, num_tokens: int) -> list[list[int]]:
    """Random ids; each sequence shorter than the one before, the third a prefix of the first."""
    generator = np.random.default_rng(5)
    shape = (num_sequences, num_tokens)
    ids = generator.integers(0, model.spec.vocab_size, shape).tolist()
    ids[2:3] = [ids[0]] if num_sequences > 2 else []
    return [row[: num_tokens - 9 * number] for number, row in enumerate(ids)]


def load(path: Path, **options: object) -> Model:
    return unsay.load(path, kv_tokens=8192, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def expected(tiny_variant_path: Path) -> Iterator[tuple[list[list[int]], list[Outcome]]]:
    """Eight sequences and what each gives alone, on one thread, in one chunk."""
    with load(tiny_variant_path, num_threads=1) as model:
        sequences = make_sequences(model, 8, 290)
        yield sequences, [run_alone(model, ids) for ids in sequences]


@pytest.mark.parametrize("num_threads", NUM_THREADS)
def test_chunks_threads_and_company_do_not_show(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]], num_threads: int
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, num_threads=num_threads) as model:
        for chunk, batch_size in itertools.product(CHUNKS, BATCH_SIZES):
            together = run_together(model, sequences[:batch_size], chunk)
            for number, outcome in enumerate(together):
                what = f"chunk {chunk}, {num_threads} threads, sequence {number} of {batch_size}"
                outcome.assert_equals(outcomes[number], what)
        model.tree.check()
        assert model.tree.pool.num_used == 0


@pytest.mark.parametrize("target", runnable_targets())
def test_the_instruction_set_does_not_show(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]], target: str
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, num_threads=1, target=target) as model:
        for chunk in (1, 512):
            run_alone(model, sequences[0], chunk).assert_equals(outcomes[0], f"{target}, chunk {chunk}")


def test_the_reference_executor_gives_the_same_bits(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]]
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, executor="reference") as model:
        run_alone(model, sequences[0], 16).assert_equals(outcomes[0], "reference, chunk 16")


def test_a_target_this_cpu_cannot_run_is_refused(tiny_path: Path) -> None:
    for target in {target.name for target in TARGETS} - set(runnable_targets()):
        with pytest.raises(TargetError, match=target):
            check_target(target)


def test_a_difference_would_be_seen(tiny_path: Path) -> None:
    """The comparison itself: another id early on changes the bits of everything after it."""
    with load(tiny_path, num_threads=1) as model:
        (ids,) = make_sequences(model, 1, 40)
        other = [*ids[:3], (ids[3] + 1) % model.spec.vocab_size, *ids[4:]]
        left, right = run_alone(model, ids), run_alone(model, other)
        np.testing.assert_array_equal(left.rows[:3], right.rows[:3])
        assert all((a != b).any() for a, b in zip(left.rows[3:], right.rows[3:], strict=True))
        assert (left.logits[-1] != right.logits[-1]).any()


@pytest.mark.parametrize(
    ("chunk", "num_threads", "batch_size"),
    [(1, 2, 1), (7, 1, 1), (7, 2, 1), (16, 1, 1), (512, 2, 1), (512, 2, 4), (16, 1, 4), (7, 2, 8), (1, 2, 8)],
)
def test_smollm2_gives_one_answer(
    smollm2: Path,
    smollm2_expected: tuple[list[list[int]], list[Outcome]],
    chunk: int,
    num_threads: int,
    batch_size: int,
) -> None:
    sequences, outcomes = smollm2_expected
    with load(smollm2, num_threads=num_threads) as model:
        together = run_together(model, sequences[:batch_size], chunk)
        for number, outcome in enumerate(together):
            outcome.assert_equals(outcomes[number], f"chunk {chunk}, {num_threads} threads, sequence {number}")


@pytest.mark.parametrize("target", runnable_targets())
def test_smollm2_gives_one_answer_on_every_instruction_set(
    smollm2: Path, smollm2_expected: tuple[list[list[int]], list[Outcome]], target: str
) -> None:
    sequences, outcomes = smollm2_expected
    with load(smollm2, num_threads=2, target=target) as model:
        run_alone(model, sequences[7], 16).assert_equals(outcomes[7], target)


@pytest.fixture(scope="module")
def smollm2_expected(smollm2: Path) -> Iterator[tuple[list[list[int]], list[Outcome]]]:
    """As `expected`, on the real model."""
    with load(smollm2, num_threads=1) as model:
        sequences = make_sequences(model, 8, 120)
        yield sequences, [run_alone(model, ids) for ids in sequences]


def test_pages_of_a_request_stopped_in_a_step_serve_others_at_once(tiny_variant_path: Path) -> None:
    """Nobody waits for machine code on its way out of a step: no row of it may turn up in pages given back."""
    params = SamplingParams(max_tokens=1)
    with load(tiny_variant_path, num_threads=2) as model, load(tiny_variant_path, num_threads=1) as quiet:
        for round_number, ids in enumerate(make_sequences(model, 24, 430)):
            context = Context(model.tree.root(salt=b"stopped"))
            context.append([*reversed(ids)] * 2)
            request = Request(context, params, list(context.pending), 2 * len(ids), frozenset(), 1)
            model.engine.submit(request)
            reader = threading.Thread(target=model.engine.next_event, args=(request,))
            reader.start()
            time.sleep(round_number * 2e-4)
            model.engine.withdraw(request)
            context.release()
            np.testing.assert_array_equal(model.logits(ids), quiet.logits(ids))
            reader.join(30)
