"""What each operation means, once, over any domain of numbers (dialect/domains.py).

A row takes the domain, the operation and its operands as arrays, and gives its results: shapes are those of NumPy,
so a graph must be at fixed sizes (ir/specialise.py). Arrays hold values in the logical order of their dims whatever
the layout, so that `reorder` is the identity. What a graph is given from outside has no row: `weight`, `input`,
`tokens` (ir/evaluate.py), and `size`, which a fixed size has made a constant.

The step operations mean what docs/numerics.md says up to rounding and storage: their `attention` is that of one
sequence whose first token is here, caches hold f32, and sums are in any order. `select_rows` has one operand more, the
rows that are wanted.
"""

from __future__ import annotations

from unsay.compiler.dialect.fused_semantics import FUSED_SEMANTICS
from unsay.compiler.dialect.meaning import Meaning
from unsay.compiler.dialect.step_semantics import STEP_SEMANTICS
from unsay.compiler.dialect.tensor_semantics import TENSOR_SEMANTICS

__all__ = ["FROM_OUTSIDE", "SEMANTICS", "Meaning"]

SEMANTICS: dict[str, Meaning] = {**TENSOR_SEMANTICS, **STEP_SEMANTICS, **FUSED_SEMANTICS}

FROM_OUTSIDE = frozenset({"weight", "input", "tokens", "size"})
"""Operations without a row."""
