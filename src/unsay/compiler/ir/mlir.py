"""LLMIR as MLIR in generic form. `from_mlir(to_mlir(graph))` gives the same graph (ir/mlir_reader.py).

    "builtin.module"() ({
      "llmir.graph"() ({
        %x = "llmir.weight"() {tensor = "x"} : () -> tensor<?x64xf32, {dims = ["T"]}>
        %n = "llmir.quantise"(%x) {output = "q8w"} : (tensor<?x64xf32, {dims = ["T"]}>) -> tensor<?x64x!llmir.q8w, ..>
        "llmir.output"(%n) : (tensor<?x64x!llmir.q8w, {dims = ["T"]}>) -> ()
      }) {dims = "T: 1..512", name = "g", sema = {dynamic_batch = "T"}, where = "T % 16 == 0"} : () -> ()
    }) : () -> ()

The encoding of a tensor names its dynamic dimensions, and its layout and device where they are not the default.
Source: MLIR language reference, "Generic operation syntax", "Builtin attributes".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import TypeAlias

from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.printer import print_constraints, print_dims
from unsay.compiler.ir.types import DTYPES, ROW, Dim, TensorType, dtype_name
from unsay.isa.formats import DType

BUILTIN = {DType.BOOL: "i1"} | {DTYPES[name]: name for name in ("f32", "f16", "bf16", "f64", "i32", "i64", "i8")}
"""Element types that MLIR has; the others are `!llmir.NAME`."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_VALUE_NAME = re.compile(r"[A-Za-z$.\-][A-Za-z0-9_$.\-]*")

Attribute: TypeAlias = "AttributeValue | dict[str, Attribute] | tuple[str, ...]"


def to_mlir(graph: Graph) -> str:
    """The text of a graph, ending in a newline."""
    head: dict[str, Attribute] = {"name": graph.name, "dims": print_dims(graph)}
    if graph.constraints:
        head["where"] = print_constraints(graph)
    if graph.sema:
        head["sema"] = {**graph.sema}
    lines = [f"    {_operation(operation)}\n" for operation in graph.operations]
    body = f'  "llmir.graph"() ({{\n{"".join(lines)}  }}) {_dictionary(head)} : () -> ()\n'
    return f'"builtin.module"() ({{\n{body}}}) : () -> ()\n'


def _operation(operation: Operation) -> str:
    results = f"{', '.join(map(_value, operation.results))} = " if operation.results else ""
    attributes = f" {_dictionary(operation.attributes)}" if operation.attributes else ""
    takes = ", ".join(_type(value.type) for value in operation.operands)
    gives = ", ".join(_type(value.type) for value in operation.results)
    gives = gives if len(operation.results) == 1 else f"({gives})"
    operands = ", ".join(map(_value, operation.operands))
    return f'{results}"llmir.{operation.kind}"({operands}){attributes} : ({takes}) -> {gives}'


def _value(value: Value) -> str:
    """A name as it is, or after an underscore where MLIR allows none such, or it begins with one."""
    return f"%{value.name}" if _VALUE_NAME.fullmatch(value.name) else f"%_{value.name}"


def _type(tensor_type: TensorType) -> str:
    extents = "".join("?x" if isinstance(extent, Dim) else f"{extent}x" for extent in tensor_type.dims)
    encoding: dict[str, Attribute] = {}
    names = tuple(extent.name for extent in tensor_type.dims if isinstance(extent, Dim))
    if names:
        encoding["dims"] = names
    if tensor_type.layout != ROW:
        encoding["layout"] = tensor_type.layout
    if tensor_type.device != "cpu":
        encoding["device"] = tensor_type.device
    element = BUILTIN.get(tensor_type.dtype) or f"!llmir.{dtype_name(tensor_type.dtype)}"
    return f"tensor<{extents}{element}{f', {_dictionary(encoding)}' if encoding else ''}>"


def _dictionary(attributes: Mapping[str, Attribute]) -> str:
    entries = (f"{_key(name)} = {_attribute(value)}" for name, value in sorted(attributes.items()))
    return f"{{{', '.join(entries)}}}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _attribute(value: Attribute) -> str:
    if isinstance(value, dict):
        return _dictionary(value)
    if isinstance(value, tuple):
        return _list(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{_number(value)} : {'i64' if isinstance(value, int) else 'f64'}"


def _list(items: tuple[int, ...] | tuple[float, ...] | tuple[str, ...]) -> str:
    """Numbers in an array, strings one by one; so too what has infinities, which xDSL has no array of."""
    if any(isinstance(item, str) or item - item != 0 for item in items):
        return f"[{', '.join(map(_attribute, items))}]"
    kind = "f64" if items and isinstance(items[0], float) else "i64"
    numbers = ", ".join(_number(item) for item in items if not isinstance(item, str))
    return f"array<{kind}{': ' if numbers else ''}{numbers}>"


def _number(value: float) -> str:
    """A float has a point; what is not finite is its bits."""
    if isinstance(value, int):
        return str(value)
    if value - value != 0:
        return f"0x{struct.pack('>d', value).hex().upper()}"
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}{mark}{exponent}"


def _string(text: str) -> str:
    """Printable ASCII as it is, any other byte of UTF-8 as two hexadecimal digits."""
    encoded = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in encoded) + '"'
