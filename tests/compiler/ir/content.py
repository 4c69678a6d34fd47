"""What graphs say, as plain values to compare."""

from unsay.compiler.ir.core import Graph


def content(graph: Graph) -> object:
    """Everything but where it was said."""
    operations = [
        (op.kind, [v.name for v in op.operands], op.attributes, [(v.name, v.type) for v in op.results])
        for op in graph.operations
    ]
    return graph.name, graph.dims, graph.constraints, graph.sema, operations


def meaning(graph: Graph) -> object:
    """Everything but the names of values, which are numbers in the order of definition."""
    values = [value for operation in graph.operations for value in operation.results]
    number = {value: index for index, value in enumerate(values)}
    operations = [
        (op.kind, [number[v] for v in op.operands], op.attributes, [v.type for v in op.results])
        for op in graph.operations
    ]
    return graph.name, graph.dims, graph.constraints, graph.sema, operations
