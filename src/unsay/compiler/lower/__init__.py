"""LLMIR to AVM: the program, the packing plan of its weights, the arena of its activations."""

from unsay.compiler.lower.lower import Lowered, lower

__all__ = ["Lowered", "lower"]
