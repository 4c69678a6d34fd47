"""A loaded image: the manifest as values, weights and machine code mapped, nothing copied."""

from __future__ import annotations

import mmap
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.errors import CacheError, ProgramError
from unsay.image import ImageFiles, Manifest
from unsay.isa.classes import FAST

if TYPE_CHECKING:
    from unsay.isa.program import Program


class Image:
    """What executors run. weights: PERSISTENT, its bytes, read-only; code: the mapped executable.

    The programs are read where one is asked for: machine code runs without. Raises CacheError then, if one is damaged.
    """

    def __init__(self, files: ImageFiles, manifest: Manifest, weights: memoryview, code: mmap.mmap) -> None:
        self._files = files
        self.manifest = manifest
        self.weights = weights
        self.code = code

    @cached_property
    def program(self) -> Program:
        """The program of the exact class."""
        return _read_program(self._files.program)

    @cached_property
    def fast(self) -> Program | None:
        """The program of the fast class, None where the image has none."""
        return _read_program(self._files.fast_program) if self.manifest.spec.prefill == FAST else None


def load_image(files: ImageFiles) -> Image:
    """Map an image of the cache; raises CacheError if a file is missing or not the size the manifest says."""
    try:
        manifest = Manifest.from_json(files.manifest.read_text())
        weights = _map(files.cache_root / manifest.weights, mmap.PROT_READ)
        code = _map(files.code, mmap.PROT_READ | mmap.PROT_EXEC)
    except (OSError, ValueError) as error:
        raise CacheError(f"damaged image {files.directory}: {error}; delete it to have it made again") from error
    if len(weights) != manifest.weights_bytes or max(manifest.entry.values(), default=0) >= len(code):
        raise CacheError(f"damaged image {files.directory}: a file has another size; delete it to have it made again")
    return Image(files, manifest, memoryview(weights), code)


def _read_program(path: Path) -> Program:
    from unsay.isa.program import Program

    try:
        return Program.from_bytes(path.read_bytes())
    except (OSError, ProgramError) as error:
        raise CacheError(f"damaged image {path.parent}: {error}; delete it to have it made again") from error


def _map(path: Path, protection: int) -> mmap.mmap:
    """Mapped, and read from the disk in huge pages if it is not in memory yet."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=protection)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped
