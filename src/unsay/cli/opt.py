"""Run passes on a graph given as LLMIR text (docs/llmir.md), each proved on it; *.mlir is MLIR's generic form.

`unsay opt IN.llmir --passes canonicalise,dce -o OUT.llmir`; `unsay opt --list` shows the passes there are.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.cli.options import add_json_option
from unsay.cli.output import write, write_error, write_file, write_json, write_line
from unsay.cli.passes import (
    add_extension_option,
    add_print_after_option,
    extensions,
    graph_text,
    in_file,
    print_after,
    read_graph,
)
from unsay.errors import IrError, RequestError

if TYPE_CHECKING:
    from unsay.compiler.ir.core import Graph
    from unsay.compiler.passes.pipeline import Pass
    from unsay.compiler.verify.memory_plan import MemoryPlan
    from unsay.compiler.verify.validate import PassProof


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", nargs="?", type=Path, metavar="IN", help="LLMIR text; - is stdin")
    names = "names of passes or of pipelines, separated by commas, in order"
    parser.add_argument("--passes", metavar="A,B", default="", help=names)
    add_extension_option(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="where to write the graph (default: stdout)")
    parser.add_argument("--plan", action="store_true", help="print where values lie in memory instead of the graph")
    add_print_after_option(parser)
    parser.add_argument("--list", action="store_true", help="show the passes and pipelines there are")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the passes and write the graph."""
    with extensions(args.extension):
        if args.list:
            _list_passes(args.json)
        elif args.file is None:
            raise RequestError("give a file of LLMIR text, or --list to see the passes")
        else:
            _optimise(args)
    return 0


def _optimise(args: argparse.Namespace) -> None:
    from unsay.compiler.passes.pipeline import find_passes
    from unsay.compiler.verify.validate import run_validated

    passes = find_passes(name for name in args.passes.split(",") if name)
    show = print_after(args.print_after, passes)
    counts: list[int] = []

    def after(step: Pass, graph: Graph, count: int) -> None:
        counts.append(count)
        if show is not None:
            show(step, graph, count)

    graph = read_graph(args.file)
    try:
        proofs = run_validated(graph, passes, after)
        plan = _plan(graph) if args.plan else None
    except IrError as error:
        raise in_file(args.file, error) from error
    text = graph_text(graph, args.output) if plan is None else plan.to_json() if args.json else plan.to_text()
    if args.output is not None:
        write_file(args.output, text.encode())
    _report(list(zip(proofs, counts, strict=True)), text, args)


def _plan(graph: Graph) -> MemoryPlan:
    from unsay.compiler.verify.memory_plan import memory_plan

    return memory_plan(graph)


def _report(proofs: list[tuple[PassProof, int]], text: str, args: argparse.Namespace) -> None:
    """What was done, and the result unless it was written to a file."""
    if args.json:
        passes = [
            {
                "pass": proof.name,
                "rewrites": count,
                "status": proof.status,
                "method": proof.method,
                "keeps": proof.keeps,
            }
            for proof, count in proofs
        ]
        result = {} if args.output else {"plan": json.loads(text)} if args.plan else {"graph": text}
        write_json({"passes": passes, **result})
        return
    for proof, count in proofs:
        kept = f", {proof.status}: keeps {proof.keeps}" if count else ""
        write_error(f"{proof.name}: {count}{kept}")
    if args.output is None:
        write(text)


def _list_passes(as_json: bool) -> None:
    from unsay.compiler.passes.pipeline import BY_NAME, PIPELINES

    for name, step in sorted(BY_NAME.items()):
        summary = (sys.modules[step.run.__module__].__doc__ or "").splitlines()[0]
        levels = [level.name.lower() if level is not None else "any" for level in (step.entry, step.exit)]
        if as_json:
            write_json({"pass": name, "takes": levels[0], "leaves": levels[1], "summary": summary})
        else:
            write_line(f"{name:<26} {levels[0]:>9} -> {levels[1]:<9}  {summary}")
    for name, passes in PIPELINES.items():
        names = [step.name for step in passes]
        if as_json:
            write_json({"pipeline": name, "passes": names})
        else:
            write_line(f"{name}: {','.join(names)}")
