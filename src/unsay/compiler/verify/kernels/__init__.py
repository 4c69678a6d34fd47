"""T4: the emitted kernels against docs/numerics.md, integer arithmetic, index arithmetic, memory."""

from __future__ import annotations

from unsay.compiler.verify.obligation import Obligation


def obligations() -> list[Obligation]:
    """All of this tier that do not depend on a model."""
    return []
