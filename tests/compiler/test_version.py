"""The compiler is named by its sources, which are read only when they are others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unsay.compiler import version
from unsay.compiler.version import compiler_version, source_files


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of one file, with a cache of its own."""
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(version, "_PACKAGE", tmp_path / "unsay")
    (tmp_path / "unsay" / "compiler" / "passes").mkdir(parents=True)
    (tmp_path / "unsay" / "compiler" / "passes" / "fold.py").write_text("a = 1\n")
    for name in ("image.py", "vocabulary.py"):
        (tmp_path / "unsay" / name).write_text("")
    yield tmp_path / "unsay" / "compiler"
    compiler_version.cache_clear()


def named() -> str:
    """By a process that has just started."""
    compiler_version.cache_clear()
    return compiler_version()


def test_the_sources_are_those_of_the_compiler() -> None:
    names = {Path(path).name for path in source_files()}
    assert names >= {"compile.py", "gguf.py", "formats.py", "image.py", "llama.py", "version.py", "vocabulary.py"}
    assert names.isdisjoint({"engine.py", "session.py"})


def test_any_change_of_a_source_gives_another_name(sources: Path) -> None:
    names = {named()}
    (sources / "passes" / "fold.py").write_text("a = 2\n")
    names.add(named())
    (sources / "passes" / "fold.py").rename(sources / "passes" / "unfold.py")
    names.add(named())
    (sources / "new_pass.py").write_text("")
    names.add(named())
    assert len(names) == 4


def test_sources_that_are_as_they_were_are_not_read(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = named()
    with monkeypatch.context() as patch:
        patch.setattr(version, "_digest", lambda files: pytest.fail("read again"))
        assert named() == before
    (sources / "passes" / "fold.py").write_text("a = 1\n")
    assert named() == before, "written again with the same bytes"
