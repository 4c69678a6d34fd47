"""A checked run is the definition, and names the instruction that breaks an invariant."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.models import loaded
from unsay import Model
from unsay.cli.main import main
from unsay.errors import InvariantError
from unsay.isa.classes import FAST
from unsay.runtime import arithmetic, attention, tensors

IDS = [5, 9, 2, 40, 41, 42]


def _logits(model: Model) -> np.ndarray:
    return model.logits(IDS)


def test_a_checked_run_gives_the_logits_of_the_definition(tiny_path: Path):
    with loaded(tiny_path, "checked") as checked, loaded(tiny_path, "reference") as reference:
        assert np.array_equal(_logits(checked), _logits(reference))


def test_it_holds_prompts_in_the_fast_class_to_what_they_promise(tiny_path: Path, monkeypatch: pytest.MonkeyPatch):
    with loaded(tiny_path, "checked", prefill=FAST) as checked, loaded(tiny_path, "native", prefill=FAST) as native:
        assert np.array_equal(_logits(checked), _logits(native))
        quantise_rows = tensors.quantise_rows
        monkeypatch.setattr(tensors, "quantise_rows", lambda x: (quantise_rows(x)[0], quantise_rows(x)[1] * 2))
        with pytest.raises(InvariantError, match=r"\(NORM\): broken: abs\(x - q \* scale\) <= scale / 2"):
            _logits(checked)


def _wrong(module: object, name: str, change: Callable[[Callable[..., object]], object]) -> Callable[..., None]:
    return lambda patch: patch.setattr(module, name, change(getattr(module, name)))


def _wider(attend: Callable[..., np.ndarray]) -> object:
    return lambda *arguments: attend(*arguments) * np.float32(4)


def _loud(sums: Callable[..., np.ndarray]) -> object:
    return lambda x: sums(x) / np.float32(100)


def _half_scale(quantise: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]) -> object:
    def wrong(x: np.ndarray) -> object:
        q, scale, total = quantise(x)
        return q, scale / np.float32(2), total

    return wrong


def _nan(silu: Callable[..., np.ndarray]) -> object:
    return lambda gate, up: silu(gate, up) * np.float32("nan")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_wrong(attention, "_attend_part", lambda part: lambda *a: (*part(*a)[:2], part(*a)[2] * np.float32(9))),
         r"instruction \d+ \(ATTN\): broken: min\(V\) <= y <= max\(V\) at position"),
        (_wrong(arithmetic, "dot16", _loud), r"\(NORM\): broken: mean\(n \* n\) <= 1"),
        (_wrong(tensors, "quantise", _half_scale), r"broken: abs\(x - q \* scale\) <= scale / 2"),
        (_wrong(arithmetic, "silu_mul", _nan), r"\(FFN\): broken: a value that is not finite"),
    ],
    ids=["attention", "norm", "quantise", "silu"],
)  # fmt: skip
def test_a_broken_invariant_is_named_with_its_instruction(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None], says: str
):
    with loaded(tiny_path, "checked") as model:
        spoil(monkeypatch)
        with pytest.raises(InvariantError, match=says):
            _logits(model)


def test_run_checked_is_a_flag(tiny_path: Path, capsys: pytest.CaptureFixture[str]):
    assert (
        main(["run", "hello", "--checked", "--model", str(tiny_path), "--max-tokens", "2", "--temperature", "0"]) == 0
    )
    assert capsys.readouterr().out.strip()
