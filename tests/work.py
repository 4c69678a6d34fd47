"""How much work an action is, as a number that no busy machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def num_lines(action: Callable[[], object]) -> int:
    """Lines of Python that `action` executes in this thread: once for each turn of a loop, loops inside C not counted.

    What the action raises goes on to the caller, uncounted.
    """
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
