"""A signal at every place where one can come: CPython 3.11 looks for signals when a function of Python is entered or a
generator goes on, behind a call of anything else, and when it jumps back."""

from __future__ import annotations

import gc
import opcode
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import unsay

_SOURCES = str(Path(unsay.__file__).parent)
_CALLS = {opcode.opmap[name] for name in ("PRECALL", "CALL", "CALL_FUNCTION_EX")}
_CALL = opcode.opmap["CALL"]


def interrupted() -> None:
    """What Python does at Ctrl-C."""
    raise KeyboardInterrupt


class Cut:
    """Runs one call, and a handler at its `number`-th place, counted from 0, in the library's frames.

    num_passed: places met.
    """

    def __init__(self, number: int, handler: Callable[[], object] = interrupted) -> None:
        self.num_passed = 0
        self._number = number
        self._handler = handler
        self._before: dict[FrameType, int] = {}
        self._returned: set[FrameType] = set()

    def run(self, call: Callable[[], object]) -> bool:
        """Whether it was cut short by a KeyboardInterrupt."""
        sys.settrace(self._enter)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
            self._before.clear()
            self._returned.clear()
        return False

    def _enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(_SOURCES) or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._pass()
        return self._follow

    def _follow(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "opcode":
            place = frame.f_lasti
            if self._is_looked_for(frame, self._before.get(frame, -2), place):
                self._pass()
            self._before[frame] = place
            self._returned.discard(frame)
        elif event == "return" and frame.f_back is not None and _is_entered_directly(frame):
            self._returned.add(frame.f_back)
        return self._follow

    def _is_looked_for(self, frame: FrameType, before: int, place: int) -> bool:
        """Between the instruction at `before` and the one at `place`."""
        if before < 0:
            return False
        code = frame.f_code.co_code
        if code[before] in _CALLS:
            return code[place] != _CALL and frame not in self._returned
        return place < before

    def _pass(self) -> None:
        self.num_passed += 1
        if self.num_passed == self._number + 1:
            self._handler()


def _is_entered_directly(frame: FrameType) -> bool:
    """Whether the interpreter returns from it to a frame of Python without a look for signals."""
    name = frame.f_code.co_name
    return not (name.startswith("__") or name in ("<genexpr>", "<lambda>"))


def every_cut(make: Callable[[], Any], do: Callable[[Any], object], step: int = 1) -> Iterator[tuple[int, Any]]:
    """What `make` made after `do` was cut short at each place in turn (each `step`-th); ends with one that has no such
    place. Whether the interrupt came out tells nothing: one into a generator that is collected does not."""
    number = 0
    while True:
        made = make()
        cut = Cut(number)
        cut.run(lambda made=made: do(made))
        gc.collect(0)
        yield number, made
        if cut.num_passed <= number:
            return
        number += step
