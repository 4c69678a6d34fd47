"""Whether somebody else used the cores while a figure was taken, and taking it again if so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")

_MAX_SHARE = 0.1
_LOOK_S = 0.2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4)
"""idle and iowait of /proc/stat; guest times, from 8 on, are in user and nice already."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of the cores' work, by anybody and by the processes looked at, up to a time."""

    at_s: float
    everybody_s: float
    ours_s: float


def share_of_others(before: Moment, after: Moment, cores: int) -> float:
    """What part of the cores' time went to other processes, 0 to 1."""
    others = (after.everybody_s - before.everybody_s) - (after.ours_s - before.ours_s)
    return max(0.0, others / (cores * (after.at_s - before.at_s)))


class Watch:
    """Takes figures in moments when the machine does nothing else, as long as such moments come.

    is_realtime: all threads of who is measured come before everybody else's (needs root): where the machine never is
    idle. patience_s: how long to wait for one; after that a figure is taken as it comes, and its share says how
    disturbed it was.
    """

    def __init__(self, patience_s: float, is_realtime: bool = False) -> None:
        self._patience_s, self._is_realtime = patience_s, is_realtime
        self._cores = os.cpu_count() or 1

    def undisturbed(self, action: Callable[[], T], pids: Iterable[int]) -> tuple[T, float]:
        """The result, and the share of the cores that others had meanwhile."""
        own = {os.getpid(), *pids}
        deadline = monotonic() + self._patience_s
        while True:
            self._wait(own, deadline)
            if self._is_realtime:
                _come_first(own)
            before = _moment(own)
            result = action()
            share = share_of_others(before, _moment(own), self._cores)
            if share <= _MAX_SHARE or monotonic() > deadline:
                return result, share

    def _wait(self, own: set[int], deadline: float) -> None:
        while monotonic() < deadline:
            before = _moment(own)
            sleep(_LOOK_S)
            if share_of_others(before, _moment(own), self._cores) <= _MAX_SHARE:
                return


def _come_first(pids: Iterable[int]) -> None:
    """Real-time priority for every thread there is now, also for those that chose another for themselves."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def _moment(pids: Iterable[int]) -> Moment:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = sum(ticks for place, ticks in enumerate(fields) if place not in _IDLE_FIELDS)
    return Moment(monotonic(), busy / _TICKS_PER_S, sum(_process_ticks(pid) for pid in pids) / _TICKS_PER_S)


def _process_ticks(pid: int) -> int:
    """User and system time of a process, its threads and the children it has waited for: fields 14 to 17 of its stat.
    The name before them may hold anything."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in after_name[11:15])
