"""What the benchmarks print: the machine and the command, then a line for each result; objects with --json."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

from unsay.benchmark.hardware import describe


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with --json, and the docstring of the benchmark as its help."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


class Report:
    """Prints as results come. Figures are named with their units: `_ms`, `_bytes`, `_per_s`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._is_json = args.json
        self.hardware = describe()
        command = shlex.join(["python", "-m", f"benchmarks.{_name(sys.argv[0])}", *sys.argv[1:]])
        here, llvmlite = self.hardware, version("llvmlite")
        if self._is_json:
            print(json.dumps({"command": command, **asdict(here), "llvmlite": llvmlite}), flush=True)
            return
        print(command)
        print(
            f"{here.cpu}, {here.cores} cores, {here.read_bandwidth / 1e9:.1f} GB/s read, load {here.load:.1f}; "
            f"unsay {here.unsay}, Python {here.python}, NumPy {here.numpy}, llvmlite {llvmlite}\n"
        )

    def add(self, what: str, result: Any = None, **figures: Any) -> None:
        """One result: the fields of a dataclass, single figures, or both."""
        if self._is_json:
            told = {} if result is None else asdict(result)
            print(json.dumps({"result": what, **told, **figures}), flush=True)
            return
        names = [] if result is None else [field.name for field in fields(result)]
        shown = {**{name: getattr(result, name) for name in names}, **figures}
        print(f"{what}: " + ", ".join(f"{name} {_shown(value)}" for name, value in shown.items()), flush=True)


def median_ms(action: Callable[[], object], repeats: int, clock: Callable[[], float] = perf_counter) -> float:
    """Of `repeats` calls; `process_time` as clock gives CPU milliseconds, which other programs disturb less."""
    samples: list[float] = []
    for _ in range(repeats):
        started = clock()
        action()
        samples.append(1e3 * (clock() - started))
    return statistics.median(samples)


def median_cpu_ms(action: Callable[[], object], repeats: int) -> float:
    """CPU milliseconds of this process."""
    return median_ms(action, repeats, process_time)


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".py")


def _shown(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
