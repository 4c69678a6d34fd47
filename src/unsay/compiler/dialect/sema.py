"""Remarks on a whole graph: what is known or wanted of it beyond what it computes.

    graph cnn(B: 1..8) sema {dynamic_batch = "B", device.conv2d = "gpu"} { ... }

Passes and back ends may act on them; none changes what the graph computes. An attribute of an operation that begins
with `sema.` is a remark on that operation, and free; verify/spec.py checks those that passes leave:

    sema.device   where the operation is to run (passes/assign_devices.py)
    sema.stage    when it may run: after all stages before (passes/schedule.py)
    sema.offsets  where in the arena of its device each result lies, in bytes (passes/plan_memory.py)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.types import DEVICES
from unsay.errors import IrError


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark by name, `KIND` in it standing for an operation; `wanted` says which values `fits` takes."""

    name: str
    fits: Callable[[Graph, Any], bool]
    wanted: str
    doc: str


DEVICE, STAGE, OFFSETS = "sema.device", "sema.stage", "sema.offsets"


def _per_device(name: str, fits: Callable[[Graph, Any], bool], wanted: str, doc: str) -> list[Remark]:
    return [Remark(f"{name}.{device}", fits, wanted, doc.format(device)) for device in sorted(DEVICES)]


SEMA: tuple[Remark, ...] = (
    Remark("dynamic_batch", lambda graph, value: value in graph.dims, "a dimension of the graph",
           "this dimension is the batch, and may be another at each run (passes/specialise_batch.py)"),
    Remark("batch", lambda _, value: type(value) is int and value > 0, "a size",
           "the size of the batch that the graph is wanted for"),
    Remark("device", lambda _, value: value in DEVICES, f"one of {', '.join(sorted(DEVICES))}",
           "where operations run that no other remark places (passes/assign_devices.py)"),
    Remark("device.KIND", lambda _, value: value in DEVICES, f"one of {', '.join(sorted(DEVICES))}",
           "where operations of this kind run"),
    *_per_device("precision", lambda _, value: value in ("f16", "bf16"), "f16 or bf16",
                 "the element type products on the {} compute in (passes/propagate_precision.py)"),
    *_per_device("arena_bytes", lambda _, value: type(value) is int and value >= 0, "a number of bytes",
                 "the most memory a run takes on the {} (passes/plan_memory.py)"),
    Remark("calling", lambda _, value: value in ("vllm",), "vllm",
           "the graph takes and gives what this caller passes (frontend/)"),
)  # fmt: skip

_BY_NAME = {remark.name: remark for remark in SEMA}


def check_sema(graph: Graph) -> None:
    """Raise IrError for a remark on the graph that is not known, or has a value that does not fit."""
    for name, value in graph.sema.items():
        prefix, _, kind = name.partition(".")
        remark = _BY_NAME.get(f"{prefix}.KIND" if kind in BY_NAME else name)
        if remark is None:
            raise IrError(f"no such remark: {name}, known are {', '.join(_BY_NAME)}", *graph.location)
        if not remark.fits(graph, value):
            raise IrError(f"{name} must be {remark.wanted}, got {value!r}", *graph.location)
