"""The cache: whole or absent, whatever dies, fills up or is damaged."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from unsay.cachedir import cache_root
from unsay.compiler import cache
from unsay.compiler.cache import exclusive, file_digest, find_image, store_image, store_weights
from unsay.errors import CacheError, ModelFileError, ModelNotFoundError
from unsay.image import IMAGE_VERSION, ImageFiles, Manifest, ModelSpec

SPEC = ModelSpec("m", "llama", 1, 32, 2, 1, 16, 32, 2, 64, 1e-5, 1e4)
WEIGHTS = b"w" * 1000


def manifest(weights: str) -> Manifest:
    """A manifest whose weights are WEIGHTS."""
    return Manifest(IMAGE_VERSION, SPEC, "avx2", "0" * 64, weights, len(WEIGHTS), 0, 512, 64, {"step": 0})


def make_image(root: Path, key: str = "image", model: str = "model") -> ImageFiles:
    """Store a small image the way the compiler does."""
    with exclusive(root, model) as work:
        weights = store_weights(root, work, f"{model}-w", len(WEIGHTS), lambda out: out.write(WEIGHTS) and None)
        contents = {"manifest.json": manifest(weights).to_json().encode(), "code.bin": b"code", "program.avm": b"p"}
        return store_image(root, work, key, contents)


def all_files(root: Path) -> set[str]:
    """Paths of the files in the cache, but for locks and remembered digests, which stay."""
    files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return {str(path) for path in files if path.parts[0] not in ("locks", "digests")}


WHOLE = {
    "weights/model-w.bin",
    "weights/model-w.sha256",
    *(f"images/image/{n}" for n in ("manifest.json", "code.bin", "program.avm", "seal.json")),
}


def test_a_stored_image_is_found_and_nothing_else_is_left(tmp_path: Path) -> None:
    assert find_image(tmp_path, "image") is None
    files = make_image(tmp_path)
    assert find_image(tmp_path, "image") == files == ImageFiles(tmp_path / "images" / "image", tmp_path)
    assert all_files(tmp_path) == WHOLE


@pytest.mark.parametrize("name", sorted(WHOLE))
@pytest.mark.parametrize("damage", ["gone", "empty", "short", "other byte"])
def test_a_damaged_image_counts_as_absent_and_is_made_again(tmp_path: Path, name: str, damage: str) -> None:
    make_image(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({"empty": b"", "short": content[:-1], "other byte": b"?" + content[1:]}[damage])
    assert find_image(tmp_path, "image") is None
    make_image(tmp_path)
    assert find_image(tmp_path, "image") is not None
    assert (tmp_path / "weights" / "model-w.bin").read_bytes() == WEIGHTS
    assert all_files(tmp_path) == WHOLE


def test_weights_are_shared_and_written_once(tmp_path: Path) -> None:
    make_image(tmp_path, "one")
    written = (tmp_path / "weights" / "model-w.bin").stat()
    make_image(tmp_path, "two")
    assert (tmp_path / "weights" / "model-w.bin").stat().st_mtime_ns == written.st_mtime_ns


# digests


def test_a_digest_is_remembered_without_reading_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"abc")
    first = file_digest(tmp_path, model)
    assert first == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    monkeypatch.setattr(cache, "_hash_file", lambda *_: pytest.fail("read again"))
    assert file_digest(tmp_path, model) == first
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    assert file_digest(tmp_path, link) == first


def test_what_is_to_be_done_meanwhile_is_done_only_when_a_file_is_read(tmp_path: Path) -> None:
    model, done = tmp_path / "model.gguf", list[str]()
    model.write_bytes(b"abc")
    first = file_digest(tmp_path, model, meanwhile=lambda: done.append("done"))
    assert file_digest(tmp_path, model, meanwhile=lambda: done.append("again")) == first
    assert done == ["done"]
    model.write_bytes(b"abcd")
    with pytest.raises(ZeroDivisionError):
        file_digest(tmp_path, model, meanwhile=lambda: 1 / 0)


def test_nothing_is_done_meanwhile_for_what_is_most_likely_a_copy(tmp_path: Path) -> None:
    model, copy, other = (tmp_path / name for name in ("model.gguf", "copy.gguf", "other.gguf"))
    for path, content in ((model, b"abc"), (copy, b"abc"), (other, b"xyz")):
        path.write_bytes(content)
    first = file_digest(tmp_path, model)
    assert file_digest(tmp_path, copy, meanwhile=lambda: pytest.fail("done")) == first
    assert file_digest(tmp_path, other, meanwhile=lambda: pytest.fail("done")) != first


def test_a_changed_file_is_read_again_even_at_the_same_size_and_mtime(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"abc")
    first = file_digest(tmp_path, model)
    status = model.stat()
    model.write_bytes(b"abd")
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_digest(tmp_path, model) != first


def test_a_damaged_memory_of_a_digest_is_made_again(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"abc")
    first = file_digest(tmp_path, model)
    (memo,) = (tmp_path / "digests").iterdir()
    for damaged in ("", "{", "[]", '{"value": 3}'):
        memo.write_text(damaged)
        assert file_digest(tmp_path, model) == first
    assert json.loads(memo.read_text())["value"] == first


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"abc")
    with pytest.raises(ModelFileError, match="changed"):
        file_digest(tmp_path, model, lambda *_: model.write_bytes(b"abcd") and None)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        file_digest(tmp_path, tmp_path / "missing.gguf")


# processes


def worker(root: Path, number: int, log: BinaryIO) -> None:
    """Make the image unless it is there, as compile_model does."""
    with exclusive(root, "model") as work:
        if find_image(root, "image") is not None:
            return
        os.write(log.fileno(), b"x")
        time.sleep(0.05)
        weights = store_weights(root, work, "model-w", len(WEIGHTS), lambda out: out.write(WEIGHTS) and None)
        contents = {"manifest.json": manifest(weights).to_json().encode(), "code.bin": b"code", "program.avm": b"p"}
        store_image(root, work, "image", contents)


def test_processes_at_once_make_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    root = tmp_path / "cache"
    root.mkdir()
    fork = multiprocessing.get_context("fork")
    with log.open("wb") as file:
        workers = [fork.Process(target=worker, args=(root, number, file)) for number in range(4)]
        for process in workers:
            process.start()
        for process in workers:
            process.join(30)
    assert [process.exitcode for process in workers] == [0] * 4
    assert log.read_bytes() == b"x"
    assert all_files(root) == WHOLE


WAITING = """
import sys
from pathlib import Path
from unsay.compiler.cache import exclusive
with exclusive(Path(sys.argv[1]), "model", lambda *said: print(*said, flush=True)):
    print("there")
"""


def test_who_waits_for_another_process_says_so(tmp_path: Path) -> None:
    with exclusive(tmp_path, "model"):
        process = subprocess.Popen([sys.executable, "-c", WAITING, tmp_path], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting for another unsay 0 0\n"
        assert process.poll() is None
    assert process.communicate(timeout=30)[0] == b"there\n"
    assert process.returncode == 0


KILLED = """
import os, sys, time
from pathlib import Path
from unsay.compiler.cache import exclusive, store_weights
def write(out):
    out.write(b"w" * 500)
    out.flush()
    print("writing", flush=True)
    time.sleep(60)
with exclusive(Path(sys.argv[1]), sys.argv[2]) as work:
    store_weights(Path(sys.argv[1]), work, "model-w", 1000, write)
"""


@pytest.mark.parametrize("next_model", ["model", "another"])
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, next_model: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path, "model"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert all_files(tmp_path) == {"tmp/model/model-w.bin"}
    with exclusive(tmp_path, next_model):
        assert all_files(tmp_path) == set()
    make_image(tmp_path)
    assert all_files(tmp_path) == WHOLE


def test_work_in_progress_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    with exclusive(tmp_path, "model") as work:
        (work / "draft").write_bytes(b"d")
        with exclusive(tmp_path, "another"):
            pass
        assert (work / "draft").exists()


def test_an_error_inside_leaves_no_draft_and_frees_the_lock(tmp_path: Path) -> None:
    def interrupted() -> None:
        with exclusive(tmp_path, "model") as work:
            (work / "draft").write_bytes(b"d")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all_files(tmp_path) == set()
    make_image(tmp_path)


# a disk that is full, a directory that may not be written


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond this: the nearest thing to a full disk a test can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_no_room_for_the_weights_says_so_before_writing_any(tmp_path: Path) -> None:
    needed = pytest.raises(CacheError, match=r"2\.1 MB are needed.*MB are free.*UNSAY_CACHE")
    with exclusive(tmp_path, "model") as work, file_size_limit(1 << 20), needed:
        store_weights(tmp_path, work, "w", 1 << 21, lambda _: pytest.fail("began to write"))
    assert all_files(tmp_path) == set()


def test_no_room_for_the_image_leaves_none(tmp_path: Path) -> None:
    full = pytest.raises(CacheError, match="make room")
    with exclusive(tmp_path, "model") as work, file_size_limit(1 << 10), full:
        store_image(tmp_path, work, "image", {"code.bin": bytes(1 << 12)})
    assert all_files(tmp_path) == set()


def test_a_disk_that_fills_up_while_writing(tmp_path: Path) -> None:
    def write(_: BinaryIO) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CacheError, match="No space left"), exclusive(tmp_path, "model") as work:
        store_weights(tmp_path, work, "w", 10, write)
    assert all_files(tmp_path) == set()


def test_a_cache_on_a_read_only_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CacheError, match=r"Read-only.*UNSAY_CACHE"):
        make_image(tmp_path)


def test_a_directory_that_may_not_be_written_says_what_to_do(tmp_path: Path) -> None:
    """In a process without root's rights, where there are any to give up."""
    tmp_path.chmod(0o755)
    code = "import os\nfrom unsay.cachedir import cache_root\nos.getuid() or os.setuid(65534)\ncache_root()"
    root = tmp_path / "cache"
    root.mkdir(mode=0o555)
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "UNSAY_CACHE": str(root)}, capture_output=True, text=True
    )
    assert result.returncode and "UNSAY_CACHE" in result.stderr, result.stderr


def test_a_file_in_place_of_the_cache_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheError, match="UNSAY_CACHE"):
        cache_root()


def test_a_file_in_place_of_a_directory_of_the_cache(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"")
    with pytest.raises(CacheError, match="weights"):
        make_image(tmp_path)
