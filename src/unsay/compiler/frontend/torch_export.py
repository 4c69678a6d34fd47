"""Programs of `torch.export` become tensor operations (dialect/tensor_ops.py).

    program = torch.export.export(model.eval(), (ids,), dynamic_shapes=({0: Dim("B", max=8), 1: Dim("T", max=64)},))
    imported = import_torch_export(program)

One operation of the program after the other is looked up in torch_ops.py; the type of every result is checked against
the one torch states. Parameters, buffers and constants become weights under the names torch has for them. A dynamic
dimension becomes a dimension with torch's range, called after the input that shows it (`input_ids.1`) or as `names`
says; sizes computed from it become dimensions with formulas. All that cannot be imported is named at once.

The program is an object, not a file: `torch.export.load` unpickles, so whoever trusts a .pt2 file loads it. torch is
not imported here; a caller who has a program has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from numpy.typing import NDArray

from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.torch_builder import MAX_EXTENT, Builder
from unsay.compiler.frontend.torch_call import Call, Empty
from unsay.compiler.frontend.torch_ops import RULES
from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.dims import Dim, same
from unsay.compiler.ir.types import TensorType
from unsay.errors import IrError, UnimportableError, UnsupportedError
from unsay.isa.formats import DType

_WEIGHTS = frozenset({"PARAMETER", "BUFFER", "CONSTANT_TENSOR"})
_INLINED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Higher-order operations that only run a piece of the program, and where their arguments have it."""
_SIZES = frozenset({"aten.sym_size.int", "aten.sym_numel.default"})
_GUARDS = frozenset({"aten._assert_scalar.default", "aten.sym_constrain_range_for_size.default",
                     "aten.sym_constrain_range.default"})  # fmt: skip
"""Checks of dynamic sizes, which the ranges of the dimensions state."""


def import_torch_export(program: Any, *, names: Mapping[str, Sequence[str]] | None = None) -> Imported:
    """The graph of a `torch.export.ExportedProgram`, and its weights.

    names: for an input, names of its dimensions; those that are not dynamic are ignored.
    Raises UnimportableError with every operation that has no rule, UnsupportedError for a use a rule does not know.
    """
    _check_operations(program.graph_module)
    return _Import(program, names or {}).run()


def _check_operations(module: Any) -> None:
    """Name everything there is no rule for."""
    missing = Counter(_unknown(module))
    if missing:
        problems = [f"{name} ({count} times)" for name, count in sorted(missing.items())]
        raise UnimportableError("the exported program", problems)


def _unknown(module: Any) -> Iterable[str]:
    for node in module.graph.nodes:
        if node.op in ("call_method", "call_module"):
            yield f"{node.op} {node.target}"
        if node.op != "call_function":
            continue
        name = str(node.target)
        if name in _INLINED:
            yield from _unknown(getattr(module, node.args[_INLINED[name]].target))
        elif name not in RULES and name not in _SIZES | _GUARDS and not _is_python(node):
            yield name


def _is_python(node: Any) -> bool:
    """Arithmetic on sizes, comparisons of them, and taking one of several results."""
    return getattr(node.target, "__module__", None) in ("_operator", "math") or str(node.target).startswith(
        "torch.sym_"
    )


class _Import:
    def __init__(self, program: Any, names: Mapping[str, Sequence[str]]) -> None:
        self._program = program
        self._names = names
        self._graph = Graph("torch_export", ())
        self._to = Builder(self._graph)
        self._arrays: dict[str, NDArray[Any]] = {}

    def run(self) -> Imported:
        """Inputs and weights, the operations, the output."""
        module, signature = self._program.graph_module, self._program.graph_signature
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        specs = list(zip(placeholders, signature.input_specs, strict=True))
        self._declare_symbols([node for node, spec in specs if spec.kind.name == "USER_INPUT"])
        results = self._module(module, [self._given(node, spec) for node, spec in specs])
        for spec in signature.output_specs:
            if spec.kind.name != "USER_OUTPUT":
                raise UnsupportedError(
                    f"the program changes {spec.target!r} ({spec.kind.name.lower()}), which LLMIR cannot"
                )
        self._graph.add("output", [value for value in _flat(results) if isinstance(value, Value)])
        self._drop_unused_weights()
        return Imported(self._graph, self._arrays)

    def _drop_unused_weights(self) -> None:
        for operation in list(self._graph.operations):
            if operation.kind == "weight" and not operation.result.uses:
                self._graph.erase(operation)
                del self._arrays[operation.string("tensor")]

    def _declare_symbols(self, inputs: Sequence[Any]) -> None:
        ranges = {str(symbol): bounds for symbol, bounds in self._program.range_constraints.items()}
        for node in inputs:
            shape: Sequence[Any] = getattr(node.meta["val"], "shape", ())
            for axis, size in enumerate(shape):
                symbol = "" if isinstance(size, int) else str(size.node.expr)
                if not symbol or self._to.knows(symbol) or symbol not in ranges:
                    continue
                given = self._names.get(node.name, ())
                name = given[axis] if axis < len(given) else f"{node.name}.{axis}"
                self._to.add_symbol(symbol, Dim(name, *_bounds(ranges[symbol])))

    def _given(self, node: Any, spec: Any) -> Any:
        """The value of a placeholder: a weight, an input, or the constant that the program was exported with."""
        self._to.name = node.name
        if spec.kind.name in _WEIGHTS:
            return self._weight(node, spec.target)
        if spec.kind.name != "USER_INPUT":
            raise UnsupportedError(f"an input of kind {spec.kind.name.lower()} ({node.name})")
        if not hasattr(node.meta["val"], "dtype"):
            return node.meta["val"]
        tensor_type = self._to.tensor_type(node.meta["val"])
        return self._graph.add("input", (), {"name": node.name}, [(node.name, tensor_type)]).result

    def _weight(self, node: Any, target: str) -> Value | Empty:
        tensor_type = self._to.tensor_type(node.meta["val"])
        if 0 in tensor_type.dims:
            return Empty()
        tensors = self._program.state_dict if target in self._program.state_dict else self._program.constants
        tensor = tensors[target].detach().cpu()
        self._arrays[target] = (tensor.float() if tensor_type.dtype is DType.BF16 else tensor).contiguous().numpy()
        return self._graph.add("weight", (), {"tensor": target}, [(node.name, tensor_type)]).result

    def _module(self, module: Any, arguments: Sequence[Any]) -> Any:
        """What a piece of the program makes of its arguments."""
        given, values = iter(arguments), dict[Any, Any]()
        for node in module.graph.nodes:
            match node.op:
                case "placeholder":
                    values[node] = next(given)
                case "get_attr":
                    values[node] = getattr(module, node.target)
                case "output":
                    return _resolved(node.args[0], values)
                case _:
                    kwargs = {name: _resolved(part, values) for name, part in node.kwargs.items()}
                    values[node] = self._node(node, _resolved(node.args, values), kwargs)
        raise AssertionError("a program without an output node")

    def _node(self, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = str(node.target)
        if name in _INLINED:
            return self._inlined(name, args)
        if name in _GUARDS:
            return None
        if _is_python(node) and isinstance(args[0], tuple | list):
            return node.target(*args)
        if name in _SIZES or _is_python(node):
            return node.meta["val"]
        return self._operation(node, name, args, kwargs)

    def _inlined(self, name: str, args: Sequence[Any]) -> Any:
        if name == "wrap_with_autocast" and args[2]:
            raise UnsupportedError("autocast: export the model outside of it")
        at = _INLINED[name]
        return self._module(args[at], args[at + 1 :])

    def _operation(self, node: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._to.name = node.name
        schema = node.target._schema.arguments
        arguments = {**{given.name: value for given, value in zip(schema, args, strict=False)}, **kwargs}
        defaults = {given.name: given.default_value for given in schema if given.has_default_value()}
        stated = [self._to.tensor_type(tensor) for tensor in _flat(node.meta.get("val")) if hasattr(tensor, "dtype")]
        if any(0 in tensor_type.dims for tensor_type in stated):
            return Empty()
        call = Call(name, arguments, defaults, stated)
        try:
            made = RULES[name](call, self._to)
        except IrError as error:
            raise UnsupportedError(f"{name} ({node.name}): {error}") from error
        call.check_all_read()
        for value, wanted in zip(_flat(made), stated, strict=True) if made is not None else ():
            assert _fits(value.type, wanted), (name, value, str(wanted))
        return made


def _fits(given: TensorType, wanted: TensorType) -> bool:
    same_shape = given.rank == wanted.rank and all(map(same, given.dims, wanted.dims))
    return same_shape and given.dtype is wanted.dtype


def _bounds(bounds: Any) -> tuple[int, int]:
    """Torch's range of a symbol, from 1: no dimension is empty. An end it leaves open is MAX_EXTENT."""
    lower = max(int(bounds.lower), 1)
    return lower, int(bounds.upper) if bounds.upper.is_Integer else max(lower, MAX_EXTENT)


def _resolved(argument: Any, values: Mapping[Any, Any]) -> Any:
    """An argument with values in place of nodes."""
    if isinstance(argument, tuple | list):
        return tuple(_resolved(part, values) for part in cast("Sequence[Any]", argument))
    return values[argument] if hasattr(argument, "op") else argument


def _flat(values: Any) -> list[Any]:
    if isinstance(values, tuple | list):
        return [leaf for part in cast("Sequence[Any]", values) for leaf in _flat(part)]
    return [values]
