"""The number systems that operations are given meaning over (dialect/semantics.py).

    FLOAT   NumPy floats: running a graph. f16, bf16 and quantised values are f32 arrays, rounded after each operation.
    FIELD   integers mod 65521, functions by hashing: two graphs that are equal as polynomials are equal here, and two
            that are not differ at random inputs with a probability of all but degree / 65521 (Schwartz, Zippel).
            Order is that of a fixed permutation of the field, so that max(x, 0) is not x.

In every domain integers and bools are concrete NumPy arrays, so that an index is an index. `Domain` itself does what
NumPy does for arrays of any objects with +, -, *, /, so that a domain of objects overrides little (Z3 reals: verify/).
"""

from unsay.compiler.dialect.domain import CONCRETE, Array, Domain, Number, is_concrete
from unsay.compiler.dialect.field_domain import FIELD, PRIME, FieldDomain
from unsay.compiler.dialect.float_domain import FLOAT, FloatDomain, round_bf16

__all__ = [
    "CONCRETE", "FIELD", "FLOAT", "PRIME", "Array", "Domain", "FieldDomain", "FloatDomain", "Number", "is_concrete",
    "round_bf16",
]  # fmt: skip
