"""Which compiler this is: one digest of everything that decides the bytes of an image, except for the model.

The files are two hundred, so they are read only where one of them is not as remembered (cache.py, digests/).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from unsay.cachedir import cache_root
from unsay.compiler.cache import remembered

_PACKAGE = Path(__file__).parent.parent
_SOURCES = ("compiler", "isa", "image.py", "vocabulary.py")
"""What decides the bytes of an image, under src/unsay."""


@cache
def compiler_version() -> str:
    """sha256 over the compiler's sources and llvmlite's version file, in hex."""
    files = [*source_files(), _llvmlite_version_file()]
    return remembered(cache_root(), f"{_PACKAGE} sources", _identity(files), lambda: _digest(files))


def source_files() -> list[str]:
    """Paths of the compiler's sources."""
    return sorted(path for name in _SOURCES for path in _python_files(f"{_PACKAGE}{os.sep}{name}"))


def _python_files(place: str) -> Iterator[str]:
    """Of a directory and those in it, or the file that it is. pathlib takes ten times as long."""
    if place.endswith(".py"):
        yield place
    elif os.path.isdir(place):
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name.endswith(".py") or entry.is_dir():
                    yield from _python_files(entry.path)


def _identity(files: list[str]) -> str:
    """Changes when a file is another, or its bytes change."""
    states = [(path, os.stat(path)) for path in files]
    told = [(path, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino) for path, state in states]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _digest(files: list[str]) -> str:
    digest = hashlib.sha256()
    for path in map(Path, files):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _llvmlite_version_file() -> str:
    """Found without importing llvmlite, which takes longer than everything else here."""
    spec = importlib.util.find_spec("llvmlite")
    assert spec is not None and spec.origin is not None, "llvmlite is a dependency of this package"
    return str(Path(spec.origin).with_name("_version.py"))
