"""What starting takes: `unsay --help`, a warm start to the first token, a cold one whole and part by part.

Run: python -m benchmarks.startup [--model M] [--repeats N] [--json]      (about a minute)

Every start is a process of its own, with Python's bytecode cached, as installers leave it. `wall` is from its creation
to its end, `token` to the first token; `cpu` is what it used of all cores, its own processes included. `peak_mb` is the
most memory it had, `apart_mb` the most a process of its own had; of it `file_mb` are the model's and `kv_mb` its keys
and values. Wanted: help within 150 ms, a warm start to the first token within 350 ms, a cold one (repacking and
compiling) within 4 s, at most 120 MB beside the file and KV.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import CLOCK_MONOTONIC, clock_gettime, perf_counter
from typing import Any, NamedTuple, TypeVar

from benchmarks.report import Report, parser
from unsay import hub
from unsay.compiler import pipeline
from unsay.compiler.cache import exclusive, file_digest, file_identity
from unsay.compiler.compile import image_key
from unsay.compiler.limits import LIMITS
from unsay.compiler.lower import lower
from unsay.compiler.passes.pipeline import PIPELINE
from unsay.compiler.verify.spec import verify
from unsay.compiler.verify.validate import run_validated
from unsay.default_target import default_target
from unsay.isa.classes import EXACT
from unsay.isa.kv import AUTO
from unsay.vocabulary import vocabulary_bytes

T = TypeVar("T")

_START = """
import time
marks = {"python": time.clock_gettime(time.CLOCK_MONOTONIC)}
def mark(name): marks[name] = time.clock_gettime(time.CLOCK_MONOTONIC)
import sys
import minijinja; mark("minijinja")
import unsay.model, unsay.runtime.native; mark("unsay")
from pathlib import Path
from unsay import hub
from unsay.compiler.compile import compile_model
from unsay.default_target import default_target
source = hub.resolve(sys.argv[1])
files = compile_model(source, target=default_target()); mark("find")
model = unsay.model.open_image(files); mark("open")
chat = model.session(temperature=0.0)
chat.user("Hello"); mark("prompt")
next(chat.stream()); mark("token")
import json, resource
pool, status = model.tree.pool, Path("/proc/self/status").read_text()
print(json.dumps({
    "marks": marks,
    "packages": sorted({name.partition(".")[0] for name in sys.modules}),
    "modules": len(sys.modules),
    "peak_mb": int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6,
    "apart_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6,
    "kv_mb": pool.num_used * pool.page_bytes / 1e6,
}))
model.close()
"""
"""What `unsay.load` and a session do, step by step."""


def main() -> None:
    """Print the three."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--repeats", type=int, default=10)
    args = made.parse_args()
    report = Report(args)
    _help(report, args.repeats)
    path = hub.resolve(args.model)
    _warm(report, path, args.repeats)
    _cold(report, path, max(1, args.repeats // 3))


def _help(report: Report, repeats: int) -> None:
    runs = [_run("-m", "unsay", "--help") for _ in range(repeats)]
    report.add("unsay --help", wall_ms=_median(run.wall_ms for run in runs), cpu_ms=_median(run.cpu_ms for run in runs))


def _warm(report: Report, path: Path, repeats: int) -> None:
    """The first run fills the cache and is not counted."""
    runs = [_start(path) for _ in range(repeats + 1)][1:]
    _starts(report, "warm start", path, runs)
    names = list(runs[0].told["marks"])
    report.add(
        "warm start parts",
        **{f"{name}_ms": _median(_part(run, names, place) for run in runs) for place, name in enumerate(names)},
        exit_ms=_median(run.wall_ms - _token_ms(run) for run in runs),
    )
    packages = [name for name in runs[0].told["packages"] if name not in sys.stdlib_module_names and name[0] != "_"]
    report.add("warm start imports", modules=runs[0].told["modules"], packages=" ".join(packages))


def _cold(report: Report, path: Path, repeats: int) -> None:
    """Into an empty cache; the model file is in memory already, as after a download."""
    _starts(report, "cold start", path, [_run_cold(path) for _ in range(repeats)])
    parts = [_cold_parts(path) for _ in range(repeats)]
    report.add("cold start parts", **{name: _median(part[name] for part in parts) for name in parts[0]})


def _starts(report: Report, what: str, path: Path, runs: list[_Run]) -> None:
    told = [run.told for run in runs]
    peak, kv, file = _median(one["peak_mb"] for one in told), told[0]["kv_mb"], path.stat().st_size / 1e6
    report.add(
        what,
        token_ms=_median(map(_token_ms, runs)),
        wall_ms=_median(run.wall_ms for run in runs),
        cpu_ms=_median(run.cpu_ms for run in runs),
    )
    apart = _median(one["apart_mb"] for one in told)
    report.add(f"{what} memory", peak_mb=peak, file_mb=file, kv_mb=kv, rest_mb=peak - file - kv, apart_mb=apart)


def _token_ms(run: _Run) -> float:
    return 1e3 * (run.told["marks"]["token"] - run.started)


def _part(run: _Run, names: list[str], place: int) -> float:
    """Milliseconds from the mark before; the first from the creation of the process."""
    marks = run.told["marks"]
    return 1e3 * (marks[names[place]] - (marks[names[place - 1]] if place else run.started))


def _run_cold(path: Path) -> _Run:
    with tempfile.TemporaryDirectory() as directory:
        return _start(path, UNSAY_CACHE=directory)


def _cold_parts(path: Path) -> dict[str, float]:
    """Milliseconds of the steps of `compiler.pipeline.build_image`, one after the other: there code is emitted while
    weights are packed."""
    parts: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        digest = _timed(parts, "digest_ms", lambda: file_digest(root, path))
        loaded = _timed(parts, "read_ms", lambda: pipeline.load(path))
        words = _timed(parts, "vocabulary_ms", lambda: vocabulary_bytes(loaded.vocab))
        graph = _timed(parts, "graph_ms", lambda: pipeline.to_graph(loaded))
        proofs = _timed(parts, "passes_ms", lambda: run_validated(graph, PIPELINE))
        _timed(parts, "verify_ms", lambda: verify(graph))
        lowered = _timed(parts, "lower_ms", lambda: lower(graph, loaded.spec, LIMITS.max_tokens, LIMITS.max_rows))
        target = default_target()
        programs = pipeline.to_programs(lowered, loaded.spec, target)
        key = image_key(digest, target)
        with exclusive(root, digest) as work:
            job = pipeline.Job(path, (file_identity(path),), digest, target, AUTO, EXACT, key, root, work, None)
            code = _timed(parts, "emit_ms", lambda: pipeline.emit_code(job, programs, loaded.spec))
            weights = _timed(parts, "pack_ms", lambda: pipeline.pack(job, loaded, programs.plan))
            _timed(
                parts,
                "store_ms",
                lambda: pipeline.store(job, loaded.spec, programs, weights, words, code, proofs),
            )
    return parts


def _timed(parts: dict[str, float], name: str, step: Callable[[], T]) -> T:
    started = perf_counter()
    result = step()
    parts[name] = 1e3 * (perf_counter() - started)
    return result


class _Run(NamedTuple):
    """A process: when it was made, its wall and CPU milliseconds, and the JSON it wrote."""

    started: float
    wall_ms: float
    cpu_ms: float
    told: dict[str, Any]


def _start(path: Path, **environment: str) -> _Run:
    return _run("-c", _START, str(path), **environment)


def _run(*arguments: str, **environment: str) -> _Run:
    before = _children_ms()
    started = clock_gettime(CLOCK_MONOTONIC)
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
    )  # fmt: skip
    wall = 1e3 * (clock_gettime(CLOCK_MONOTONIC) - started)
    told: dict[str, Any] = json.loads(result.stdout) if result.stdout.startswith("{") else {}
    return _Run(started, wall, _children_ms() - before, told)


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (used.ru_utime + used.ru_stime)


def _median(samples: Iterable[float]) -> float:
    return statistics.median(samples)


if __name__ == "__main__":
    main()
