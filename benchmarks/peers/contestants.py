"""Who does the work, under which name, with which settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.environment import OPENVINO_RECIPE, Recipe, ensure, llama_cpp_recipe
from benchmarks.peers.protocol import Child, Settings
from unsay.runtime.cpu import probe

PACKAGE = "benchmarks.peers"
"""Where the modules of the contestants are."""

OURS = "unsay"
OURS_INT8 = "unsay, int8 KV"
OURS_GUESSING = "unsay, guessing"
OURS_FAST = "unsay, fast prefill"
LLAMA = "llama.cpp"
LLAMA_INT8 = "llama.cpp, q8_0 KV"
OPENVINO = "OpenVINO"
OPENVINO_INT8 = "OpenVINO, u8 KV"
MEMORY = "reading memory"
MEMORY_INT8 = "reading memory, int8 KV"
MULTIPLYING = "multiplying"
"""No engines but what the machine can do: how fast the bytes a token needs can be read (memory.py), and the products of
its weights made (multiply.py)."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """recipe: of its environment; None is the one this runs in."""

    name: str
    module: str
    recipe: Recipe | None = None
    kv: str = "f16"
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def start(self, model: str, threads: int, env: dict[str, str] | None = None) -> Child:
        """Its process, with the model loaded. Raises PeerUnavailableError or Unable."""
        python = ensure(self.recipe) if self.recipe else sys.executable
        settings = Settings(model, threads, self.kv, self.options)
        return Child(python, f"{PACKAGE}.{self.module}", settings, env)


def ours() -> dict[str, Contestant]:
    """This package with each setting that is measured, by name."""
    return _by_name(
        Contestant(OURS, "unsay_engine"),
        Contestant(OURS_INT8, "unsay_engine", kv="int8"),
        Contestant(OURS_GUESSING, "unsay_engine", options={"speculate": True}),
        Contestant(OURS_FAST, "unsay_engine", options={"prefill": "fast"}),
    )


def peers() -> dict[str, Contestant]:
    """The others by name, with environments for this CPU."""
    llama = llama_cpp_recipe(probe())
    return _by_name(
        Contestant(LLAMA, "llama_cpp_engine", llama),
        Contestant(LLAMA_INT8, "llama_cpp_engine", llama, kv="int8"),
        Contestant(OPENVINO, "openvino_engine", OPENVINO_RECIPE),
        Contestant(OPENVINO_INT8, "openvino_engine", OPENVINO_RECIPE, kv="int8"),
    )


def _by_name(*everybody: Contestant) -> dict[str, Contestant]:
    return {contestant.name: contestant for contestant in everybody}


NOT_HERE = {
    "vLLM": "needs a checkpoint in another format than the GGUF file; figures of it are recorded ones",
    "onnxruntime-genai": "its model builder quantises the file's weights a second time: not the same arithmetic",
    "ik_llama.cpp": "on no package index",
}
"""Peers that this command does not set up, and why."""
