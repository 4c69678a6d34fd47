"""The native executor: equal to the reference bit for bit, whatever the threads and chunks; interrupts; lifetimes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.images import run
from unsay.compiler.compile import compile_model
from unsay.core import Batch, Float32Array
from unsay.errors import CacheError, RequestError
from unsay.image import ImageFiles
from unsay.runtime.executor import Executor
from unsay.runtime.image import Image, load_image
from unsay.runtime.native import NativeExecutor
from unsay.runtime.reference import ReferenceExecutor

NUM_PAGES = 24


@pytest.fixture(scope="module")
def files(tiny_paths: dict[str, Path]) -> ImageFiles:
    return compile_model(tiny_paths["llama-q4_1"], target="avx2")


@pytest.fixture(scope="module")
def image(files: ImageFiles) -> Image:
    return load_image(files)


def new_pages(image: Image) -> NDArray[np.uint8]:
    return np.zeros((NUM_PAGES, image.manifest.spec.kv_layout.page_bytes), np.uint8)


@pytest.fixture
def native(image: Image) -> Iterator[NativeExecutor]:
    executor = NativeExecutor(image, new_pages(image), 2)
    yield executor
    executor.close()


def one_sequence(ids: NDArray[np.int32], start: int, stop: int) -> Batch:
    """Tokens start..stop of a sequence on pages 23, 22 ...; logits of all of them, at most 64."""
    num_tokens = stop - start
    return Batch(
        token_ids=ids[start:stop].copy(),
        positions=np.arange(start, stop, dtype=np.int32),
        sequence=np.zeros(num_tokens, np.int32),
        page_tables=np.arange(NUM_PAGES, dtype=np.int32)[None, ::-1].copy(),
        logit_rows=np.arange(max(0, num_tokens - 64), num_tokens, dtype=np.int32),
    )


def last_logits(executor: Executor, ids: NDArray[np.int32], chunk: int) -> Float32Array:
    """Logits of the last token after the sequence went through in chunks."""
    result = None
    for start in range(0, len(ids), chunk):
        result = run(executor, one_sequence(ids, start, min(start + chunk, len(ids))))
        assert result is not None
    assert result is not None
    return result[-1]


def test_threads_and_chunks_give_the_reference_bits(image: Image) -> None:
    ids = np.random.default_rng(0).integers(0, image.manifest.spec.vocab_size, 300).astype(np.int32)
    pages = new_pages(image)
    expected = last_logits(ReferenceExecutor(image, pages, 1), ids, 300)
    for num_threads in (1, 2, 3):
        for chunk in (1, 7, 16, 300):
            own_pages = new_pages(image)
            executor = NativeExecutor(image, own_pages, num_threads)
            assert np.array_equal(last_logits(executor, ids, chunk), expected), (num_threads, chunk)
            assert np.array_equal(own_pages, pages), (num_threads, chunk)
            executor.close()


def test_every_format_and_architecture_gives_the_reference_bits(tiny_variant_path: Path) -> None:
    image = load_image(compile_model(tiny_variant_path, target="avx2"))
    ids = np.random.default_rng(1).integers(0, image.manifest.spec.vocab_size, 40).astype(np.int32)
    pages, own_pages = new_pages(image), new_pages(image)
    expected = last_logits(ReferenceExecutor(image, pages, 1), ids, 39)
    executor = NativeExecutor(image, own_pages, 2)
    assert np.array_equal(last_logits(executor, ids, 39), expected)
    assert np.array_equal(own_pages, pages)
    executor.close()


def test_an_interrupt_holds_until_cleared(native: NativeExecutor) -> None:
    batch = one_sequence(np.arange(20, dtype=np.int32), 0, 20)
    before = run(native, batch)
    assert before is not None
    native.interrupt_word[0] = 1
    assert native.run(batch) is None
    assert native.run(batch) is None
    native.interrupt_word[0] = 0
    after = run(native, batch)
    assert after is not None
    assert np.array_equal(before, after)


def test_an_interrupt_stops_a_run_in_progress(native: NativeExecutor) -> None:
    ids = (np.arange(384, dtype=np.int32) * 7) % 60
    stopped = threading.Event()

    def keep_running() -> None:
        while native.run(one_sequence(ids, 0, 384)) is not None:
            pass
        stopped.set()

    thread = threading.Thread(target=keep_running)
    thread.start()
    time.sleep(0.05)
    native.interrupt_word[0] = 1
    thread.join(20)
    assert stopped.is_set()


def test_an_idle_executor_uses_no_cpu(native: NativeExecutor) -> None:
    native.run(one_sequence(np.arange(8, dtype=np.int32), 0, 8))
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.02


def test_close_is_idempotent_and_ends_the_workers(image: Image) -> None:
    before = threading.active_count()
    executor = NativeExecutor(image, new_pages(image), 3)
    assert threading.active_count() == before + 2
    executor.close()
    executor.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("num_threads", [0, 65])
def test_a_thread_count_out_of_range_is_refused(image: Image, num_threads: int) -> None:
    with pytest.raises(RequestError, match=r"1\.\.64"):
        NativeExecutor(image, new_pages(image), num_threads)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_and_exits(native: NativeExecutor) -> None:
    batch = one_sequence(np.arange(8, dtype=np.int32), 0, 8)
    expected = run(native, batch)
    assert expected is not None
    child = os.fork()
    if child == 0:
        again = run(native, batch)
        os._exit(0 if again is not None and np.array_equal(again, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert native.run(batch) is not None


def test_a_process_that_never_closes_exits_cleanly(files: ImageFiles) -> None:
    script = f"""
import numpy as np, sys
from pathlib import Path
from unsay.image import ImageFiles
from unsay.runtime.image import load_image
from unsay.runtime.native import NativeExecutor
image = load_image(ImageFiles(Path({str(files.directory)!r}), Path({str(files.cache_root)!r})))
pages = np.zeros((4, image.manifest.spec.kv_layout.page_bytes), np.uint8)
executor = NativeExecutor(image, pages, 3)
assert "llvmlite" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_damaged_image_is_refused(files: ImageFiles, tmp_path: Path) -> None:
    for name in ("manifest.json", "program.avm", "code.bin"):
        (tmp_path / name).write_bytes((files.directory / name).read_bytes())
    damaged = files._replace(directory=tmp_path)
    load_image(damaged)
    (tmp_path / "code.bin").write_bytes(b"\x90" * 16)
    with pytest.raises(CacheError, match="size"):
        load_image(damaged)
    (tmp_path / "code.bin").unlink()
    with pytest.raises(CacheError, match=r"code\.bin"):
        load_image(damaged)


def test_a_worker_that_may_not_choose_how_it_is_scheduled_works_all_the_same(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.sched_setscheduler", refused)
    executor = NativeExecutor(image, new_pages(image), 2)
    assert executor.run(one_sequence(np.arange(20, dtype=np.int32), 0, 20)) is not None
    executor.close()
