"""A loaded model: teacher forcing, plain generation, threads, wrong use."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsay
from tests.models import fresh_run, loaded
from tests.tiny import write_tiny_gguf
from unsay import Model, SamplingParams
from unsay.compiler.frontend.gguf import open_gguf
from unsay.errors import (
    ContextFullError,
    ModelFileError,
    ModelNotFoundError,
    RequestError,
    TargetError,
    TemplateError,
    UnsupportedError,
)

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
IDS = [10 + (i * 37) % 200 for i in range(100)]


@pytest.fixture(scope="module", params=["null", "native"])
def model(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Model]:
    with loaded(tiny_path, request.param) as model:
        yield model


def answer(model: Model, ids: list[int], params: SamplingParams = GREEDY) -> list[int]:
    return [event.token_id for event in model.generate(ids, params)]


def test_logits_have_one_row_a_token_and_do_not_depend_on_what_follows(model: Model) -> None:
    rows = model.logits(IDS)
    assert rows.shape == (100, model.spec.vocab_size)
    assert rows.dtype == np.float32
    for length in (1, 16, 17, 65):
        assert np.array_equal(model.logits(IDS[:length]), rows[:length])


def test_greedy_generation_follows_the_logits(model: Model) -> None:
    first = int(model.logits(IDS)[-1].argmax())
    events = list(model.generate(IDS, GREEDY))
    assert events[0].token_id == first
    assert [event.index for event in events] == list(range(8))
    assert answer(model, IDS) == fresh_run(model, IDS, 8, GREEDY)


def test_the_answer_is_the_same_when_the_prompt_is_cached(model: Model) -> None:
    alone = answer(model, IDS)
    with model.session(params=GREEDY) as holder:
        holder.append(model.detokenize(IDS))
        holder.generate(max_tokens=1)
        assert answer(model, IDS) == alone
    assert answer(model, IDS) == alone


def test_sampling_draws_the_same_when_asked_again_and_differs_by_seed(model: Model) -> None:
    drawn = {seed: answer(model, IDS, SamplingParams(temperature=2.0, seed=seed, max_tokens=12)) for seed in range(4)}
    again = {seed: answer(model, IDS, SamplingParams(temperature=2.0, seed=seed, max_tokens=12)) for seed in range(4)}
    assert drawn == again
    assert len({tuple(ids) for ids in drawn.values()}) == 4


def test_an_edit_leaves_the_draws_of_other_positions_alone(model: Model) -> None:
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=20, ignore_eos=True)
    whole = answer(model, IDS, params)
    assert answer(model, IDS + whole[:9], params)[:11] == whole[9:]


def test_a_generator_never_started_or_left_early_holds_nothing(model: Model) -> None:
    model.generate(IDS, GREEDY)
    for _ in model.generate(IDS, GREEDY):
        break
    gc.collect()
    assert model.engine.scheduler.requests == []
    model.tree.check()
    assert model.tree.pool.num_used == 0


def test_two_threads_on_one_model_both_get_their_answers(model: Model) -> None:
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=30, ignore_eos=True)
    prompts = [IDS[:40], IDS[20:90], IDS[5:6]]
    expected = [answer(model, ids, params) for ids in prompts]
    got: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda n=n, ids=ids: got.update({n: answer(model, ids, params)}))
        for n, ids in enumerate(prompts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [got[n] for n in range(3)] == expected


def test_tokenize_and_detokenize(model: Model) -> None:
    text = "the pan\n"
    assert model.detokenize(model.tokenize(text)) == text
    assert len(model.tokenize("<|im_end|>", special=True)) == 1 < len(model.tokenize("<|im_end|>"))


@pytest.mark.parametrize("ids", [[], [-1], [10**6], [1.5], ["a"], [[1, 2]], [None], [2**63]])
def test_token_ids_outside_the_vocabulary_are_refused(model: Model, ids: list[object]) -> None:
    for verb in (model.logits, model.generate):
        with pytest.raises(RequestError, match="token"):
            verb(ids)  # type: ignore[arg-type]


def test_the_context_length_is_the_limit(model: Model) -> None:
    limit = model.spec.context_length
    fits = (IDS * limit)[:limit]
    (event,) = model.generate(fits[:-1], GREEDY)
    assert event.finish == "length"
    with pytest.raises(ContextFullError, match=str(limit)):
        model.generate(fits, GREEDY)
    with pytest.raises(ContextFullError, match=str(limit)):
        model.logits([*fits, 10])


def test_wrong_parameters_are_refused_at_once(model: Model) -> None:
    with pytest.raises(RequestError, match="logit_bias"):
        model.generate(IDS, SamplingParams(logit_bias={model.spec.vocab_size: 1.0}))


def test_a_closed_model_says_so(tiny_path: Path) -> None:
    model = unsay.load(tiny_path, executor="null")
    chat = model.session()
    chat.append("x")
    model.close()
    model.close()
    for verb in (lambda: model.logits([10]), lambda: model.generate([10]), model.session):
        with pytest.raises(RequestError, match="closed"):
            verb()
    with pytest.raises(RequestError, match="closed"):
        chat.generate()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"executor": "gpu"}, RequestError),
        ({"prefill": "quick"}, RequestError),
        ({"target": "z80"}, TargetError),
        ({"kv_tokens": 0}, RequestError),
    ],
)
def test_load_says_what_it_knows(tiny_path: Path, options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        unsay.load(tiny_path, **options)  # type: ignore[arg-type]


def test_load_of_nothing_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        unsay.load(tmp_path / "none.gguf")


def test_executors_agree_bit_for_bit(tiny_path: Path) -> None:
    with loaded(tiny_path, "native") as native, loaded(tiny_path, "reference") as reference:
        assert np.array_equal(native.logits(IDS[:40]).view(np.int32), reference.logits(IDS[:40]).view(np.int32))


NO_IDS = [None, 5, 1.5, True, "x", ["a"], [None], [1.0], [True, 5], [[1], [2, 3]], [-1], [2**63], [2**70], 3j]


@pytest.mark.parametrize("given", NO_IDS, ids=repr)
def test_what_are_no_token_ids_is_said(model: Model, given: Any) -> None:
    for verb in (model.logits, model.generate, model.detokenize):
        with pytest.raises(RequestError, match="token"):
            verb(given)


@pytest.mark.parametrize("given", [5, True, "x", {}, 3j], ids=repr)
def test_params_and_system_of_another_type_are_named(model: Model, given: Any) -> None:
    with pytest.raises(RequestError, match="params is"):
        model.session(params=given)
    with pytest.raises(RequestError, match="params is"):
        model.generate([5], given)
    if not isinstance(given, str):
        with pytest.raises(RequestError, match="system message is"):
            model.session(system=given)


@pytest.mark.parametrize("option", ["num_threads", "kv_tokens"])
@pytest.mark.parametrize("given", [True, 1.5, "2", float("nan"), [], 0, -1, 2**70], ids=repr)
def test_a_size_that_is_none_is_named(tiny_path: Path, option: str, given: Any) -> None:
    with pytest.raises(RequestError, match=r"num_threads|kv_tokens|KV pool"):
        unsay.load(tiny_path, **{option: given})


@pytest.mark.parametrize("given", [None, 5, True, b"smollm2:135m", []], ids=repr)
def test_a_path_that_is_none_is_named(given: Any) -> None:
    for verb in (unsay.load, unsay.load_tokenizer):
        with pytest.raises(RequestError, match="the model is"):
            verb(given)


UNUSABLE: dict[str, Any] = {
    "tokenizer kind": ({"pre": "made-up"}, UnsupportedError),
    "template cut short": ({"chat_template": "{% set n = namespace() %}{% for"}, TemplateError),
    "template too long": ({"chat_template": "x" * 100_000}, TemplateError),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_text_side_that_cannot_be_used_is_refused_before_anything_is_compiled(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, error = UNUSABLE[name]
    path = write_tiny_gguf(tmp_path / "unusable.gguf", seed=99, **options)
    monkeypatch.setattr("unsay.compiler.pipeline.emit_code", lambda *_: pytest.fail("compiled"))
    with pytest.raises(error):
        unsay.load(path, num_threads=1)


@pytest.mark.parametrize(("dtype", "value"), [("F32", np.nan), ("Q8_0", np.inf)], ids=str)
def test_weights_that_are_no_numbers_end_an_answer_with_an_error(tmp_path: Path, dtype: str, value: float) -> None:
    """Greedy once went on with token 0, and sampling ended in a ValueError of NumPy."""
    path = write_tiny_gguf(tmp_path / "damaged.gguf", dtype=dtype, layers=1)
    place = open_gguf(path).tensors["output_norm.weight"].offset
    with path.open("r+b") as file:
        file.seek(place)
        file.write(np.full(4, value, np.float32).tobytes())
    with loaded(path, "native") as model, model.session() as chat:
        chat.user("hi")
        before = chat.token_ids
        for temperature in (0.0, 1.0):
            with pytest.raises(ModelFileError, match="not finite"):
                chat.generate(temperature=temperature)
            with pytest.raises(ModelFileError, match="not finite"):
                list(model.generate(IDS, SamplingParams(temperature=temperature, top_p=0.9)))
        assert chat.token_ids == before
        assert not np.isfinite(chat.logits()).all()


WARM = """
import sys, unsay
with unsay.load(sys.argv[1]) as model:
    chat = model.session()
    chat.user("hello")
    chat.generate(max_tokens=100)  # among them guesses, and draws that a glance does not decide
unneeded = (
    "numpy", "dataclasses", "inspect", "llvmlite", "sqlite3", "subprocess", "unsay.compiler.pipeline",
    "unsay.runtime.reference", "unsay.isa.program", "unsay.vm.interpreter", "unsay.vm.execution", "z3", "tokenizers",
    "rich", "asyncio", "ssl", "importlib.metadata", "unicodedata", "unsay.session.letters", "unsay.compiler.passes",
    "unsay.compiler.pack",
)
print([name for name in unneeded if name in sys.modules])
"""


def test_a_warm_start_imports_nothing_it_does_not_need(tiny_path: Path) -> None:
    unsay.load(tiny_path).close()
    result = subprocess.run([sys.executable, "-c", WARM, str(tiny_path)], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
