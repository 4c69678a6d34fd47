"""From a model file to an image ready to run: taken from the cache, or made by `pipeline.build_image` and kept there.

An image is named by what it depends on: the bytes of the model's files, the target, the format of KV pages, the class
of prompts, the limits of a step, the compiler itself, and a third party's emitter by the file that has its class. A
warm start reads no weights and imports neither the compiler's passes nor llvmlite.
"""

from __future__ import annotations

import gc
import hashlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.cachedir import cache_root
from unsay.compiler.cache import exclusive, files_digest, find_image, identities
from unsay.compiler.codegen.backends import find_backend
from unsay.compiler.frontend.hf_files import model_files
from unsay.compiler.limits import LIMITS
from unsay.compiler.version import compiler_version
from unsay.errors import UnsupportedError
from unsay.image import IMAGE_VERSION, ImageFiles
from unsay.isa.classes import EXACT, check_prefill
from unsay.isa.kv import AUTO, check_kv_format
from unsay.isa.targets import is_cpu_target

if TYPE_CHECKING:
    from unsay.core import Progress
    from unsay.image import VocabSpec


def compile_model(
    source: Path,
    *,
    target: str,
    kv: str = AUTO,
    prefill: str = EXACT,
    accept: Callable[[VocabSpec], None] | None = None,
    progress: Progress | None = None,
) -> ImageFiles:
    """The image of a model (a file or directory) for one target; made if the cache has none, by one process at a time.

    kv: a format of KV pages (isa/kv.py) or "auto". prefill: the class prompts are computed in (isa/classes.py).
    accept: raises what it has against a tokenizer, before anything is compiled for it. Raises RequestError if kv or
    prefill is none of these, ModelNotFoundError, ModelFileError, UnsupportedError, TargetError or CacheError.
    """
    check_kinds(target, kv, prefill)
    root = cache_root()
    files = model_files(source)
    identity, digest = identities(files), files_digest(root, files, progress, _import_compiler)
    key = image_key(digest, target, kv, prefill)
    if image := find_image(root, key):
        return image
    with exclusive(root, digest, progress) as work, _without_collection():
        if image := find_image(root, key):
            return image
        from unsay.compiler.pipeline import Job, build_image

        return build_image(Job(source, identity, digest, target, kv, prefill, key, root, work, progress, accept))


def _import_compiler() -> None:
    """Beside the reading of a file unlike those met before, for which most likely there is no image."""
    from unsay.compiler.beside import look

    for module in _COMPILER:
        import_module(module)
        look()


_COMPILER = (
    "numpy",
    "unsay.compiler.frontend.source",
    "unsay.compiler.passes.pipeline",
    "unsay.compiler.pipeline",
    "unsay.compiler.codegen.emit",
)
"""The last two import the rest; each of these takes a fifth of it or so."""


def check_kinds(target: str, kv: str, prefill: str) -> None:
    """Raise TargetError, RequestError or UnsupportedError unless there are images of these."""
    find_backend(target)
    check_kv_format(kv)
    check_prefill(prefill)
    if prefill != EXACT and not is_cpu_target(target):
        raise UnsupportedError(
            f"prefill {prefill!r} is there for CPU targets only, {target} is none: leave it at {EXACT!r}"
        )


@contextmanager
def _without_collection() -> Generator[None]:
    """Python does not look for objects that only name each other: the compiler makes two graphs of them, and the
    looking takes a seventh of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def image_key(model_sha256: str, target: str, kv: str = AUTO, prefill: str = EXACT) -> str:
    """Name of an image in the cache."""
    parts = (model_sha256, target, kv, prefill, IMAGE_VERSION, compiler_version(), LIMITS)
    made_by = () if is_cpu_target(target) else (_emitter_version(target),)
    return f"{target}-{hashlib.sha256(repr(parts + made_by).encode()).hexdigest()[:40]}"


def _emitter_version(target: str) -> str:
    """Of a third party's back end: the emitter's class, and the digest of the file that has it."""
    kind = type(find_backend(target).emitter)
    file = sys.modules[kind.__module__].__file__
    assert file is not None, f"{kind} comes from no file"
    return f"{kind.__qualname__} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}"
