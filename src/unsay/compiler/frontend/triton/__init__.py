"""Triton IR as LLMIR, for one launch: parse (text.py), then raise (kernel.py) to operations on whole tensors."""

from __future__ import annotations

from pathlib import Path

from unsay.compiler.dialect import ops, verifier
from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.triton import structure
from unsay.compiler.frontend.triton.kernel import Kernel, at
from unsay.compiler.frontend.triton.launch import Launch, find_launch
from unsay.compiler.frontend.triton.operations import OPERATIONS
from unsay.compiler.frontend.triton.text import Op, parse
from unsay.compiler.ir.core import Graph
from unsay.errors import IrError, ModelFileError, ModelNotFoundError, RequestError, UnimportableError

__all__ = ["import_triton"]

MAX_TEXT_BYTES = 1 << 24


def import_triton(path: Path, launch: Launch | None = None) -> Imported:
    """The kernel in a file of Triton IR (generic form) as a checked graph.

    Inputs are `arg0`, `arg1`, ... for the parameters it loads; outputs are the tensors it stores, in the same order.
    `launch` may be left out where the file states one in a comment. Raises IrError for text that is no such IR,
    UnimportableError naming with line and column what has no meaning on whole tensors, RequestError for a launch that
    is missing or does not fit.
    """
    return raise_kernel(_read(path), path.name, launch)


def raise_kernel(text: str, file: str = "the kernel", launch: Launch | None = None) -> Imported:
    """The same for text."""
    module = parse(text)
    functions = {str(op.attributes.get("sym_name")): op for op in module.blocks[0].ops if op.name == "tt.func"}
    problems = [at(op, "not a function") for op in module.blocks[0].ops if op.name != "tt.func"]
    public = [op for op in functions.values() if op.attributes.get("sym_visibility") != "private" and op.blocks]
    if len(public) != 1:
        raise IrError(f"{len(public)} public functions, one kernel is needed", *module.location)
    for function in functions.values():
        if function.blocks:
            structure.check(function)
    launch = launch or find_launch(text)
    if launch is None:
        raise RequestError(f"{file}: say how it is launched: {_signature(public[0])}")
    graph = Graph(str(public[0].attributes.get("sym_name")).replace("$", "_"), ())
    kernel = Kernel(OPERATIONS, functions, launch, graph)
    kernel.run(public[0])
    problems += kernel.problems
    if problems:
        raise UnimportableError(file, problems)
    _drop_unused(graph)
    verifier.verify(graph)
    return Imported(graph, {})


def _read(path: Path) -> str:
    if not path.exists():
        raise ModelNotFoundError(f"no kernel at {path}")
    try:
        raw = path.read_bytes()[: MAX_TEXT_BYTES + 1]
        if len(raw) > MAX_TEXT_BYTES:
            raise ModelFileError(f"{path.name}: more than {MAX_TEXT_BYTES} bytes of text")
        return raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"cannot read {path.name}: {error}") from error


def _signature(function: Op) -> str:
    """What a launch of this function looks like."""
    parameters = ", ".join(str(parameter.type) for parameter in function.blocks[0].arguments)
    return f"launch(...) grid(...) with a tensor or number for each of ({parameters})"


def _drop_unused(graph: Graph) -> None:
    """Operations made on the way that nothing reads; also tensors only stored to, as the kernel does not read them."""
    for operation in reversed(graph.operations):
        if ops.BY_NAME[operation.kind].pure and not any(value.uses for value in operation.results):
            graph.erase(operation)
