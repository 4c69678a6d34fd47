"""Products on AMX tiles: the bits of the definition, tiles of every thread configured and given back, and the probe."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.codegen.product_steps import (
    add_attention,
    add_mixed,
    largest_sum_step,
    matmul_step,
    qkv_and_ffn_step,
)
from tests.compiler.codegen.steps import (
    CAPACITY,
    StepBuilder,
    make_batch,
    random_pages,
    run_native,
)
from tests.emulator.amx import AMX_ON_AVX2, UNIT, Counts, assert_defined, assert_stops_leave_nothing, library, tiles
from tests.exactness.runs import run_alone, run_together
from tests.exactness.test_company import load, make_sequences
from unsay.compiler.codegen import amx_probe
from unsay.compiler.codegen.amx_probe import mapped
from unsay.compiler.codegen.builder import I8, Function, Module
from unsay.compiler.codegen.translate import ATTRIBUTES
from unsay.errors import TargetError
from unsay.isa.classes import FAST, keys_of
from unsay.isa.formats import FLOAT_WEIGHTS, QUANTISED_WEIGHTS, DType
from unsay.isa.targets import Target, find_target
from unsay.runtime import cpu
from unsay.runtime.cpu import probe

FORMATS = sorted(QUANTISED_WEIGHTS | FLOAT_WEIGHTS)
TOKENS = (1, 3, 15, 16, 17, 24)


def assert_same(step: StepBuilder, num_tokens: int, threads: tuple[int, ...] = (1, 2)) -> None:
    """Tiles leave the bytes of the definition, in every tensor and page."""
    assert_defined(step, make_batch(list(range(num_tokens))), threads)


@pytest.mark.parametrize("width", [32, 96, 192, 544])
@pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
def test_a_product_equals_the_definition(dtype: DType, width: int) -> None:
    """Columns of a tile: 32, 48, 64, 32; parts: 1, 1, 1, 3; row groups of a thread: 0 to 3."""
    step = matmul_step(DType.Q16P, dtype, width)
    step.matrix(6, dtype, 16, width)
    step.activation(7, DType.F32, 16)
    step.add("MATMUL", 7, 1, 6)
    for num_tokens in TOKENS:
        assert_same(step, num_tokens)


@pytest.mark.parametrize("dtype", [DType.Q4_1, DType.BF16])
def test_several_panels_and_whole_tiles_equal_the_definition(dtype: DType) -> None:
    """Rows of 2048 columns: eight row groups fill a panel, and the last is not full."""
    step = StepBuilder(np.random.default_rng(6))
    add_mixed(step, DType.Q16P, 2048)
    step.matrix(2, dtype, 11 * 16, 2048)
    step.activation(4, DType.F32, 11 * 16)
    step.add("MATMUL", 4, 1, 2)
    assert_same(step, 18, threads=(1, 2, 4))


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
def test_qkv_ffn_and_attention_equal_the_definition(dtype: DType) -> None:
    step = qkv_and_ffn_step(DType.Q16P, dtype)
    add_attention(step, DType.Q16P)
    for num_tokens in (1, 19):
        assert_same(step, num_tokens)


def test_norms_and_gates_write_planes() -> None:
    step = StepBuilder(np.random.default_rng(2))
    add_mixed(step, DType.Q16P, 160)
    step.vector(2, 160)
    for register in (3, 4):
        step.activation(register, DType.Q16P, 160)
    step.add("NORM", 3, 15, 2, eps=1e-5)
    step.add("SILU_MUL", 4, 15, 15)
    for num_tokens in (1, CAPACITY):
        assert_same(step, num_tokens, threads=(1, 3))


def test_the_largest_sum_stays_exact() -> None:
    step, _ = largest_sum_step(DType.Q16P)
    assert_same(step, 2)


def test_tiles_are_configured_on_every_thread_and_given_back() -> None:
    """17 tokens are two tiles of them, 64 rows four row groups."""
    step = StepBuilder(np.random.default_rng(7))
    add_mixed(step, DType.Q16P, 64)
    step.matrix(2, DType.Q8_0, 64, 64)
    step.activation(4, DType.F32, 64)
    step.add("MATMUL", 4, 1, 2)
    batch = make_batch(list(range(17)))
    pages = random_pages(step.rng, step.spec, batch)
    for num_threads in (1, 2, 4):
        with tiles() as done:
            run_native(step, batch, pages, UNIT, num_threads, target=AMX_ON_AVX2)
        if done.is_emulated:
            assert done.counts() == Counts(2 * num_threads, 2 * num_threads, products=2 * 4 * 2, configured=0)


@pytest.mark.parametrize("variant", ["llama-q4_1", "llama-mixed"])
def test_a_model_gives_the_same_bits_on_tiles(variant: str, tiny_paths: dict[str, Path], with_tiles: Target) -> None:
    options: dict[str, object] = {"prefill": FAST, "num_threads": 2}
    with load(tiny_paths[variant], **options) as model:
        sequences = [keys_of(ids, True) for ids in make_sequences(model, 3, 70)]
        alone = [run_alone(model, keys) for keys in sequences]
    options["target"] = with_tiles.name
    with tiles() as done, load(tiny_paths[variant], **options) as model:
        for chunk in (7, 512):
            for outcome, expected in zip(run_together(model, sequences, chunk), alone, strict=True):
                outcome.assert_equals(expected, f"chunk {chunk}")
        assert not done.is_emulated or done.counts().products > 1000
    with load(tiny_paths[variant], executor="reference", **options) as model:
        run_alone(model, sequences[1], 64).assert_equals(alone[1], "the definition")


def test_a_stop_leaves_no_tiles_and_no_trace(tiny_paths: dict[str, Path], with_tiles: Target) -> None:
    with load(tiny_paths["llama-q4_1"], prefill=FAST, num_threads=2, target=with_tiles.name) as model:
        assert_stops_leave_nothing(model, keys_of(make_sequences(model, 1, 200)[0], True))


def test_what_a_cpu_refuses_is_noted() -> None:
    """The judge itself: a tile that was never configured."""

    def write(f: Function) -> None:
        module.declare("llvm.x86.tilezero", "void", ["i8 immarg"])
        f.run("llvm.x86.tilezero", f.constant(I8, 3))

    module = Module(ATTRIBUTES)
    module.define("wrong", [], write, "a tile of no shape", linkage="")
    code, entry = mapped(module, "wrong", AMX_ON_AVX2)
    emulator = library()
    emulator.install()
    ctypes.CFUNCTYPE(None)(np.frombuffer(code, np.uint8).ctypes.data + entry)()
    emulator.uninstall()
    assert ctypes.string_at(emulator.first_fault()) == b"#UD tilezero: tile 3 of 0 rows of 0 bytes, palette 0"


def test_the_probe_finds_tiles_right_where_they_are() -> None:
    with tiles():
        assert amx_probe.try_product(AMX_ON_AVX2) == ""


def test_a_child_that_dies_is_a_reason() -> None:
    """Without tiles or AVX-512 the product is an illegal instruction; a signal stands for it where there are both."""
    are_here = probe().flags.issuperset(find_target("amx-int8").cpu_flags)
    what = "os.kill(os.getpid(), 4)" if are_here else "amx_probe.try_product(find_target('amx-int8'))"
    code = f"import os; from unsay.compiler.codegen import amx_probe; from unsay.isa.targets import find_target; {what}"
    found = amx_probe.ask_child([sys.executable, "-c", code])
    assert found == "AMX tiles that work (a child process that tried died of SIGILL)"
    code = "import sys; sys.exit('permission of somebody')"
    assert amx_probe.ask_child([sys.executable, "-c", code]) == "permission of somebody"


def test_what_the_child_found_is_remembered_until_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["no such luck", ""]
    monkeypatch.setattr(amx_probe, "request_tiles", lambda: "")
    monkeypatch.setattr(amx_probe, "ask_child", lambda: answers.pop(0))
    flags = frozenset({"of", "a", "test"})
    assert [amx_probe.lacking_for_tiles(flags) for _ in range(2)] == ["no such luck"] * 2
    assert amx_probe.lacking_for_tiles(flags, again=True) == "" == amx_probe.lacking_for_tiles(flags)


def test_without_permission_a_target_with_tiles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "check_target", lambda _: None)
    monkeypatch.setattr(cpu, "request_tiles", lambda: "permission")
    cpu.prepare("avx2")
    with pytest.raises(
        TargetError, match="amx-int8 code does not run here, it lacks permission; take target avx512-vnni"
    ):
        cpu.prepare("amx-int8")
