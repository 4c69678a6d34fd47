"""Terms over a domain: what dialect/semantics.py says of each operation, on arrays as they lie in memory.

In memory the heads of a paired layout are reordered, so that pairs half a head apart are adjacent: there `rope` turns
adjacent pairs, and a product of q and k is a sum in another order. That both are right is what the axioms of
pair_rope_rows say. A cache is (k, v) of the tokens before the step, [P, K*D] each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.neural_semantics import attend
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.core import Operation, Value
from unsay.compiler.ir.types import TensorType, paired_head_dim
from unsay.compiler.verify.terms import Term, reachable

Meant: TypeAlias = Any
"""An array; of a cache, two."""


def evaluate_terms(roots: Sequence[Term], leaves: Mapping[int, Meant], domain: Domain) -> list[Meant]:
    """What terms come to; `leaves` are given by the number of their term."""
    values: dict[int, Meant] = dict(leaves)
    for term in reachable(roots, leaves):
        operands = [values[operand.number] for operand in term.operands]
        special = SPECIAL.get(term.kind)
        values[term.number] = special(term, operands, domain) if special else _by_table(term, operands, domain)
    return [values[root.number] for root in roots]


def parts_of(value: Meant) -> list[Array]:
    """The arrays of a value."""
    return [*value] if type(value) is tuple else [value]


def _by_table(term: Term, operands: Sequence[Array], domain: Domain, **changed: str) -> Array:
    """The result by SEMANTICS, rounded to its element type; `changed` attributes are put in place of the term's."""
    operation = as_operation(term, changed)
    result = SEMANTICS[term.kind](domain, operation, operands)[term.index]
    return domain.round(result, term.type.dtype)


def as_operation(term: Term, changed: Mapping[str, str]) -> Operation:
    """The operation a term stands for, with operands of its types."""
    types = [operand.type for operand in term.operands if not _is_cache(operand)]
    operation = Operation(term.kind, tuple(map(_value, types)), {**term.attributes, **changed})
    operation.results = (Value("y", term.type, operation),)
    return operation


def _value(tensor_type: TensorType) -> Value:
    return Value("x", tensor_type, Operation("input", (), {}))


def _is_cache(term: Term) -> bool:
    return term.kind in ("cache", "append", "pair_cache", "unpair_cache")


def paired_order(num_columns: int, head_dim: int) -> Array:
    """Where each element of a paired layout lies in the order of the model file: 0, D/2, 1, D/2 + 1, ... each head."""
    heads = np.arange(num_columns).reshape(-1, 2, head_dim // 2)
    return heads.swapaxes(1, 2).reshape(-1)


def _paired(x: Array, term: Term, axis: int) -> Array:
    return x.take(paired_order(x.shape[axis], _head_dim(term)), axis)


def _unpaired(x: Array, term: Term, axis: int) -> Array:
    return x.take(np.argsort(paired_order(x.shape[axis], _head_dim(term))), axis)


def _head_dim(term: Term) -> int:
    head_dim = term.attributes["head_dim"]
    assert isinstance(head_dim, int), term
    return head_dim


def _append(_term: Term, operands: Sequence[Meant], _domain: Domain) -> Meant:
    (past_k, past_v), k, v = operands
    return np.concatenate((past_k, k)), np.concatenate((past_v, v))


def _attention(term: Term, operands: Sequence[Meant], domain: Domain) -> Array:
    """The rows of the step, of an attention over the past and the step; the queries of the past do not matter."""
    (past_k, past_v), q, k, v = operands
    past_q = np.repeat(q[:1], len(past_k), 0)
    whole = [np.concatenate(pair) for pair in ((past_q, q), (past_k, k), (past_v, v))]
    return _by_table(term, whole, domain)[len(past_k) :]


def _rope(term: Term, operands: Sequence[Array], domain: Domain) -> Array:
    if paired_head_dim(term.operands[0].type.layout) is None:
        return _by_table(term, operands, domain)
    return _by_table(term, operands, domain, pairing="adjacent")


def _scaled(term: Term, operands: Sequence[Array], domain: Domain) -> Array:
    factor = term.attributes["factor"]
    assert isinstance(factor, float), term
    return domain.mul(operands[0], factor)


SPECIAL: dict[str, Callable[[Term, Sequence[Meant], Domain], Meant]] = {
    "pair_rows": lambda term, operands, _d: _paired(operands[0], term, 0),
    "pair_columns": lambda term, operands, _d: _paired(operands[0], term, -1),
    "unpair_columns": lambda term, operands, _d: _unpaired(operands[0], term, -1),
    "pair_cache": lambda term, operands, _d: (_paired(operands[0][0], term, -1), operands[0][1]),
    "unpair_cache": lambda term, operands, _d: (_unpaired(operands[0][0], term, -1), operands[0][1]),
    "append": _append,
    "scaled": _scaled,
    "masked": lambda _term, operands, domain: domain.select(operands[1], operands[0], -math.inf),
    "attend": lambda _term, operands, domain: attend(domain, *operands),
    "attention": _attention,
    "rope": _rope,
    "select_rows": lambda term, operands, _d: operands[0][: int(str(term.type.dims[0]))],
    "output": lambda _term, operands, _d: operands[0],
}
"""What the functions that only terms have come to, and operations that lie in memory otherwise than their dims say."""
