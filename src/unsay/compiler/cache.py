"""The cache of things made from model files. Everything in it can be made again; nothing in it is ever half there.

    digests/<path>.json    sha256 of a large file or many, remembered with their size, times and inode; what tiles lack
    weights/<key>.bin      packed weights, shared by the images of all targets; <key>.sha256 beside them
    images/<key>/          one image (image.py) and seal.json, the sha256 of each of its files
    locks/<model>          held while something is made from that model; freed by the system when its holder dies
    tmp/<model>/           what the holder of locks/<model> is writing

Invariants
1. Only the holder of locks/<model> writes in tmp/<model>, or makes weights and images of that model.
2. A file gets its final name by one rename, after its bytes and its directory have reached the disk.
3. So a directory in tmp whose lock is free was left by a process that died: whoever sees it next removes it.
4. An image of which a file's sha256 does not agree is treated as absent and made again. Model and weights are read
   for that only if they are not the files remembered, so a warm start reads neither.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from unsay.cachedir import wait_for_lock
from unsay.errors import CacheError, ModelFileError, ModelNotFoundError
from unsay.image import ImageFiles, Manifest

if TYPE_CHECKING:
    from unsay.core import Progress

_SEAL = "seal.json"
_READ_BYTES = 4 << 20
_WRITE_BYTES = 8 << 20
"""Whole huge pages at a time: Linux then keeps the weights in huge pages and maps them as such, 1 fault for 512."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FileIdentity(NamedTuple):
    """What changes when a file's bytes do."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def file_identity(path: Path) -> FileIdentity:
    """Identity of a file now; raises ModelNotFoundError or ModelFileError."""
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"no model file at {path}") from error
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error
    return FileIdentity(str(real), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def file_digest(
    root: Path, path: Path, progress: Progress | None = None, meanwhile: Callable[[], object] | None = None
) -> str:
    """sha256 of a model or weights file, in hex; read only if it is not the file remembered.

    meanwhile: called in a thread beside the reading, unless a file of that size is remembered: this is mostly a copy.
    Raises ModelNotFoundError or ModelFileError.
    """
    identity = file_identity(path)

    def read() -> str:
        with _beside(None if _knows_size(root, identity.size) else meanwhile):
            digest = _hash_file(Path(identity.path), identity.size, progress)
        if file_identity(path) != identity:
            raise ModelFileError(f"{path} changed while it was read; try again once it is complete")
        return digest

    return remembered(root, identity.path, identity._asdict(), read)


def _knows_size(root: Path, size: int) -> bool:
    """Whether a file of this size is remembered."""
    noted = (_read_json(memo).get("identity") for memo in (root / "digests").glob("*.json"))
    return any(
        isinstance(identity, dict) and cast("dict[str, object]", identity).get("size") == size for identity in noted
    )


@contextmanager
def _beside(work: Callable[[], object] | None) -> Generator[None]:
    """Until the work is done in a thread of its own; raises what it raises."""
    if work is None:
        yield
        return
    from unsay.compiler.beside import Beside

    with Beside() as beside:
        done = beside.start(work)
        yield
        done.result()


def remembered(root: Path, name: str, identity: object, make: Callable[[], str]) -> str:
    """What `make` gave for this name when it was as now. identity: anything JSON can keep that tells."""
    memo = _memo(root, name)
    noted = _read_json(memo)
    if noted.get("identity") == identity and isinstance(noted.get("value"), str):
        return str(noted["value"])
    value = make()
    _replace_text(root, memo, json.dumps({"identity": identity, "value": value}))
    return value


def forget(root: Path, name: str) -> None:
    """Have what is remembered of this name made again."""
    with _cache_errors(root, 0):
        _memo(root, name).unlink(missing_ok=True)


def _memo(root: Path, name: str) -> Path:
    return root / "digests" / f"{_name(name)}.json"


def identities(paths: Sequence[Path]) -> tuple[FileIdentity, ...]:
    """Identity of each file now; raises ModelNotFoundError or ModelFileError."""
    return tuple(map(file_identity, paths))


def files_digest(
    root: Path,
    paths: Sequence[Path],
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> str:
    """One digest of several files and their names; that of one file is its sha256. Raises as `file_digest`."""
    digests = [file_digest(root, path, progress, meanwhile) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return _sha256("".join(f"{path.name}\n{digest}\n" for path, digest in zip(paths, digests, strict=True)).encode())


def find_image(root: Path, key: str) -> ImageFiles | None:
    """The whole and undamaged image of this key, or None."""
    files = ImageFiles(root / "images" / key, root)
    try:
        return files if _is_whole(files) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CacheError(f"cannot read the cache {root}: {_explain(error, root, 0)}") from error


@contextmanager
def exclusive(root: Path, model: str, progress: Progress | None = None) -> Generator[Path]:
    """Hold locks/<model>, waiting for it; yields the empty directory tmp/<model>, removed at the end."""
    work = root / "tmp" / model
    with _cache_errors(root, 0):
        for directory in ("locks", "tmp", "weights", "images"):
            (root / directory).mkdir(exist_ok=True)
        lock = (root / "locks" / model).open("ab")
    with lock:
        wait_for_lock(lock, progress)
        with _cache_errors(root, 0):
            _remove_abandoned(root)
            _remove(work)
            work.mkdir()
        try:
            yield work
        finally:
            _remove(work)


def store_weights(root: Path, work: Path, key: str, num_bytes: int, write: Callable[[BinaryIO], None]) -> str:
    """Make weights/<key>.bin by `write` unless it is there and whole; returns its path relative to the cache.

    Room for all of it is reserved first, so a full disk shows at once.
    """
    relative = f"weights/{key}.bin"
    final, draft = root / relative, work / f"{key}.bin"
    with _cache_errors(root, num_bytes):
        if final.exists() and _weights_are_whole(root, relative, num_bytes):
            return relative
        with draft.open("wb", buffering=_WRITE_BYTES) as file:
            if num_bytes:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            write(file)
            _sync(file)
        assert draft.stat().st_size == num_bytes, (draft.stat().st_size, num_bytes)
        draft.replace(final)
        _sync_directory(final.parent)
    _replace_text(root, final.with_suffix(".sha256"), file_digest(root, final))
    return relative


def store_image(root: Path, work: Path, key: str, contents: Mapping[str, bytes]) -> ImageFiles:
    """Make images/<key> from file names and their bytes, sealed; replaces a damaged one."""
    files = ImageFiles(root / "images" / key, root)
    draft = work / key
    seal = json.dumps({name: _sha256(blob) for name, blob in contents.items()})
    with _cache_errors(root, sum(map(len, contents.values()))):
        draft.mkdir()
        for name, blob in {**contents, _SEAL: seal.encode()}.items():
            with (draft / name).open("wb") as file:
                file.write(blob)
                _sync(file)
        _sync_directory(draft)
        if files.directory.exists():
            files.directory.rename(work / "damaged")
        draft.rename(files.directory)
        _sync_directory(files.directory.parent)
    return files


def _is_whole(files: ImageFiles) -> bool:
    """Invariant 4."""
    seal = _read_json(files.directory / _SEAL)
    if not seal or any(_sha256((files.directory / name).read_bytes()) != digest for name, digest in seal.items()):
        return False
    manifest = Manifest.from_json(files.manifest.read_text())
    return _weights_are_whole(files.cache_root, manifest.weights, manifest.weights_bytes)


def _weights_are_whole(root: Path, relative: str, num_bytes: int) -> bool:
    """Invariant 4; raises FileNotFoundError if there are none."""
    path = root / relative
    if path.stat().st_size != num_bytes:
        return False
    seal = path.with_suffix(".sha256")
    return seal.exists() and seal.read_text() == file_digest(root, path)


def _remove_abandoned(root: Path) -> None:
    """Invariant 3."""
    for directory in (root / "tmp").iterdir():
        with (root / "locks" / directory.name).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(directory)


def _remove(directory: Path) -> None:
    """Whatever of it can be; a warm start gets along without the import."""
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _cache_errors(root: Path, num_bytes: int) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise CacheError(f"cannot write the cache {root}: {_explain(error, root, num_bytes)}") from error


def _explain(error: OSError, root: Path, num_bytes: int) -> str:
    if error.errno in _NO_SPACE:
        import shutil

        free = shutil.disk_usage(root).free
        return (
            f"{error.strerror}; {num_bytes / 1e6:.1f} MB are needed, {free / 1e6:.1f} MB are free; "
            "make room, or set UNSAY_CACHE to a directory on another disk"
        )
    if error.errno in _NO_PERMISSION:
        return f"{error.strerror} ({error.filename}); set UNSAY_CACHE to a directory you can write"
    return f"{error.strerror} ({error.filename})"


def _hash_file(path: Path, size: int, progress: Progress | None) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress("check", done, size)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def _replace_text(root: Path, path: Path, text: str) -> None:
    with _cache_errors(root, len(text)):
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        draft.write_text(text)
        draft.replace(path)


def _read_json(path: Path) -> dict[str, object]:
    """A JSON object; empty when the file is missing or damaged."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _sha256(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _name(text: str) -> str:
    return _sha256(text.encode(errors="surrogateescape"))[:32]


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
