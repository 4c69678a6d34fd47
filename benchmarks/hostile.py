"""What it costs to refuse a model file: each hostile file of the tests, and the real header cut at every 1,000th byte.

Run: python -m benchmarks.hostile [--model M] [--repeats N] [--json]      (about a minute)

CPU milliseconds to the error, the median of some (a cut is made once), and the bytes Python allocates meanwhile, traced
at every hundredth cut. Wanted: at most 100 ms, and memory that does not depend on what a file claims.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Report, median_cpu_ms, parser
from tests.compiler.frontend.hostile_files import HOSTILE, LARGEST
from unsay import hub
from unsay.compiler.frontend.gguf import open_gguf
from unsay.errors import ModelFileError


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one file: whether it was refused, CPU milliseconds, bytes allocated at the peak."""

    name: str
    is_refused: bool
    cpu_ms: float
    peak_bytes: int


def main() -> None:
    """Print the worst of each kind."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m", help="whose header to cut")
    made.add_argument("--repeats", type=int, default=5)
    args = made.parse_args()
    report = Report(args)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "hostile.gguf"
        for what, files in (("hostile files", HOSTILE), ("largest headers", LARGEST)):
            _sum_up(report, what, [_written(path, *file, args.repeats) for file in files.items()])
        _sum_up(report, "truncations", _truncations(hub.resolve(args.model), path))


def _written(path: Path, name: str, content: bytes, repeats: int) -> Cost:
    path.write_bytes(content)
    return _cost(path, name, repeats)


def _truncations(model: Path, path: Path) -> list[Cost]:
    """Of the header of a real model, shorter and shorter; each timed once, since there are many."""
    header = min(tensor.offset for tensor in open_gguf(model).tensors.values())
    with model.open("rb") as file:
        path.write_bytes(file.read(header))
    costs: list[Cost] = []
    for size in range((header - 1) // 1000 * 1000, -1, -1000):
        os.truncate(path, size)
        costs.append(_cost(path, f"{size} bytes", 1, traces_memory=size % 100_000 == 0))
    return costs


def _cost(path: Path, name: str, repeats: int, traces_memory: bool = True) -> Cost:
    """Tracing memory takes ten times as long as reading the file does."""
    cpu_ms = median_cpu_ms(lambda: _is_refused(path), repeats)
    if not traces_memory:
        return Cost(name, _is_refused(path), cpu_ms, 0)
    tracemalloc.start()
    is_refused = _is_refused(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Cost(name, is_refused, cpu_ms, peak_bytes)


def _is_refused(path: Path) -> bool:
    with contextlib.suppress(ModelFileError):
        open_gguf(path)
        return False
    return True


def _sum_up(report: Report, what: str, costs: list[Cost]) -> None:
    ordered = sorted(costs, key=lambda cost: cost.cpu_ms)
    largest = max(costs, key=lambda cost: cost.peak_bytes)
    slowest = ordered[-1]
    report.add(
        what, files=len(costs), refused=sum(cost.is_refused for cost in costs),
        median_cpu_ms=ordered[len(costs) // 2].cpu_ms, slowest_cpu_ms=slowest.cpu_ms, slowest=slowest.name,
        peak_bytes=largest.peak_bytes, largest=largest.name,
    )  # fmt: skip


if __name__ == "__main__":
    main()
