"""Check what unsay needs of this machine, and say how to mend what is missing. Exits with 1 if something is."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from unsay.cli.options import add_json_option
from unsay.cli.output import write_json, write_line
from unsay.errors import UnsayError

if TYPE_CHECKING:
    from unsay.hub import KnownModel

_PACKAGES = ("numpy", "llvmlite", "minijinja", "rich", "z3-solver")
_NAME_WIDTH = 18
_DISK_BYTES = 400_000_000
"""A model file, its archive while it is unpacked, and the packed weights."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. mend: what to do about it, "" when there is nothing to do."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print every check."""
    checks = [check for make in _CHECKS for check in make()]
    for check in checks:
        if args.json:
            write_json(asdict(check))
        else:
            _print(check)
    return 0 if all(check.ok for check in checks) else 1


def _print(check: Check) -> None:
    write_line(f"{'ok ' if check.ok else 'BAD'}  {check.name:<{_NAME_WIDTH}}{check.found}")
    if check.mend:
        write_line(f"     {'':<{_NAME_WIDTH}}{check.mend}")


def _check_python() -> list[Check]:
    found = sys.version.split()[0]
    return [Check("python", sys.version_info >= (3, 11), found, "" if sys.version_info >= (3, 11) else "install 3.11+")]


def _check_packages() -> list[Check]:
    return [_check_package(name) for name in _PACKAGES]


def _check_package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, "missing", f"{sys.executable} -m pip install {name}")


def _check_cpu() -> list[Check]:
    from unsay.default_target import default_target
    from unsay.runtime.cpu import probe

    try:
        cpu = probe()
        target = default_target()
    except UnsayError as error:
        return [Check("cpu", False, str(error), "run unsay on a CPU that has them")]
    cores = len(os.sched_getaffinity(0))
    fast = "is for its tiles" if target == "amx-int8" else f"is no faster with {target} code"
    return [
        Check("cpu", True, cpu.name), Check("target", True, target), Check("cores", True, str(cores)),
        Check("prefill", True, f"exact; --prefill fast {fast} (unsay bench prefill)"),
    ]  # fmt: skip


def _check_backends() -> list[Check]:
    """What code can be made for, and why it would not run here."""
    from unsay.compiler.codegen.backends import backends
    from unsay.runtime.cpu import probe

    try:
        flags, known = probe().flags, backends()
    except UnsayError as error:
        return [Check("targets", False, str(error))]
    lacking = [backend.emitter.lacking(flags) for backend in known]
    return [
        Check(backend.target, True, backend.emitter.makes + (f"; to run here it lacks {what}" if what else ""))
        for backend, what in zip(known, lacking, strict=True)
    ]


def _check_tiles() -> list[Check]:
    """AMX: what the CPU has, what the kernel allows, and a product tried anew in a child process."""
    from unsay.compiler.codegen.amx_probe import lacking_for_tiles
    from unsay.isa.targets import find_target
    from unsay.runtime.cpu import probe

    wanted = find_target("amx-int8").cpu_flags
    try:
        flags = probe().flags
        lacking = lacking_for_tiles(flags, again=True) if flags.issuperset(wanted) else ""
    except UnsayError as error:
        return [Check("amx", False, str(error))]
    if not flags.issuperset(wanted):
        return [Check("amx", True, "this CPU has no int8 tiles")]
    used = (
        f"int8 tiles, but not used: lacks {lacking}" if lacking else "int8 tiles, permission granted, a product right"
    )
    return [Check("amx", True, used)]


def _check_cache() -> list[Check]:
    from unsay.cachedir import cache_root

    try:
        root = cache_root()
    except UnsayError as error:
        return [Check("cache", False, str(error))]
    used = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    free = shutil.disk_usage(root).free
    enough = free >= _DISK_BYTES
    mend = "" if enough else f"{_DISK_BYTES / 1e6:.0f} MB may be needed: free some, or set UNSAY_CACHE to another disk"
    return [
        Check("cache", True, f"{root}, {used / 1e6:.0f} MB"),
        Check("disk", enough, f"{free / 1e6:.0f} MB free", mend),
    ]


def _check_models() -> list[Check]:
    from unsay import hub

    try:
        return [_check_model(hub.KNOWN[entry.name]) for entry in hub.list_models()]
    except UnsayError:
        return []


def _check_model(model: KnownModel) -> Check:
    if not model.path.exists():
        return Check(model.name, True, "not here yet", f"unsay pull {model.name}")
    with open(model.path, "rb") as file:
        is_right = hashlib.file_digest(file, "sha256").hexdigest() == model.member_sha256
    mend = "" if is_right else f"delete it, then: unsay pull {model.name}"
    return Check(model.name, is_right, f"{model.path} {'as pinned' if is_right else 'is damaged'}", mend)


def _check_image() -> list[Check]:
    """Whether the default model is compiled for this CPU."""
    from unsay import hub
    from unsay.cachedir import cache_root
    from unsay.compiler.cache import file_digest, find_image
    from unsay.compiler.compile import image_key
    from unsay.default_target import default_target

    try:
        cached = [entry for entry in hub.list_models() if entry.is_cached]
        keys = {entry.name: image_key(file_digest(cache_root(), entry.path), default_target()) for entry in cached}
        images = {name: find_image(cache_root(), key) for name, key in keys.items()}
    except UnsayError:
        return []
    return [
        Check("image", True, f"{name}: {files.directory if files else 'not compiled yet'}",
              "" if files else f"unsay compile {name}")
        for name, files in images.items()
    ]  # fmt: skip


_CHECKS: tuple[Callable[[], list[Check]], ...] = (
    _check_python, _check_packages, _check_cpu, _check_tiles, _check_backends, _check_cache, _check_models,
    _check_image,
)  # fmt: skip
