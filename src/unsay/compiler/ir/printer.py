"""LLMIR as text. `parser.parse(print_graph(graph))` gives the same graph back.

// a comment runs to the end of its line
graph llama(T: 1..512, R: 1..64) {
  %tokens = tokens() : tensor<T x i32>
  %token_embd = weight() {name = "token_embd.weight"} : tensor<49152 x 576 x q8_0>
  %x = embed(%tokens, %token_embd) : tensor<T x 576 x f32>
  %q, %k, %v = qkv(%n, %wq, %wk, %wv) {head_dim = 64, ...} : tensor<T x 576 x f32>, tensor<T x 192 x f32>, ...
  output(%logits)
}

graph      'graph' NAME '(' [dim {',' dim}] ')' '{' {operation} '}'
dim        NAME ':' INT '..' INT
operation  [value {',' value} '='] NAME '(' [value {',' value}] ')' [attributes] [':' type {',' type}]
value      '%' NAME
attributes '{' NAME '=' (INT | FLOAT | STRING) {',' ...} '}'         a FLOAT has a point or an exponent
type       'tensor' '<' {(INT | NAME) 'x'} NAME {',' ('layout' | 'device') '=' STRING} '>'
NAME       [A-Za-z_] then letters, digits, '_', '.', '-';  after '%' it may begin with any of these
STRING     as in JSON
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value


def print_graph(graph: Graph) -> str:
    """The text of a graph, ending in a newline."""
    dims = ", ".join(f"{dim.name}: {dim.low}..{dim.high}" for dim in graph.dims.values())
    lines = [f"  {print_operation(operation)}\n" for operation in graph.operations]
    return f"graph {graph.name}({dims}) {{\n{''.join(lines)}}}\n"


def print_operation(operation: Operation) -> str:
    """One operation on one line."""
    results = f"{_values(operation.results)} = " if operation.results else ""
    attributes = ", ".join(f"{name} = {_attribute(value)}" for name, value in sorted(operation.attributes.items()))
    braces = f" {{{attributes}}}" if attributes else ""
    types = ", ".join(str(value.type) for value in operation.results)
    return f"{results}{operation.kind}({_values(operation.operands)}){braces}" + (f" : {types}" if types else "")


def _values(values: Iterable[Value]) -> str:
    return ", ".join(f"%{value.name}" for value in values)


def _attribute(value: AttributeValue) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
