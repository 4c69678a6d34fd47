"""Every target of speed beside what this machine's best peer reaches: the same file, the same tokens, in turn, in one
run.

Run: python -m benchmarks.compare [--rows decode,prefill] [--alone] [--json] [--page FILE] [--save FILE]

Peers are installed into environments of their own at the first run; llama.cpp is compiled then, which takes minutes.
--alone does without them.
All engines stay in processes of their own with two threads, and are asked in turn: A B A B ...; figures are medians. A
sample during which other programs had more than a tenth of the cores is taken again while there is patience for it;
after that it is kept, and told; --realtime is for machines that are never idle. Progress is on standard error. The
table is printed, and written to benchmarks/RESULTS.md or another page. --save keeps the figures, so that rows can be
run one after the other and still make one table.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers import table
from benchmarks.peers.contestants import ours, peers
from benchmarks.peers.field import Field, say
from benchmarks.peers.multiply import products_per_s
from benchmarks.peers.quiet import Watch
from benchmarks.peers.results import Results
from benchmarks.peers.rows import GROUPS, ROWS
from benchmarks.peers.verdict import judge
from benchmarks.peers.works import WORKS, Plan
from benchmarks.report import parser
from unsay import hub, load_tokenizer
from unsay.benchmark.hardware import describe

_PAGE = Path(__file__).parent / "RESULTS.md"
_TEXT = Path(__file__).parent.parent / "tests" / "data" / "northanger_abbey.txt"


def main() -> None:
    """Measure the chosen rows, and print the table of all that is known."""
    args = _arguments()
    results = Results.read(args.save) if args.save else Results()
    if args.rows:
        _describe(results, args.threads)
        _measure(args, results)
    _print(args, results)


def _arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument(
        "--rows", type=_groups, default=GROUPS, help=f"some of {','.join(GROUPS)}; '' for none, with --save"
    )
    made.add_argument("--alone", action="store_true", help="beside no peer, and no environment is made")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--rounds", type=int, default=5, help="samples of each figure")
    made.add_argument("--latencies", type=int, default=500, help="samples of a stop; twice as many of a rollback")
    made.add_argument(
        "--text", type=Path, default=_TEXT, help="for perplexity; the target is about WikiText-2's wiki.test.tokens"
    )
    made.add_argument("--chunks", type=int, default=40, help="windows of 512 tokens of that text")
    made.add_argument("--patience", type=float, default=30, help="seconds a sample may wait for the machine to be idle")
    made.add_argument(
        "--realtime", action="store_true", help="who is measured comes before all other programs; needs root"
    )
    made.add_argument(
        "--save", type=Path, help="file of figures, read at the start and written after each group of rows"
    )
    made.add_argument("--page", type=Path, default=_PAGE, help="what to write the table to, in Markdown")
    return made.parse_args()


def _groups(text: str) -> tuple[str, ...]:
    chosen = tuple(filter(None, text.split(",")))
    for name in chosen:
        if name not in GROUPS:
            raise argparse.ArgumentTypeError(f"no rows {name!r}: there are {', '.join(GROUPS)}")
    return chosen


def _describe(results: Results, threads: int) -> None:
    told = describe()
    command = shlex.join(["python", "-m", "benchmarks.compare", *sys.argv[1:]])
    before = results.machine.get("command")
    results.machine = {
        "command": f"{before}; {command}" if before else command,
        "machine": f"{told.cpu}, {told.cores} cores, load {told.load:.1f}",
        "at best": f"{told.read_bandwidth / 1e9:.1f} GB/s read, {products_per_s(threads) / 1e9:.0f} G int8 products/s",
        "software": f"unsay {told.unsay}, Python {told.python}, NumPy {told.numpy}, Linux {told.kernel}",
    }


def _measure(args: argparse.Namespace, results: Results) -> None:
    model = hub.resolve(args.model)
    plan = Plan(load_tokenizer(model), args.rounds, args.latencies, args.text, args.chunks)
    everybody = ours() if args.alone else {**ours(), **peers()}
    field = Field(str(model), args.threads, everybody, results, Watch(args.patience, args.realtime))
    try:
        for group in args.rows:
            WORKS[group](field, plan)
            say(f"{group}: load {os.getloadavg()[0]:.1f}")
            if args.save:
                args.save.write_text(results.to_json(), encoding="utf-8")
    finally:
        field.close()


def _print(args: argparse.Namespace, results: Results) -> None:
    verdicts = [judge(row, results) for row in ROWS]
    args.page.write_text(table.page(verdicts, results), encoding="utf-8")
    if args.json:
        print(json.dumps({**asdict(results), "rows": [asdict(verdict) for verdict in verdicts]}))
        return
    print("\n".join(f"{name}: {value}" for name, value in {**results.machine, **results.versions}.items()) + "\n")
    print(table.plain(verdicts))
    print("\n" + "\n".join(table.remarks(results)))


if __name__ == "__main__":
    main()
