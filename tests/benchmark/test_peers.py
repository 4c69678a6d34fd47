"""Contestants' processes and how they are asked, with a fake one."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

from benchmarks.peers.contestants import OURS, Contestant
from benchmarks.peers.environment import PeerUnavailableError, Recipe, llama_cpp_recipe
from benchmarks.peers.field import Asked, Field
from benchmarks.peers.protocol import Child, ChildDiedError, Settings, Unable
from benchmarks.peers.quiet import Moment, Watch, share_of_others
from benchmarks.peers.results import Results
from unsay.runtime.cpu import Cpu

_MODULE = "tests.benchmark.fake_engine"


@pytest.fixture
def child() -> Generator[Child]:
    made = Child(sys.executable, _MODULE, Settings("none.gguf", 2, options={"forgets": True}))
    yield made
    made.close()


def test_a_child_answers_what_it_is_asked_whatever_it_prints(child: Child) -> None:
    assert child.about == {"version": "fake 1", "threads": 2}
    assert child.ask("prefill", ids=[4, 5, 6]) == {"seconds": 1.5, "ids": [6]}
    assert child.ask("peak_bytes")["peak_bytes"] > 1_000_000


def test_what_an_engine_cannot_do_comes_with_its_reason(child: Child) -> None:
    with pytest.raises(Unable, match="it holds nothing"):
        child.ask("hold", contexts=[[1]])
    with pytest.raises(Unable, match="f16 keys and values only"):
        Child(sys.executable, _MODULE, Settings("none.gguf", 2, kv="int8"))


def test_a_child_that_dies_is_told_from_one_that_is_unable(child: Child) -> None:
    with pytest.raises(ChildDiedError, match="in decode"):
        child.ask("decode", count=3)
    with pytest.raises(ChildDiedError):
        child.ask("decode", count=3)


class _Fake:
    """Answers with what it is given, and writes down that it was asked."""

    def __init__(self, name: str, asked: list[str], seconds: list[float]) -> None:
        self.pid = os.getpid()
        self._name, self._asked, self._seconds = name, asked, seconds

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        self._asked.append(self._name)
        return {"seconds": self._seconds.pop(0)}


def _field(everybody: dict[str, Contestant]) -> Field:
    return Field("none.gguf", 2, everybody, Results(), Watch(patience_s=0))


def test_contestants_are_asked_in_turn_and_the_median_counts() -> None:
    asked: list[str] = []
    children: dict[str, Asked] = {
        "a": _Fake("a", asked, [1.0, 4.0, 2.0]),
        "b": _Fake("b", asked, [5.0, 5.0, 9.0]),
    }
    field = _field({})
    answers = field.rounds("work", children, 3, lambda who, _: who.ask("decode"), lambda answer: 8 / answer["seconds"])
    assert asked == ["a", "b", "a", "b", "a", "b"]
    assert [answer["seconds"] for answer in answers["a"]] == [1.0, 4.0, 2.0]
    assert field.results.figures["work"]["a"].samples == (8.0, 2.0, 4.0)
    assert {name: figure.value for name, figure in field.results.figures["work"].items()} == {"a": 4.0, "b": 1.6}


def test_who_cannot_take_part_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(recipe: Recipe) -> str:
        raise PeerUnavailableError(f"{recipe.name} cannot be installed: no such index")

    monkeypatch.setattr("benchmarks.peers.contestants.ensure", refuse)
    field = _field(
        {
            OURS: Contestant(OURS, "fake_engine"),
            "int8": Contestant("int8", "fake_engine", kv="int8"),
            "peer": Contestant("peer", "fake_engine", Recipe("peer", ("peer",))),
        }
    )
    monkeypatch.setattr("benchmarks.peers.contestants.PACKAGE", "tests.benchmark")
    try:
        assert list(field.present("work", (OURS, "int8", "peer"))) == [OURS]
    finally:
        field.close()
    assert field.results.versions == {OURS: "fake 1"}
    assert field.results.unable["work"] == {
        "int8": "this engine has f16 keys and values only",
        "peer": "peer cannot be installed: no such index",
    }


def test_who_is_unable_to_prepare_has_no_figure() -> None:
    asked: list[str] = []

    class Unwilling(_Fake):
        def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
            raise Unable("not this")

    children: dict[str, Asked] = {"a": _Fake("a", asked, [1.0]), "b": Unwilling("b", asked, [])}
    field = _field({})
    assert field.prepare("work", children, lambda who: who.ask("hold")) == {"a": {"seconds": 1.0}}
    assert list(children) == ["a"]
    assert field.results.unable == {"work": {"b": "not this"}}


def test_others_have_what_neither_we_nor_nobody_used() -> None:
    before, after = Moment(10.0, 100.0, 50.0), Moment(12.0, 103.0, 52.0)
    assert share_of_others(before, after, cores=2) == pytest.approx(0.25)
    assert share_of_others(before, Moment(12.0, 102.0, 52.1), cores=2) == 0.0


def test_llama_cpp_is_compiled_with_what_the_cpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("shutil.which", lambda name: None)
    plain = llama_cpp_recipe(Cpu("old", frozenset({"avx2", "fma", "f16c"})))
    assert plain.env == {"CMAKE_ARGS": "-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF"}
    new = llama_cpp_recipe(Cpu("new", frozenset({"avx2", "avx512f", "avx512_vnni", "amx_int8"})))
    assert new.env == {"CMAKE_ARGS": "-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON"}
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with_clang = llama_cpp_recipe(Cpu("new", frozenset({"avx2", "avx512f", "amx_int8", "amx_tile"})))
    assert with_clang.env["CC"] == "clang"
    assert "-DGGML_AMX_INT8=ON -DGGML_AMX_TILE=ON" in with_clang.env["CMAKE_ARGS"]
