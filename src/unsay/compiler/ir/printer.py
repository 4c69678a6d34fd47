"""LLMIR as text. `parser.parse(print_graph(graph))` gives the same graph back.

// a comment runs to the end of its line
graph llama(T: 1..512, R: 1..64) where T % 16 == 0 sema {dynamic_batch = "R"} {
  %tokens = tokens() : tensor<T x i32>
  %token_embd = weight() {tensor = "token_embd.weight"} : tensor<49152 x 576 x q8_0>
  %x = embed(%tokens, %token_embd) : tensor<T x 576 x f32>
  %q, %k, %v = qkv(%n, %wq, %wk, %wv) {head_dim = 64, ...} : tensor<T x 576 x f32>, tensor<T x 192 x f32>, ...
  output(%logits)
}

graph      'graph' NAME '(' [dim {',' dim}] ')' ['where' constraint {',' constraint}] ['sema' attributes]
           '{' {operation} '}'
dim        NAME ':' INT '..' INT ['=' formula]                       a formula names dims declared before
constraint (formula | '(' formula ')' '%' INT | NAME '%' INT) RELATION formula    == != <= < >= >
formula    ['-'] term {('+' | '-') term};  term is (INT | NAME) {'*' (INT | NAME)}
operation  [value {',' value} '='] NAME '(' [value {',' value}] ')' [attributes] [':' type {',' type}]
value      '%' NAME
attributes '{' NAME '=' attribute {',' ...} '}'
attribute  INT | FLOAT | STRING | 'true' | 'false' | '[' [INT {',' INT}] ']' | '[' FLOAT {',' FLOAT} ']'
type       'tensor' '<' {(INT | NAME) 'x'} NAME {',' ('layout' | 'device') '=' STRING} '>'
NAME       [A-Za-z_] then letters, digits, '_', '.', '-';  after '%' it may begin with any of these
FLOAT      has a point or an exponent, or is inf or -inf
STRING     as in JSON
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.dims import Dim


def print_graph(graph: Graph) -> str:
    """The text of a graph, ending in a newline."""
    where = f" where {print_constraints(graph)}" if graph.constraints else ""
    sema = f" sema {_attributes(graph.sema)}" if graph.sema else ""
    lines = [f"  {print_operation(operation)}\n" for operation in graph.operations]
    return f"graph {graph.name}({print_dims(graph)}){where}{sema} {{\n{''.join(lines)}}}\n"


def print_dims(graph: Graph) -> str:
    """The dimensions of a graph, as in its head."""
    return ", ".join(map(print_dim, graph.dims.values()))


def print_constraints(graph: Graph) -> str:
    """The constraints of a graph, as in its head."""
    return ", ".join(map(str, graph.constraints))


def print_operation(operation: Operation) -> str:
    """One operation on one line."""
    results = f"{_values(operation.results)} = " if operation.results else ""
    braces = f" {_attributes(operation.attributes)}" if operation.attributes else ""
    types = ", ".join(str(value.type) for value in operation.results)
    return f"{results}{operation.kind}({_values(operation.operands)}){braces}" + (f" : {types}" if types else "")


def _values(values: Iterable[Value]) -> str:
    return ", ".join(f"%{value.name}" for value in values)


def print_dim(dim: Dim) -> str:
    """A dimension as a graph declares it."""
    return f"{dim.name}: {dim.low}..{dim.high}" + (f" = {dim.formula}" if dim.formula else "")


def _attributes(attributes: Mapping[str, AttributeValue]) -> str:
    return f"{{{', '.join(f'{name} = {print_attribute(value)}' for name, value in sorted(attributes.items()))}}}"


def print_attribute(value: AttributeValue) -> str:
    """One attribute value."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(print_attribute, value))}]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)
