"""What starting takes: `unsay --help`, a warm start to the first token, a cold one whole and part by part.

Run: python -m benchmarks.startup [--model M] [--repeats N] [--json]      (about a minute)

Every start is a process of its own. `wall` is from its creation, `cpu` what it used of all cores, `peak_mb` the most
memory it had, of which `file_mb` are the model's and `kv_mb` its keys and values. Wanted: help within 150 ms, a warm
start within 350 ms, a cold one (repacking and compiling) within 4 s, at most 120 MB beside the file and KV.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeVar

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
from unsay.isa.kv import AUTO

T = TypeVar("T")

_WARM = """
import json, sys
from pathlib import Path
from time import perf_counter
marks = [perf_counter()]
import unsay
marks.append(perf_counter())
with unsay.load(sys.argv[1]) as model:
    marks.append(perf_counter())
    chat = model.session(temperature=0.0)
    chat.user("Hello")
    next(chat.stream())
    marks.append(perf_counter())
    pool, status = model.tree.pool, Path("/proc/self/status").read_text()
    print(json.dumps({
        "marks": marks,
        "packages": sorted({name.partition(".")[0] for name in sys.modules}),
        "modules": len(sys.modules),
        "peak_mb": int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6,
        "kv_mb": pool.num_used * pool.memory.shape[1] / 1e6,
    }))
"""


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
    report.add("unsay --help", wall_ms=_median(run[0] for run in runs), cpu_ms=_median(run[1] for run in runs))


def _warm(report: Report, path: Path, repeats: int) -> None:
    """The first run fills the cache and is not counted."""
    runs = [_run("-c", _WARM, str(path)) for _ in range(repeats + 1)][1:]
    told = [json.loads(run[2]) for run in runs]
    parts = ("import_ms", "load_ms", "first_token_ms")
    marks = [one["marks"] for one in told]
    spans = {name: _median(1e3 * (mark[part + 1] - mark[part]) for mark in marks) for part, name in enumerate(parts)}
    report.add("warm start", wall_ms=_median(run[0] for run in runs), cpu_ms=_median(run[1] for run in runs), **spans)
    _memory(report, "warm start memory", path, told)
    names = told[0]["packages"]
    ours = [name for name in names if name not in sys.stdlib_module_names and not name.startswith("_")]
    report.add("warm start imports", modules=told[0]["modules"], packages=" ".join(ours))


def _cold(report: Report, path: Path, repeats: int) -> None:
    """Into an empty cache; the model file is in memory already, as after a download."""
    runs = [_run_cold(path) for _ in range(repeats)]
    report.add("cold start", wall_ms=_median(run[0] for run in runs), cpu_ms=_median(run[1] for run in runs))
    _memory(report, "cold start memory", path, [json.loads(run[2]) for run in runs])
    parts = [_cold_parts(path) for _ in range(repeats)]
    report.add("cold start parts", **{name: _median(part[name] for part in parts) for name in parts[0]})


def _memory(report: Report, what: str, path: Path, told: list[dict[str, float]]) -> None:
    peak, kv, file = _median(one["peak_mb"] for one in told), told[0]["kv_mb"], path.stat().st_size / 1e6
    report.add(what, peak_mb=peak, file_mb=file, kv_mb=kv, rest_mb=peak - file - kv)


def _run_cold(path: Path) -> tuple[float, float, str]:
    with tempfile.TemporaryDirectory() as directory:
        return _run("-c", _WARM, str(path), UNSAY_CACHE=directory)


def _cold_parts(path: Path) -> dict[str, float]:
    """Milliseconds of the steps of `compiler.pipeline.build_image`."""
    parts: dict[str, float] = {}
    cpu_before = process_time()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        digest = _timed(parts, "digest_ms", lambda: file_digest(root, path))
        loaded = _timed(parts, "read_ms", lambda: pipeline.load(path))
        graph = _timed(parts, "graph_ms", lambda: pipeline.to_graph(loaded))
        proofs = _timed(parts, "passes_ms", lambda: run_validated(graph, PIPELINE))
        _timed(parts, "verify_ms", lambda: verify(graph))
        lowered = _timed(parts, "lower_ms", lambda: lower(graph, loaded.spec, LIMITS.max_tokens, LIMITS.max_rows))
        target = default_target()
        key = image_key(digest, target)
        with exclusive(root, digest) as work:
            job = pipeline.Job(path, (file_identity(path),), digest, target, AUTO, key, root, work, None)
            code = _timed(parts, "emit_ms", lambda: pipeline.emit_code(job, lowered, loaded.spec))
            _timed(parts, "repack_ms", lambda: pipeline.store(job, loaded, lowered, code, proofs))
    return {**parts, "wall_ms": sum(parts.values()), "cpu_ms": 1e3 * (process_time() - cpu_before)}


def _timed(parts: dict[str, float], name: str, step: Callable[[], T]) -> T:
    started = perf_counter()
    result = step()
    parts[name] = 1e3 * (perf_counter() - started)
    return result


def _run(*arguments: str, **environment: str) -> tuple[float, float, str]:
    """Wall and CPU milliseconds of a Python process, and what it wrote."""
    before = _children_ms()
    started = perf_counter()
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return 1e3 * (perf_counter() - started), _children_ms() - before, result.stdout


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (used.ru_utime + used.ru_stime)


def _median(samples: Iterator[float]) -> float:
    return statistics.median(samples)


if __name__ == "__main__":
    main()
