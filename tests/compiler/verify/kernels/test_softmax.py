"""Online softmax: the invariant, the emitted merge, and what breaks them."""

import pytest

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.attention_part import merge_function
from unsay.compiler.codegen.kernels.attention_run import Attention
from unsay.compiler.verify.kernels.softmax import (
    Arithmetic,
    State,
    merge,
    prove_emitted_merge,
    prove_merge_is_softmax,
    prove_part_is_softmax,
)
from unsay.compiler.verify.obligation import Status, attempt
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

SHAPE = Attention(KvLayout(1, 1, 32), 2, 0.125, 0, 64, 96, 128, 128, 128, DType.Q8A, 8)


def test_a_part_and_a_merge_of_parts_are_a_softmax():
    assert prove_part_is_softmax().status is Status.PROVED
    assert prove_merge_is_softmax().status is Status.PROVED


def _without_rescaling(a: Arithmetic, old: State, new: State) -> State:
    right = merge(a, old, new)
    return State(right.top, a.add(old.total, new.total), right.out)


def _exchanged(a: Arithmetic, old: State, new: State) -> State:
    right, wrong = merge(a, old, new), a.exp(a.sub(new.top, merge(a, old, new).top))
    return State(right.top, right.total, a.fma(old.out, wrong, a.mul(new.out, wrong)))


def _first_maximum(a: Arithmetic, old: State, new: State) -> State:
    keep, take = a.exp(a.sub(old.top, old.top)), a.exp(a.sub(new.top, old.top))
    return State(old.top, a.fma(old.total, keep, a.mul(new.total, take)), merge(a, old, new).out)


@pytest.mark.parametrize("rule", [_without_rescaling, _exchanged, _first_maximum], ids=lambda rule: rule.__name__)
def test_another_merge_is_refuted(rule):
    result = prove_merge_is_softmax(rule)
    assert result.status is Status.REFUTED and "=" in result.detail


def test_the_emitted_merge_is_n9():
    assert prove_emitted_merge(SHAPE).status is Status.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fcmp ogt float", "fcmp olt float"),
        ("fsub float", "fadd float"),
        ("ptr %next, i64 256", "ptr %next, i64 260"),
        ("0x3FF0000000000000", "0x4000000000000000"),
        (", 32\n", ", 16\n"),
        ("fmul <16 x float>", "fadd <16 x float>"),
    ],
)
def test_an_edit_of_the_emitted_merge_is_refuted(old: str, new: str):
    module = Module("")
    merge_function(module, SHAPE)
    text = module.text()
    assert old in text
    assert attempt(lambda: prove_emitted_merge(SHAPE, text.replace(old, new, 1))).status is Status.REFUTED
