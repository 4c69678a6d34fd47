"""The table itself: value invariants hold on numbers, and other tables have a row for every operation."""

from collections.abc import Callable

import numpy as np
import pytest

from unsay.compiler.dialect.invariants import holds
from unsay.compiler.dialect.ops import BY_NAME, OPS
from unsay.compiler.lower.lower import EMIT
from unsay.compiler.verify.spec import Level, allowed

Names = dict[str, np.ndarray]


def _norm(random: np.random.Generator) -> Names:
    x = random.standard_normal((5, 64)) * 10
    return {"n": x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)}


def _layer_norm(random: np.random.Generator) -> Names:
    x = random.standard_normal((5, 64)) + 3
    c = x - x.mean(-1, keepdims=True)
    return {"n": c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)}


def _rope(random: np.random.Generator) -> Names:
    x, angle = random.standard_normal((5, 32)), random.standard_normal((5, 16)) * 100
    a, b = x[:, 0::2], x[:, 1::2]
    y = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)
    return {"x": x, "y": y}


def _attention(random: np.random.Generator) -> Names:
    scores, v = random.standard_normal((5, 9)) * 20, random.standard_normal((9, 32))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    return {"p": p, "V": v, "y": p @ v}


def _silu(random: np.random.Generator) -> Names:
    x = random.standard_normal((5, 64)) * 5
    return {"x": x, "y": x / (1 + np.exp(-x))}


def _quantise(random: np.random.Generator) -> Names:
    x = random.standard_normal((5, 32)) * 10.0 ** random.integers(-8, 8, (5, 1))
    most = random.choice([127, 16256], (5, 1))
    scale = np.abs(x).max(-1, keepdims=True) / most
    return {"x": x, "most": most, "scale": scale, "q": np.round(x / scale)}


_SAMPLES: dict[str, Callable[[np.random.Generator], Names]] = {
    "rms_norm": _norm, "layer_norm": _layer_norm, "rope": _rope, "attention": _attention, "silu": _silu,
    "quantise": _quantise,
}  # fmt: skip


@pytest.mark.parametrize("name", _SAMPLES)
def test_value_invariants_hold_on_numbers(name: str):
    random = np.random.default_rng(7)
    for _ in range(20):
        names = _SAMPLES[name](random)
        for invariant in BY_NAME[name].value_invariants:
            assert holds(invariant, names), invariant


@pytest.mark.parametrize("name", _SAMPLES)
def test_value_invariants_can_fail(name: str):
    names = {key: -1e9 * (1 + np.abs(value)) for key, value in _SAMPLES[name](np.random.default_rng(7)).items()}
    assert not all(holds(invariant, names) for invariant in BY_NAME[name].value_invariants)


def test_every_operation_with_value_invariants_is_sampled():
    assert {op.name for op in OPS if op.value_invariants and op.family != "tensor"} == _SAMPLES.keys()


def test_every_operation_that_may_be_lowered_has_a_lowering():
    assert EMIT.keys() == allowed(Level.LOWERABLE)


def test_every_operation_is_allowed_somewhere():
    assert frozenset().union(*(allowed(level) for level in Level)) == BY_NAME.keys()
