"""Tokens of the fast class: equal tokens of equal classes have equal bits, and no class is taken for another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import unsay
from tests.exactness.runs import Outcome, run_alone, run_together
from tests.exactness.test_company import BATCH_SIZES, CHUNKS, NUM_THREADS, load, make_sequences, runnable_targets
from tests.tiny import write_tiny_gguf
from unsay.compiler.compile import compile_model
from unsay.core import SamplingParams
from unsay.errors import RequestError, UnsupportedError
from unsay.isa.classes import FAST, keys_of
from unsay.isa.kv import KV_FORMATS


def in_turns(ids: list[int]) -> list[int]:
    """The keys of a conversation: 50 tokens of a prompt, 9 of an answer, and so on."""
    return [key for place, token in enumerate(ids) for key in keys_of([token], place % 59 < 50)]


@pytest.fixture(scope="module")
def expected(tiny_variant_path: Path) -> Iterator[tuple[list[list[int]], list[Outcome]]]:
    """Eight sequences, prompts and conversations in turn, and what each gives alone, on one thread, in one chunk."""
    with load(tiny_variant_path, prefill=FAST, num_threads=1) as model:
        given = make_sequences(model, 8, 290)
        sequences = [in_turns(ids) if number % 2 else keys_of(ids, True) for number, ids in enumerate(given)]
        yield sequences, [run_alone(model, keys) for keys in sequences]


@pytest.mark.parametrize("num_threads", NUM_THREADS)
def test_chunks_threads_and_company_do_not_show(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]], num_threads: int
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, prefill=FAST, num_threads=num_threads) as model:
        for chunk, batch_size in itertools.product(CHUNKS, BATCH_SIZES):
            together = run_together(model, sequences[:batch_size], chunk)
            for number, outcome in enumerate(together):
                what = f"chunk {chunk}, {num_threads} threads, sequence {number} of {batch_size}"
                outcome.assert_equals(outcomes[number], what)
        assert model.tree.pool.num_used == 0


@pytest.mark.parametrize("target", runnable_targets())
def test_neither_instruction_set_nor_executor_shows(
    tiny_variant_path: Path, expected: tuple[list[list[int]], list[Outcome]], target: str
) -> None:
    sequences, outcomes = expected
    with load(tiny_variant_path, prefill=FAST, num_threads=1, target=target) as model:
        run_alone(model, sequences[1], 16).assert_equals(outcomes[1], target)
    with load(tiny_variant_path, prefill=FAST, executor="reference", target=target) as model:
        run_alone(model, sequences[1], 64).assert_equals(outcomes[1], "the definition")


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_weights_of_a_layer_may_be_floats_and_integers(tmp_path: Path, architecture: str) -> None:
    formats = {"default": "Q4_1", "attn_q": "F16", "attn_k": "Q8_0", "ffn_up": "BF16"}
    path = write_tiny_gguf(tmp_path / "mixed.gguf", dtype=formats, architecture=architecture)
    with load(path, prefill=FAST, num_threads=2) as model:
        keys = in_turns(make_sequences(model, 1, 90)[0])
        whole = run_alone(model, keys)
        run_alone(model, keys, 7).assert_equals(whole, "chunks")
    with load(path, prefill=FAST, executor="reference") as slow:
        run_alone(slow, keys).assert_equals(whole, "the definition")


def test_smollm2_gives_one_answer(smollm2: Path) -> None:
    """Rows as wide as a real model's: several panels of expanded weights, tiles of every number of tokens."""
    with load(smollm2, prefill=FAST, num_threads=1) as one, load(smollm2, prefill=FAST, num_threads=2) as two:
        sequences = [in_turns(ids) for ids in make_sequences(one, 4, 80)]
        outcomes = [run_alone(one, keys) for keys in sequences]
        for number, outcome in enumerate(run_together(two, sequences, 13)):
            outcome.assert_equals(outcomes[number], f"sequence {number}")


def test_exact_tokens_have_the_bits_of_a_model_that_has_no_other_class(tiny_variant_path: Path) -> None:
    with load(tiny_variant_path) as exact, load(tiny_variant_path, prefill=FAST) as both:
        (ids,) = make_sequences(exact, 1, 60)
        expected = run_alone(exact, ids)
        run_alone(both, ids).assert_equals(expected, "exact keys")
        fast = run_alone(both, keys_of(ids, True))
        assert (fast.logits[-1] != expected.logits[-1]).any(), "the class shows"


def test_a_prefix_in_another_class_is_never_matched(tiny_path: Path) -> None:
    ids = list(range(10, 58))
    with load(tiny_path, prefill=FAST) as model:
        greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        stream = model.generate(ids, greedy)
        next(stream)
        for is_held, keys in ((True, keys_of(ids, True)), (False, ids), (False, [ids[0], *keys_of(ids[1:], True)])):
            found = model.tree.match(keys)
            assert (found.length > 0) is is_held
            found.release()
        list(stream)


@pytest.mark.parametrize("kv", KV_FORMATS)
def test_so_it_is_with_every_format_of_pages(tiny_paths: dict[str, Path], kv: str) -> None:
    path, keys = tiny_paths["llama-q8_0-d64"], in_turns(np.random.default_rng(5).integers(0, 290, 530).tolist())
    with load(path, kv=kv, prefill=FAST, num_threads=1) as one, load(path, kv=kv, prefill=FAST, num_threads=2) as two:
        whole = run_alone(one, keys)
        for chunk in (1, 100):
            run_alone(two, keys, chunk).assert_equals(whole, f"chunks of {chunk}, two threads")
        run_together(two, [keys, keys[3:200]], 64)[0].assert_equals(whole, "company")
        start = run_alone(one, keys[:300])
    with load(path, kv=kv, prefill=FAST, executor="reference") as slow:
        run_alone(slow, keys[:300]).assert_equals(start, "the definition")


def test_what_a_model_is_given_is_a_prompt_and_what_it_makes_is_exact(tiny_path: Path) -> None:
    ids = list(range(10, 58))
    greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    with load(tiny_path, prefill=FAST) as model:
        logits = model.logits(ids)
        first, second = (event.token_id for event in model.generate(ids, greedy))
        whole = run_alone(model, [*keys_of(ids, True), first])
        np.testing.assert_array_equal(logits[-1].view(np.uint32), run_alone(model, keys_of(ids, True)).logits[-1])
        assert (first, second) == (logits[-1].argmax(), whole.logits[-1].view(np.float32).argmax())


def test_a_class_is_refused_by_name(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="exact, fast"):
        unsay.load(tiny_path, prefill="quick")
    with pytest.raises(UnsupportedError, match="CPU targets"):
        compile_model(tiny_path, target="ptx", prefill=FAST)
