"""Whatever keys and values are kept as, the same tokens give the same bits: chunks, company, threads, executors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unsay
from tests.exactness.runs import Outcome, run_alone, run_together
from unsay.errors import RequestError
from unsay.isa.kv import KV_FORMATS

IDS = np.random.default_rng(5).integers(0, 290, 530).tolist()


@pytest.mark.parametrize("kv", KV_FORMATS)
def test_chunks_company_threads_and_executors_leave_no_trace(tiny_paths: dict[str, Path], kv: str) -> None:
    path = tiny_paths["llama-q8_0-d64"]
    with unsay.load(path, kv=kv, num_threads=1) as one, unsay.load(path, kv=kv, num_threads=2) as two:
        whole = run_alone(one, IDS)
        for chunk in (1, 100):
            run_alone(two, IDS, chunk).assert_equals(whole, f"chunks of {chunk}, two threads")
        run_together(two, [IDS, IDS[3:200]], 64)[0].assert_equals(whole, "company")
    with unsay.load(path, kv=kv, executor="reference") as slow:
        run_alone(slow, IDS[:300]).assert_equals(_first(path, kv, 300), "the definition")


def _first(path: Path, kv: str, num_tokens: int) -> Outcome:
    with unsay.load(path, kv=kv) as model:
        return run_alone(model, IDS[:num_tokens])


@pytest.mark.parametrize("kv", KV_FORMATS)
def test_a_rollback_gives_back_the_logits(tiny_path: Path, kv: str) -> None:
    with unsay.load(tiny_path, kv=kv) as model, model.session(temperature=0, ignore_eos=True) as chat:
        chat.user("the pandas")
        chat.generate(max_tokens=40)
        before = chat.logits().copy()
        chat.rollback(to=11)
        chat.inject("and others")
        chat.generate(max_tokens=20)
        chat.undo(3)
        assert np.array_equal(chat.logits(), before)
        assert np.array_equal(model.logits(chat.token_ids)[-1], before)


@pytest.mark.parametrize(("name", "wanted"), [("llama-f32", "f32"), ("llama-f16-untied", "f16"), ("llama-q4_1", "f16")])
def test_the_format_follows_the_weights(tiny_paths: dict[str, Path], name: str, wanted: str) -> None:
    with unsay.load(tiny_paths[name], executor="null") as model:
        assert model.spec.kv_format == wanted


def test_formats_have_images_of_their_own_and_share_the_weights(tiny_path: Path) -> None:
    from unsay.compiler.compile import compile_model
    from unsay.image import Manifest

    images = [compile_model(tiny_path, target="avx2", kv=kv) for kv in KV_FORMATS]
    manifests = [Manifest.from_json(image.manifest.read_text()) for image in images]
    assert len({image.directory for image in images}) == 3 and len({made.weights for made in manifests}) == 1
    token_bytes = {made.spec.kv_format: made.spec.kv_layout.token_bytes for made in manifests}
    assert token_bytes == {"f16": 2 * 2 * 2 * 16 * 2, "f32": 2 * 2 * 2 * 16 * 4, "int8": 2 * 2 * 2 * (16 + 4)}


def test_a_format_nobody_knows_is_refused(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match=r"'f8' is not known; there are: auto, f16, f32, int8"):
        unsay.load(tiny_path, kv="f8")
