"""How much one step of a compiled model may take; part of an image's name."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Most tokens (T), logit rows (R) and threads of a step; scratch memory and barriers are sized for them."""

    max_tokens: int
    max_rows: int
    max_threads: int


LIMITS = Limits(max_tokens=512, max_rows=64, max_threads=64)
