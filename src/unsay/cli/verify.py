"""Prove what a compilation relies on, and show how: which claim, in which tier, by which method, and for how long.

unsay verify                       the axioms of all passes, and the kernels
unsay verify --pass fuse_ffn       the axioms of one pass
unsay verify MODEL                 each pass on the model's graph, and the step that `unsay run --model MODEL` runs
unsay verify MODEL --kv int8 --prefill fast    the step that `unsay run` runs with the same options
unsay verify MODEL --pass P        the same, and only this pass shown
unsay verify FILE.llmir --pass P   this pass run on the graph of a file (default: all of its pipeline); also of .mlir
unsay verify model.onnx            the same of what is imported from a file, .onnx or .ttir

Tiers are those of docs/verification.md. What is refuted comes with a counterexample; the exit code is 1 then. Functions
of the step of which something is not proved are listed behind the table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.cli.import_model import read_import
from unsay.cli.options import add_json_option, add_kv_option, add_prefill_option
from unsay.cli.output import progress_bars, visible, write_json, write_line
from unsay.cli.passes import add_extension_option, extensions, in_file, read_graph
from unsay.errors import IrError, PassError, RequestError, TargetError

if TYPE_CHECKING:
    from unsay.compiler.codegen.backends import Step
    from unsay.compiler.ir.core import Graph
    from unsay.compiler.verify.kernels.coverage import Gap
    from unsay.compiler.verify.obligation import Obligation

_TEXTS = (".llmir", ".mlir")
_IMPORTED = (".onnx", ".ttir")
_GAPS = {"computation": "what {} compute (their accesses are)", "anything": "anything of {}"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    tier: str
    obligation: str
    method: str
    status: str
    seconds: float
    detail: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("subject", nargs="?", metavar="FILE|MODEL", help="a graph's file, a known model, or its path")
    parser.add_argument("--pass", dest="passes", action="append", metavar="P", help="only this pass; repeatable")
    parser.add_argument("--target", metavar="T", help="instruction set of the program (default: of this CPU)")
    add_extension_option(parser)
    add_kv_option(parser)
    add_prefill_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print a row as soon as it is decided."""
    _check_options(args)
    if not args.json:
        write_line(f"{'tier':<5}{'obligation':<34}{'method':<26}{'result':<9}{'seconds':>8}")
    failed = 0
    with extensions(args.extension):
        for row in _rows(args):
            if isinstance(row, Row):
                failed += row.status != "proved"
                write_json(asdict(row)) if args.json else _print(row)
            else:
                _write_gap(row, args.json)
    return 1 if failed else 0


def _check_options(args: argparse.Namespace) -> None:
    is_model = args.subject is not None and Path(args.subject).suffix not in (*_TEXTS, *_IMPORTED)
    if not is_model and (args.kv, args.prefill) != ("auto", "exact"):
        raise RequestError("--kv and --prefill say which step of a model is proved: name a MODEL, or leave them out")
    if args.extension and (is_model or not (args.subject or args.passes)):
        raise RequestError("--extension brings passes for graphs, models are compiled without: name a FILE or a --pass")


def _rows(args: argparse.Namespace) -> Iterator[Row | Gap]:
    if args.subject is None:
        yield from _decided(_independent(args.passes))
    elif (path := Path(args.subject)).suffix in (*_TEXTS, *_IMPORTED):
        graph = read_graph(path) if path.suffix in _TEXTS else read_import(path, {}, None).graph
        try:
            yield from _decided(_sizes(graph))
            yield from _passes(graph, args.passes or [_pipeline_of(graph)])
        except IrError as error:
            raise in_file(path, error) from error
    else:
        yield from _model(args)


def _independent(passes: list[str] | None) -> list[Obligation]:
    """What depends on no model."""
    from unsay.compiler.verify import obligation, rules

    return rules.obligations(passes) if passes else [*rules.obligations(), *obligation.obligations()]


def _sizes(graph: Graph) -> list[Obligation]:
    """T0 of the graph."""
    from unsay.compiler.verify import shapes

    return shapes.obligations(graph)


def _model(args: argparse.Namespace) -> Iterator[Row | Gap]:
    """The passes on the model's graph; with no pass named, its step too."""
    from unsay import hub
    from unsay.compiler.compile import check_kinds
    from unsay.compiler.passes.pipeline import find_passes
    from unsay.compiler.pipeline import load, lowered_step, to_graph
    from unsay.default_target import default_target
    from unsay.isa.targets import TARGETS, is_cpu_target

    target = args.target or default_target()
    check_kinds(target, args.kv, args.prefill)
    if not is_cpu_target(target):
        raise TargetError(f"kernels of {target} are not proved; name one of {', '.join(cpu.name for cpu in TARGETS)}")
    with progress_bars() as progress:
        loaded = load(hub.resolve(args.subject, progress), args.kv, args.prefill)
    graph = to_graph(loaded)
    if not args.passes:
        yield from _decided(_sizes(graph))
    known = [step.name for step in find_passes(args.passes or [])]
    yield from (row for row in _passes(graph, ["step"]) if row.obligation in known or not known)
    if not args.passes:
        yield from _step(lowered_step(graph, loaded.spec, target), target)


def _step(step: Step, target: str) -> Iterator[Row | Gap]:
    """The claims about a step, and what none of them is about."""
    from unsay.compiler.verify import kernels

    claims = kernels.step_claims(step, target)
    yield from _decided(claims.obligations)
    yield from claims.gaps


def _passes(graph: Graph, names: Iterable[str]) -> Iterator[Row]:
    """T1 of each pass run on the graph; a refuted one ends it."""
    from unsay.compiler.passes.pipeline import find_passes, run_passes
    from unsay.compiler.verify.spec import Level
    from unsay.compiler.verify.validate import Validator

    passes = find_passes(names)
    validator = Validator(graph, next((step.entry for step in passes if step.entry), Level.TENSOR))
    try:
        run_passes(graph, passes, validator.after_pass)
    except PassError:
        if all(proof.status == "proved" for proof in validator.proofs):
            raise  # not refuted: what the pass left is not legal
    for proof in validator.proofs:
        detail = proof.detail or f"{proof.instances} instances, keeps {proof.keeps}"
        yield Row("T1", proof.name, proof.method, proof.status, proof.seconds, detail)


def _decided(obligations: Iterable[Obligation]) -> Iterator[Row]:
    for obligation in obligations:
        start = time.perf_counter()
        result = obligation.prove()
        seconds = round(time.perf_counter() - start, 3)
        yield Row(obligation.tier, obligation.name, obligation.method, result.status.value, seconds, result.detail)


def _pipeline_of(graph: Graph) -> str:
    """Which pipeline a graph is for: one that attends to a cache is a step."""
    return "step" if any(operation.kind in ("tokens", "attention") for operation in graph.operations) else "tensor"


def _write_gap(gap: Gap, as_json: bool) -> None:
    count = len(gap.functions)
    if as_json:
        write_json({"not_proved": gap.what, "functions": gap.functions, "count": count, "of": gap.of})
    else:
        what = _GAPS[gap.what].format(f"{count} of the step's {gap.of} functions")
        write_line(f"not proved: {what}: {', '.join(gap.functions)}")


def _print(row: Row) -> None:
    line = f"{row.tier:<5}{row.obligation:<34}{row.method:<26}{row.status:<9}{row.seconds:>8.3f}"
    write_line(f"{line}  {row.detail}" if row.status == "proved" else f"{line}\n{visible(row.detail)}")
