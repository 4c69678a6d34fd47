"""A loaded image: the manifest and program as values, weights and machine code mapped, nothing copied."""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unsay.errors import CacheError
from unsay.image import ImageFiles, Manifest
from unsay.isa.classes import FAST
from unsay.isa.program import Program


@dataclass(frozen=True, slots=True)
class Image:
    """What executors run. weights: PERSISTENT, its bytes, read-only; code: the mapped executable; fast: the program
    of the fast class, None where the image has none."""

    manifest: Manifest
    program: Program
    weights: memoryview
    code: mmap.mmap
    fast: Program | None = None


def load_image(files: ImageFiles) -> Image:
    """Map an image of the cache; raises CacheError if a file is missing or not the size the manifest says."""
    try:
        manifest = Manifest.from_json(files.manifest.read_text())
        program = Program.from_bytes(files.program.read_bytes())
        fast = Program.from_bytes(files.fast_program.read_bytes()) if manifest.spec.prefill == FAST else None
        weights = _map(files.cache_root / manifest.weights, mmap.PROT_READ)
        code = _map(files.code, mmap.PROT_READ | mmap.PROT_EXEC)
    except (OSError, ValueError) as error:
        raise CacheError(f"damaged image {files.directory}: {error}; delete it to have it made again") from error
    if len(weights) != manifest.weights_bytes or max(manifest.entry.values(), default=0) >= len(code):
        raise CacheError(f"damaged image {files.directory}: a file has another size; delete it to have it made again")
    return Image(manifest, program, memoryview(weights), code, fast)


def _map(path: Path, protection: int) -> mmap.mmap:
    """Mapped, and read from the disk in huge pages if it is not in memory yet."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=protection)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped
