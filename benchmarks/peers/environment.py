"""A virtual environment for each peer, made from the package index and kept in the user's cache between runs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from unsay.cachedir import cache_root
from unsay.download import exclusive
from unsay.runtime.cpu import Cpu

_STAMP = "recipe.json"

_LLAMA_FLAGS = {
    "avx_vnni": "GGML_AVX_VNNI", "avx512f": "GGML_AVX512", "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI", "avx512_bf16": "GGML_AVX512_BF16",
}  # fmt: skip
"""CPU flags as Linux names them, and what llama.cpp calls them; up to AVX2, FMA and F16C all is on by default."""

_AMX_FLAGS = {"amx_tile": "GGML_AMX_TILE", "amx_int8": "GGML_AMX_INT8", "amx_bf16": "GGML_AMX_BF16"}


class PeerUnavailableError(Exception):
    """The peer cannot be installed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What pip is asked for. Another recipe of the same name makes the environment anew."""

    name: str
    requirements: tuple[str, ...]
    from_source: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])


def llama_cpp_recipe(cpu: Cpu) -> Recipe:
    """llama-cpp-python, compiled for this CPU: what it has is named, as -march=native may guess wrong."""
    if platform.machine() != "x86_64":
        return Recipe("llama.cpp", ("llama-cpp-python",), ("llama-cpp-python",), {"CMAKE_ARGS": "-DGGML_NATIVE=ON"})
    chosen = {name for flag, name in _LLAMA_FLAGS.items() if flag in cpu.flags}
    env: dict[str, str] = {}
    if "amx_int8" in cpu.flags and shutil.which("clang"):
        # GCC 12 leaves the tile configuration out, and the program crashes
        chosen |= {name for flag, name in _AMX_FLAGS.items() if flag in cpu.flags}
        env = {"CC": "clang", "CXX": "clang++"}
    flags = ["-DGGML_NATIVE=OFF", "-DLLAVA_BUILD=OFF", *(f"-D{name}=ON" for name in sorted(chosen))]
    return Recipe("llama.cpp", ("llama-cpp-python",), ("llama-cpp-python",), {**env, "CMAKE_ARGS": " ".join(flags)})


OPENVINO_RECIPE = Recipe("openvino", ("openvino-genai",))


def ensure(recipe: Recipe) -> str:
    """The Python of the recipe's environment, made if it is not there yet; minutes where something is compiled.

    Raises PeerUnavailableError with pip's last words.
    """
    directory = cache_root() / "peers" / recipe.name
    python = directory / "bin" / "python"
    wanted = json.dumps({**asdict(recipe), "python": platform.python_version()}, sort_keys=True)
    with exclusive(directory.parent):
        if not _is_made(directory, wanted):
            print(f"making the environment of {recipe.name} in {directory} ...", file=sys.stderr, flush=True)
            _make(directory, python, recipe)
            (directory / _STAMP).write_text(wanted)
    return str(python)


def _is_made(directory: Path, wanted: str) -> bool:
    stamp = directory / _STAMP
    return stamp.exists() and stamp.read_text() == wanted


def _make(directory: Path, python: Path, recipe: Recipe) -> None:
    """At the lowest priority and one file at a time: a compilation takes long, and is in nobody's way then."""
    (directory / _STAMP).unlink(missing_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(directory)], recipe)
    sources = [f"--no-binary={name}" for name in recipe.from_source]
    _run(["nice", "-n", "19", str(python), "-m", "pip", "install", "--upgrade", *sources, *recipe.requirements], recipe)


def _run(command: list[str], recipe: Recipe) -> None:
    env = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "1", **recipe.env}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise PeerUnavailableError(f"{recipe.name} needs {error.filename}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["without a word"]
        raise PeerUnavailableError(f"{recipe.name} cannot be installed: {lines[-1]}")
