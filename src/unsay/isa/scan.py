"""How a row of logits is looked at (docs/numerics.md N12, N13): what the machine code and its caller agree on."""

from __future__ import annotations

PART_TOKENS = 1024
"""Tokens of a row that are summed up in one figure."""

SCAN_TOKENS = 32
"""Tokens the machine code takes at a time: rows are filled up to a multiple with -inf."""
