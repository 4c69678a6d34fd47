"""Progress bars on stderr. A module of its own, because importing rich takes longer than printing help may."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Bars:
    """A bar for each work that is not done; the display starts with the first report and is cleared at the end."""

    def __init__(self) -> None:
        self._display = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[amount]:>20}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._display.stop()

    def report(self, what: str, done: int, total: int) -> None:
        """A `core.Progress`."""
        if what not in self._tasks:
            self._display.start()
            self._tasks[what] = self._display.add_task(what, total=None, amount="")
        self._display.update(
            self._tasks[what], completed=done, total=total or None, amount=_amount(done, total),
            visible=not 0 < total <= done,
        )  # fmt: skip


def _amount(done: int, total: int) -> str:
    """Counts below 100,000 as they are, larger ones as megabytes."""
    if max(done, total) < 100_000:
        return f"{done}/{total}" if total else str(done)
    megabytes = f"{done / 1e6:.1f}"
    return f"{megabytes}/{total / 1e6:.1f} MB" if total else f"{megabytes} MB"
