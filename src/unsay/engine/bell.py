"""Where threads sleep until something has changed."""

from __future__ import annotations

from _thread import LockType, allocate_lock


class Bell:
    """Used under one lock, except for the sleep. A KeyboardInterrupt may come anywhere, unlike into a Condition, which
    may lose its lock to one."""

    def __init__(self) -> None:
        self._sleepers: list[LockType] = []

    def listen(self) -> LockType:
        """What to acquire, the lock left, to sleep until the next ring."""
        sleeper = allocate_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        return sleeper

    def ring(self) -> None:
        """Wake everybody who listened."""
        for sleeper in self._sleepers:
            if sleeper.locked():
                sleeper.release()
        self._sleepers.clear()
