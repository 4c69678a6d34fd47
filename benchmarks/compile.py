"""What the compiler costs around code generation: importing models and kernels, and proving every pass.

Run: python -m benchmarks.compile [--model smollm2:135m] [--repeats 50]

Imports are from the file to checked LLMIR, in a warm process: the first run of each is not counted. wall_ms and cpu_ms
are medians. For a model that is compiled, in fresh processes: the time of the passes alone, and of the passes each
proved on the graph (verify/validate.py), once with Z3 still to be imported; then a start from the cache, which proves
nothing anew and does not import Z3.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.report import Report, median_cpu_ms, median_ms, parser
from unsay import hub
from unsay.compiler.compile import compile_model
from unsay.compiler.frontend.onnx import import_onnx
from unsay.compiler.frontend.triton import import_triton
from unsay.runtime.cpu import best_target

DATA = Path(__file__).parent.parent / "tests" / "data"

_COLD = """
import json, sys
from pathlib import Path
from time import perf_counter, process_time
from unsay.compiler import pipeline
from unsay.compiler.passes.pipeline import PIPELINE, run_passes
from unsay.compiler.verify.validate import run_validated
loaded = pipeline.load(Path(sys.argv[1]))
times = []
for run in (run_passes, run_validated, run_validated):
    graph = pipeline.to_graph(loaded)
    for clock in (perf_counter, process_time):
        times.append(-1e3 * clock())
    proofs = run(graph, PIPELINE)
    times[-2] += 1e3 * perf_counter()
    times[-1] += 1e3 * process_time()
print(json.dumps([times, len(graph.operations), len(proofs)]))
"""

_CACHED = """
import json, sys
from pathlib import Path
from time import perf_counter
from unsay.compiler.compile import compile_model
started = perf_counter()
compile_model(Path(sys.argv[1]), target=sys.argv[2])
print(json.dumps([1e3 * (perf_counter() - started), "z3" in sys.modules]))
"""


def main() -> None:
    """Print a line for each import, then those of the model."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--repeats", type=int, default=50)
    args = made.parse_args()
    report = Report(args)
    for path in sorted(DATA.glob("onnx/*.onnx")):
        _import(report, args.repeats, path)
    for name in ("add", "softmax", "layer_norm", "matmul"):
        _import(report, args.repeats, DATA / "triton" / f"{name}.ttir")
    _validate(report, args.model, min(args.repeats, max(3, args.repeats // 10)))


def _import(report: Report, repeats: int, path: Path) -> None:
    reader = import_onnx if path.suffix == ".onnx" else import_triton
    operations = len(reader(path).graph.operations)
    report.add(
        f"import {path.name}",
        wall_ms=median_ms(lambda: reader(path), repeats),
        cpu_ms=median_cpu_ms(lambda: reader(path), repeats),
        operations=operations,
    )


def _validate(report: Report, model: str, repeats: int) -> None:
    path, target = hub.resolve(model), best_target()
    rows = [json.loads(_run(_COLD, str(path))) for _ in range(repeats)]
    wall, cpu = ([statistics.median(row[0][2 * run + clock] for row in rows) for run in range(3)] for clock in (0, 1))
    report.add(
        f"passes of {model}",
        **{f"{what}_ms": time for what, time in zip(("passes", "proved", "proved_again"), wall, strict=True)},
        **{f"{what}_cpu_ms": time for what, time in zip(("passes", "proved", "proved_again"), cpu, strict=True)},
        added_cpu_ms=cpu[1] - cpu[0],
        operations=rows[0][1],
        proofs=rows[0][2],
    )
    compile_model(path, target=target)
    cached = [json.loads(_run(_CACHED, str(path), target)) for _ in range(repeats)]
    imported = any(row[1] for row in cached)
    report.add(f"{model} from the cache", wall_ms=statistics.median(row[0] for row in cached), z3_imported=imported)


def _run(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
