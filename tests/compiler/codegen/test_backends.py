"""The registry of back ends: who is known, who is chosen, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import unsay
from unsay import SamplingParams
from unsay.compiler.codegen import amx_probe, backends
from unsay.compiler.codegen.backends import Emitted, Step, choose_backend, find_backend, register_backend
from unsay.default_target import default_target
from unsay.errors import TargetError
from unsay.isa.targets import TARGETS, find_target


@dataclass(frozen=True)
class Acme:
    """A third party's emitter, as the documentation shows it."""

    missing: str = ""
    makes: str = "nothing"

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        return self.missing

    def emit(self, step: Step) -> Emitted:
        return Emitted({"acme.txt": step.spec.name.encode()})


class Relabelled:
    """Another's emitter for what this CPU runs."""

    makes = "a whole step"

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        return ""

    def emit(self, step: Step) -> Emitted:
        return find_backend(default_target()).emitter.emit(step)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    backends.backends()
    rows, registered = dict(backends._rows), set(backends._registered)
    yield
    backends._rows, backends._registered = rows, registered


def flags(target: str) -> frozenset[str]:
    return frozenset(find_target(target).cpu_flags)


@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_the_best_target_of_a_cpu_is_chosen(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx_probe, "lacking_for_tiles", lambda _: "")
    assert choose_backend(flags(target)).backend.target == target


def test_tiles_that_do_not_work_are_passed_over_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx_probe, "lacking_for_tiles", lambda _: "permission")
    choice = choose_backend(flags("amx-int8"))
    assert (choice.backend.target, choice.passed_over) == ("avx512-vnni", (("amx-int8", "permission"),))


def test_the_highest_priority_that_lacks_nothing_is_chosen_and_the_others_are_told() -> None:
    register_backend("acme-1", 900, Acme("a card"))
    register_backend("acme-2", 901, Acme())
    register_backend("acme-3", 902, Acme("a driver"))
    choice = choose_backend(flags("avx2"))
    assert (choice.backend.target, choice.passed_over) == ("acme-2", (("acme-3", "a driver"),))


def test_without_its_device_the_choice_falls_back_to_the_cpu() -> None:
    register_backend("acme", 900, Acme("a card"))
    choice = choose_backend(flags("avx2"))
    assert choice.backend.target == "avx2"
    assert ("acme", "a card") in choice.passed_over and "avx512-vnni" in dict(choice.passed_over)


def test_where_nothing_runs_the_error_says_what_each_lacks() -> None:
    with pytest.raises(TargetError, match=r"avx2 lacks .*fma"):
        choose_backend(frozenset())


def test_an_unknown_target_is_refused_naming_the_known_third_parties_included() -> None:
    register_backend("acme", 900, Acme())
    with pytest.raises(TargetError, match=r"unknown target 'sse2'; known: acme, .*avx512-vnni, avx-vnni, avx2"):
        find_backend("sse2")


def test_modules_named_by_the_environment_register_when_the_registry_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "acme_backends.py").write_text(
        "from unsay.compiler.codegen.backends import register_backend\n"
        "from tests.compiler.codegen.test_backends import Acme\n"
        "def register():\n    register_backend('acme', 900, Acme())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("UNSAY_BACKENDS", "acme_backends")
    assert [find_backend("acme").priority, find_backend("acme").priority] == [900, 900]


@pytest.mark.parametrize("module", ["no_such_module", "json"])
def test_a_module_of_the_environment_that_registers_nothing_is_named(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSAY_BACKENDS", module)
    with pytest.raises(TargetError, match=rf"\$UNSAY_BACKENDS names '{module}'"):
        find_backend("avx2")


def test_a_name_is_given_once() -> None:
    with pytest.raises(TargetError, match="'avx2' has a back end already"):
        register_backend("avx2", 900, Acme())


def test_a_third_party_s_code_is_compiled_cached_and_run(tiny_path: Path) -> None:
    expected = tokens(tiny_path, None)
    register_backend("acme", 1, Relabelled())
    assert tokens(tiny_path, "acme") == expected
    register_backend("acme-2", 1, Acme("a card"))
    with pytest.raises(TargetError, match="acme-2 does not run here, it lacks a card"):
        unsay.load(tiny_path, target="acme-2")


def tokens(path: Path, target: str | None) -> list[int]:
    """Six tokens after three, by the code for this target."""
    with unsay.load(path, target=target, num_threads=1, kv_tokens=256) as model:
        return [event.token_id for event in model.generate([5, 6, 7], SamplingParams(temperature=0, max_tokens=6))]


def test_kernels_that_no_executor_runs_are_no_image(tiny_path: Path) -> None:
    register_backend("acme", 1, Acme())
    with pytest.raises(TargetError, match="acme makes nothing, no image"):
        unsay.load(tiny_path, target="acme")
