"""What each ATen operation of an exported program is in LLMIR, one row an operation.

A rule gets a `Call` and a `Builder` and returns the value, or a tuple of values. Source of the meanings: the schemas
and documentation of torch 2.13.
"""

from __future__ import annotations

from unsay.compiler.frontend.torch_call import Rule
from unsay.compiler.frontend.torch_math import MATH
from unsay.compiler.frontend.torch_products import PRODUCTS
from unsay.compiler.frontend.torch_shapes import SHAPES

RULES: dict[str, Rule] = {**MATH, **SHAPES, **PRODUCTS}
