"""An outside judge of two graphs: the same outputs at small sizes, for random inputs and weights.

Over residues mod 65521, or floats where infinity or no number at all is part of the matter. Nothing of verify/ is used,
so that it may be held against what is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from unsay.compiler.dialect.domains import CONCRETE, FIELD, FLOAT, PRIME, Array, Domain, FieldDomain
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.ir.dims import Dim
from unsay.compiler.ir.evaluate import evaluate
from unsay.isa.formats import DType


class _Unrounded(FieldDomain):
    """Residues as real numbers are: storing them in a narrower type leaves them."""

    def round(self, x: Array, _dtype: DType) -> Array:
        return x


DOMAINS: dict[str, Domain] = {
    "canonicalise": FLOAT, "fuse_attention": FLOAT, "fold_constants": FLOAT, "propagate_precision": _Unrounded(),
}  # fmt: skip
"""Where a pass is not judged over residues, which know no infinity and take powers and rounding for any function."""


def same_outputs(one: Graph, other: Graph, pass_name: str) -> bool:
    """Whether both graphs give the same outputs; floats up to the rounding of sums."""
    domain, sizes = DOMAINS.get(pass_name, FIELD), _sizes(one)
    inputs, weights = _outside(one, sizes, domain), _outside(one, sizes, domain, "weight")
    weights |= {name: array for name, array in _outside(other, sizes, domain, "weight").items() if name not in weights}
    first, second = (evaluate(graph, inputs, weights, domain) for graph in (one, other))
    return len(first) == len(second) and all(_same(a, b, domain) for a, b in zip(first, second, strict=True))


def _same(a: Array, b: Array, domain: Domain) -> bool:
    if a.shape != b.shape:
        return False
    if domain is not FLOAT:
        return np.array_equal(a, b)
    known = ~(np.isnan(a) | np.isnan(b))  # a row of scores of which none is kept has no softmax
    return np.allclose(a[known], b[known], 1e-4, 1e-4)


def _sizes(graph: Graph) -> dict[str, int]:
    free = [dim for dim in graph.dims.values() if dim.formula is None]
    ranges = [range(max(dim.low, min(2, dim.high)), min(dim.high, 64) + 1) for dim in free]
    for chosen in itertools.product(*ranges):
        sizes = {dim.name: size for dim, size in zip(free, chosen, strict=True)}
        for dim in graph.dims.values():
            if dim.formula is not None:
                sizes[dim.name] = dim.formula.value(sizes)
        if all(constraint.holds(sizes) for constraint in graph.constraints):
            return sizes
    raise AssertionError(f"no small sizes for {graph.name}")


def _outside(graph: Graph, sizes: Mapping[str, int], domain: Domain, kind: str = "input") -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for operation in graph.operations:
        if operation.kind == kind:
            name = str(operation.attributes["tensor" if kind == "weight" else "name"])
            arrays[name] = _random(operation, sizes, name, domain)
        elif operation.kind == "tokens" and kind == "input":
            arrays["tokens"] = _random(operation, sizes, "tokens", domain)
        elif operation.kind == "select_rows" and kind == "input":
            arrays["rows"] = np.arange(sizes["R"]) % sizes["T"]
    return arrays


def _random(operation: Operation, sizes: Mapping[str, int], name: str, domain: Domain) -> np.ndarray:
    """The same for the same name and type, whatever else the graph has."""
    shape = [sizes[dim.name] if isinstance(dim, Dim) else dim for dim in operation.result.type.dims]
    random = np.random.default_rng(list(name.encode()))
    concrete = CONCRETE.get(operation.result.type.dtype)
    if concrete is not None:
        return random.integers(0, 2, shape).astype(concrete)
    return random.standard_normal(shape) if domain is FLOAT else random.integers(0, PRIME, shape)
