"""What a forked child begins anew: of its parent's threads it has one, and none of the others gives a lock back.

Everything else stays: memory is a copy as of the fork, which comes between two instructions of the other threads, where
a KeyboardInterrupt may come too (docs/decisions/015).
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol


class Owner(Protocol):
    """Has locks, or knows of threads."""

    def begin_anew(self) -> None:
        """In the child, before anything else runs there."""
        ...


_owners: set[weakref.ref[Owner]] = set()


def begins_anew(owner: Owner) -> None:
    """Have `begin_anew` of this one called in every child that is forked while it lives."""
    _owners.add(weakref.ref(owner, _owners.discard))


def free(*locks: Any) -> None:
    """Locks of `threading` as if nobody had taken them."""
    for lock in locks:
        lock._at_fork_reinit()


def _in_child() -> None:
    for reference in list(_owners):
        owner = reference()
        if owner is not None:
            owner.begin_anew()


os.register_at_fork(after_in_child=_in_child)
