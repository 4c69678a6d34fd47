"""How figures become a table: medians, ratios, what counts as met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.contestants import LLAMA, MEMORY, OPENVINO, OURS
from benchmarks.peers.results import Results, figure
from benchmarks.peers.rows import GROUPS, ROWS, Bound, Row, Times
from benchmarks.peers.table import cells, page, plain, remarks
from benchmarks.peers.verdict import judge
from benchmarks.peers.works import WORKS

_FAST = Row("decode", "fast", "decode", "tok/s", True, Times(1.5), peers=(LLAMA, OPENVINO))
_SOON = Row("correction", "soon", "correction", "ms", False, Times(0.25), peers=(LLAMA, OPENVINO))
_LIMIT = Row("rollback", "limit", "rollback", "us", False, Bound(5.0))


@pytest.fixture
def results() -> Results:
    made = Results({"command": "a command"}, {OURS: "0.1"})
    for name, samples in ((OURS, [150.0, 140.0, 200.0]), (LLAMA, [100.0, 90.0, 95.0]), (OPENVINO, [20.0])):
        made.add("fast", name, samples, [0.02] * len(samples))
    for name, samples in ((OURS, [30.0]), (LLAMA, [100.0]), (OPENVINO, [150.0])):
        made.add("soon", name, samples, [0.3])
    made.add("limit", OURS, [4.0, 5.0, 9.0], [0.0, 0.0, 0.0])
    return made


def test_a_figure_is_the_median_and_the_worst_disturbance() -> None:
    made = figure([3.0, 1.0, 2.0, 9.0], [0.0, 0.2, 0.1, 0.0])
    assert (made.value, made.others) == (2.5, 0.2)


def test_the_best_peer_counts_where_more_is_better(results: Results) -> None:
    verdict = judge(_FAST, results)
    assert (verdict.peer_name, verdict.peer, verdict.ours) == (LLAMA, 95.0, 150.0)
    assert verdict.ratio == pytest.approx(150 / 95)
    assert verdict.is_met


def test_the_best_peer_counts_where_less_is_better(results: Results) -> None:
    verdict = judge(_SOON, results)
    assert (verdict.peer_name, verdict.ratio, verdict.is_met) == (LLAMA, 0.3, False)


def test_a_peer_that_is_less_accurate_does_not_count(results: Results) -> None:
    for name, perplexity in ((OURS, 19.02), (LLAMA, 19.5), (OPENVINO, 19.1)):
        results.add("perplexity", name, [perplexity], [0.0])
    assert judge(_FAST, results).peer_name == OPENVINO
    assert any(line.startswith("llama.cpp: perplexity 1.025") for line in remarks(results))


@pytest.mark.parametrize(("limit", "is_met"), [(5.0, True), (4.99, False)])
def test_a_bound_itself_is_met(results: Results, limit: float, is_met: bool) -> None:
    row = Row("rollback", "limit", "rollback", "us", False, Bound(limit))
    assert judge(row, results).is_met is is_met


def test_nothing_is_met_without_figures(results: Results) -> None:
    assert judge(_FAST, Results()).why == "not measured in this run"
    results.refuse("new", OURS, "no such thing")
    unable = judge(Row("decode", "new", "new", "", True, Times(1.0)), results)
    assert (unable.is_met, unable.why) == (None, "no such thing")
    results.add("alone", OURS, [1.0], [0.0])
    results.refuse("alone", LLAMA, "cannot be installed")
    alone = judge(Row("decode", "alone", "alone", "", True, Times(1.0), peers=(LLAMA,)), results)
    assert (alone.is_met, alone.why) == (None, "llama.cpp: cannot be installed")


def test_figures_survive_their_file(results: Results, tmp_path: Path) -> None:
    results.note("fast", "a note")
    results.refuse("fast", "vLLM", "a reason")
    path = tmp_path / "results.json"
    assert Results.read(path) == Results()
    path.write_text(results.to_json())
    assert Results.read(path) == results


def test_measuring_again_forgets_what_was_measured(results: Results) -> None:
    results.refuse("fast", "vLLM", "a reason")
    results.begin("fast")
    assert "fast" not in results.figures and "fast" not in results.unable
    assert "soon" in results.figures


def test_a_row_says_target_peer_ours_ratio_and_whether_it_is_met(results: Results) -> None:
    assert cells(judge(_FAST, results))[:6] == (
        "decode",
        ">= 1.5x",
        "llama.cpp 95.0 tok/s",
        "150 tok/s",
        "1.579x",
        "yes",
    )
    assert cells(judge(_LIMIT, results))[:6] == ("rollback", "<= 5 us", "-", "5 us", "1.000x", "yes")
    assert cells(judge(_FAST, Results()))[5] == "not known: not measured in this run"


def test_both_tables_have_every_row(results: Results) -> None:
    verdicts = [judge(row, results) for row in (_FAST, _SOON, _LIMIT)]
    assert len(plain(verdicts).splitlines()) == 4
    text = page(verdicts, results)
    assert "| decode | >= 1.5x | llama.cpp 95.0 tok/s | 150 tok/s | 1.579x | yes |  |  |" in text
    assert "| fast | 150 (140 .. 200) | 95.0 (90.0 .. 100) | 20.0 (20.0 .. 20.0) |" in text
    assert "soon: unsay: other programs had up to 30 % of the cores during a sample" in remarks(results)


def test_what_the_machine_can_do_stands_beside_the_figure(results: Results) -> None:
    results.add("fast", MEMORY, [200.0], [0.0])
    row = replace(_FAST, limit=MEMORY)
    assert cells(judge(row, results))[6] == "reading memory 200 tok/s: 0.75"
    assert judge(row, results).is_met, "a limit is no peer"
    assert cells(judge(_FAST, results))[6] == ""


def test_every_group_of_rows_has_its_work() -> None:
    assert set(WORKS) == set(GROUPS) == {row.group for row in ROWS}


def test_where_a_better_peer_is_recorded_ours_is_shown_beside_llama_cpp_scaled_to_it(results: Results) -> None:
    row = Row("decode", "fast", "decode", "tok/s", True, Times(1.5), peers=(LLAMA,), lead=3.0)
    assert judge(row, results).scaled == pytest.approx(150 / (3 * results.figures["fast"][LLAMA].value))
    assert cells(judge(row, results))[-1].endswith("; as far ahead of llama.cpp here: 0.53x")
    assert judge(_FAST, results).scaled is None
