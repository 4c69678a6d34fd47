"""Read a model or kernel from elsewhere as LLMIR, and show what it is.

An ONNX model, a kernel in Triton IR, a Hugging Face directory or a GGUF file becomes a checked graph
(docs/importing.md). With -o its text is written; weights stay in the model's file. What cannot be
imported is listed, operation by operation.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.cli.options import add_json_option
from unsay.cli.output import write_file, write_json, write_line
from unsay.errors import IrError, ModelNotFoundError, RequestError

if TYPE_CHECKING:
    from unsay.compiler.frontend.imported import Imported
    from unsay.compiler.ir.core import Graph

_DIM = re.compile(r"([A-Za-z_][A-Za-z0-9_.\-]*)=([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")
_MODELS = (".onnx",)
_KERNELS = (".ttir", ".mlir")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help=".onnx, .ttir, .gguf, or a Hugging Face directory")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="where to write the graph as text")
    sizes = "range of a named dimension of an ONNX model (default 1..65536); repeatable"
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=LOW..HIGH", help=sizes)
    launch = "how a kernel is launched: 'launch(tensor<1000 x f32>, 1000) grid(4)' (default: as its file says)"
    parser.add_argument("--launch", metavar="L", help=launch)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Import it, write the text if asked, and print what it is."""
    from unsay.compiler.ir.printer import print_graph

    imported = _import(args)
    if args.output is not None:
        write_file(args.output, print_graph(imported.graph).encode())
    if args.json:
        write_json(_as_json(args, imported))
    else:
        _print(args, imported)
    return 0


def _import(args: argparse.Namespace) -> Imported:
    suffix = args.file.suffix.lower()
    if args.dim and suffix not in _MODELS:
        raise RequestError(f"--dim is for ONNX models; {args.file.name} is none")
    if args.launch and suffix not in _KERNELS:
        raise RequestError(f"--launch is for kernels in Triton IR; {args.file.name} is none")
    return read_import(args.file, dict(_range(text) for text in args.dim), args.launch)


def read_import(file: Path, ranges: Mapping[str, tuple[int, int]], launch: str | None) -> Imported:
    """What the front end for a file of this name makes of it; raises as they do, and ModelNotFoundError."""
    suffix = file.suffix.lower()
    if not file.exists():
        raise ModelNotFoundError(f"no model or kernel at {file}")
    if suffix in _MODELS:
        from unsay.compiler.frontend.onnx import import_onnx

        return import_onnx(file, ranges)
    if suffix in _KERNELS:
        return _import_kernel(file, launch)
    from unsay.compiler.frontend.source import import_model

    return import_model(file)


def _import_kernel(file: Path, launch: str | None) -> Imported:
    from unsay.cli.passes import in_file
    from unsay.compiler.frontend.triton import import_triton
    from unsay.compiler.frontend.triton.launch import parse_launch

    try:
        return import_triton(file, parse_launch(launch) if launch else None)
    except IrError as error:
        raise in_file(file, error) from error


def _range(text: str) -> tuple[str, tuple[int, int]]:
    match = _DIM.fullmatch(text)
    low, high = (int(match[2]), int(match[3] or match[2])) if match else (0, 0)
    if match is None or not 1 <= low <= high:
        raise RequestError(f"--dim {text}: it must be NAME=LOW..HIGH, or NAME=SIZE, with sizes from 1")
    return match[1], (low, high)


def _kinds(graph: Graph) -> dict[str, int]:
    return dict(sorted(Counter(operation.kind for operation in graph.operations).items()))


def _ends(graph: Graph) -> tuple[dict[str, str], dict[str, str]]:
    """Types of the inputs by name, and of the outputs by the names of their values."""
    given = [op for op in graph.operations if op.kind in ("input", "tokens")]
    inputs = {op.string("name") if op.kind == "input" else op.kind: str(op.result.type) for op in given}
    outputs = [value for op in graph.operations if op.kind == "output" for value in op.operands]
    return inputs, {value.name: str(value.type) for value in outputs}


def _as_json(args: argparse.Namespace, imported: Imported) -> dict[str, object]:
    graph, (inputs, outputs) = imported.graph, _ends(imported.graph)
    dims = [
        {"name": dim.name, "low": dim.low, "high": dim.high, "formula": str(dim.formula) if dim.formula else None}
        for dim in graph.dims.values()
    ]
    return {
        "file": str(args.file),
        "graph": graph.name,
        "dims": dims,
        "inputs": inputs,
        "outputs": outputs,
        "operations": _kinds(graph),
        "weights": len(imported.weights),
        "output": str(args.output) if args.output else None,
    }


def _print(args: argparse.Namespace, imported: Imported) -> None:
    from unsay.compiler.ir.printer import print_dim

    graph, (inputs, outputs) = imported.graph, _ends(imported.graph)
    write_line(f"{args.file.name}: {len(graph.operations)} operations, {len(imported.weights)} weights")
    kinds = [f"{kind} {count}" for kind, count in _kinds(graph).items()]
    dims = [print_dim(dim) for dim in graph.dims.values()]
    for title, items in (
        ("dims", dims),
        ("inputs", [f"{name}: {kind}" for name, kind in inputs.items()]),
        ("outputs", [f"{name}: {kind}" for name, kind in outputs.items()]),
        ("ops", [", ".join(kinds)]),
    ):
        for index, item in enumerate(items):
            write_line(f"  {'' if index else title:<9}{item}")
    if args.output is not None:
        write_line(f"  {'written':<9}{args.output}")
