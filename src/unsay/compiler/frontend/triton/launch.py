"""How a kernel is launched: what is given for each of its parameters, and how many programs run.

    launch(tensor<1000 x f32>, tensor<1000 x f32>, 1000) grid(4)

One item for each parameter, in order: a tensor (contiguous, rows last) for a pointer, a number for a scalar. The grid
has up to three numbers of programs. In a file of TTIR the line stands behind `//`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from unsay.compiler.ir.types import DTYPES, TensorType
from unsay.errors import RequestError

_LAUNCH = re.compile(r"launch\s*\((?P<arguments>.*)\)\s*grid\s*\((?P<grid>[^()]*)\)\s*")
_COMMENT = re.compile(r"^\s*//\s*(launch\s*\(.*)$", re.MULTILINE)
_TENSOR = re.compile(r"tensor\s*<\s*(?P<dims>(?:[0-9]{1,10}\s*x\s*)*)(?P<dtype>[a-z0-9]+)\s*>")
_NUMBER = re.compile(r"-?[0-9]{1,18}|-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?")
_EXAMPLE = "launch(tensor<1000 x f32>, tensor<1000 x f32>, 1000) grid(4)"
_MAX_ELEMENTS = 1 << 40
_MAX_PROGRAMS = 1 << 20


@dataclass(frozen=True, slots=True)
class Launch:
    """`arguments` in the order of the kernel's parameters; `grid` always has three sizes."""

    arguments: tuple[TensorType | int | float, ...]
    grid: tuple[int, int, int]


def parse_launch(text: str) -> Launch:
    """Read a launch; raises RequestError saying what is wrong and how one looks."""
    match = _LAUNCH.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"{text[:100]!r} is not a launch, which looks like {_EXAMPLE}")
    grid = [_program_count(part) for part in match["grid"].split(",")]
    if len(grid) > 3 or prod(grid) > _MAX_PROGRAMS:
        raise RequestError(f"grid({match['grid'][:60]}): one to three numbers, up to 2^20 programs in all")
    parts = re.split(r",(?![^<]*>)", match["arguments"]) if match["arguments"].strip() else []
    return Launch(tuple(_argument(part.strip()) for part in parts), (*grid, *(1,) * (3 - len(grid))))  # pyright: ignore


def find_launch(text: str) -> Launch | None:
    """The launch that stands in a comment of a file of TTIR, None if there is none."""
    match = _COMMENT.search(text)
    return None if match is None else parse_launch(match[1])


def _argument(text: str) -> TensorType | int | float:
    if tensor := _TENSOR.fullmatch(text):
        dims = tuple(int(size) for size in re.findall("[0-9]+", tensor["dims"]))
        if tensor["dtype"] not in DTYPES or min(dims, default=1) < 1:
            raise RequestError(f"{text[:60]!r} is not a tensor of sizes from 1 and an element type of LLMIR")
        if prod(dims) > _MAX_ELEMENTS:
            raise RequestError(f"{text[:60]!r} has more than 2^40 elements")
        return TensorType(dims, DTYPES[tensor["dtype"]])
    if not _NUMBER.fullmatch(text):
        raise RequestError(f"{text[:60]!r} is neither a tensor nor a number; a launch looks like {_EXAMPLE}")
    return float(text) if "." in text else int(text)


def _program_count(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text) or int(text) < 1:
        raise RequestError(f"grid({text[:40]}) must be numbers of programs from 1")
    return int(text)
