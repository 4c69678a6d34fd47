"""Which operations work element by element: a layout or a device that all operands share is that of the result."""

from __future__ import annotations

ELEMENTWISE = frozenset(
    ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "silu",
     "gelu", "floor", "not", "cast", "add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "less",
     "less_equal", "greater", "greater_equal", "and", "or", "select")
)  # fmt: skip
