"""Kernels raised from Triton IR compute what they mean. The texts are Triton's own (tests/data/triton/make.py)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unsay.compiler.frontend.triton import import_triton, raise_kernel
from unsay.compiler.frontend.triton.launch import parse_launch
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.errors import IrError, ModelNotFoundError, RequestError, UnimportableError

DATA = Path(__file__).parents[2] / "data" / "triton"
Array = NDArray[Any]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gelu(x: Array) -> Array:
    v = x.astype(np.float32) * np.float32(1.5)
    return (0.5 * v * (1 + np.tanh(0.7978845608028654 * (v + 0.044715 * v**3)))).astype(np.float16)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


def matmul(a: Array, b: Array) -> Array:
    c = a.astype(np.float32) @ b.astype(np.float32)
    return np.where(c >= 0, c, np.float32(0.01) * c).astype(np.float16)


def linear(x: Array, w: Array, bias: Array) -> Array:
    y = x @ w.T + bias
    return y / (1 + np.exp(-y))


def block_max(x: Array) -> Array:
    return np.array([x[start : start + 64].max() for start in range(0, len(x), 64)])


MEANINGS: dict[str, Callable[..., Array]] = {
    "add": lambda x, y: x + y,
    "gelu": gelu,
    "row_sum": lambda x: x.sum(axis=1),
    "block_max": block_max,
    "softmax": softmax,
    "causal_softmax": lambda x: softmax(np.where(np.tri(50, dtype=bool), x * 0.125, -np.inf)),
    "layer_norm": layer_norm,
    "rms_norm": lambda x, weight: x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * weight,
    "matmul": matmul,
    "linear": linear,
}
"""What each kernel computes of the parameters it loads, in the order of parameters."""


@pytest.mark.parametrize("name", MEANINGS)
def test_a_kernel_computes_what_it_means(name: str) -> None:
    graph = import_triton(DATA / f"{name}.ttir").graph
    values = np.random.default_rng(5)
    types = {op.string("name"): op.result.type for op in graph.operations if op.kind == "input"}
    inputs = {
        name: values.standard_normal(kind.dims, np.float32).astype(kind.dtype.name.lower().replace("f", "float"))
        for name, kind in sorted(types.items())
    }
    (made,) = evaluate(graph, inputs, {})
    wanted = MEANINGS[name](*inputs.values())
    assert made.shape == wanted.shape and made.dtype == wanted.dtype
    tolerance = 2e-3 if wanted.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance)


def test_a_matmul_becomes_one_product_of_whole_matrices() -> None:
    """Swizzled programs, wrapped indices, masks, pointers that move and a loop are all gone."""
    graph = import_triton(DATA / "matmul.ttir").graph
    kinds = [operation.kind for operation in graph.operations]
    assert kinds.count("matmul") == 1 and not {"slice", "pad", "reshape", "gather", "iota"} & set(kinds)
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)


def test_all_that_cannot_be_raised_is_named_with_its_place() -> None:
    text = (DATA / "refused.ttir").read_text()
    with pytest.raises(UnimportableError) as caught:
        raise_kernel(text)
    lines = text.splitlines()
    assert len(caught.value.problems) == 3
    for problem, name in zip(caught.value.problems, ("tt.atomic_rmw", "tt.scan", "tt.addptr"), strict=True):
        line, column, rest = problem.split(":", 2)
        assert lines[int(line) - 1][int(column) - 1 :].startswith(f'"{name}"') and rest.startswith(f" {name}:")


def test_an_online_softmax_is_refused_at_what_its_loop_carries() -> None:
    with pytest.raises(UnimportableError, match="reads what the loop carries"):
        import_triton(DATA / "flash.ttir")


ADD = (DATA / "add.ttir").read_text()
SOFTMAX = (DATA / "softmax.ttir").read_text()
VECTOR = "tensor<1000 x f32>"


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1000) grid(3)", "writes 0..767 .* not all of 1000"),
        (f"launch({VECTOR}, {VECTOR}, {VECTOR}, 999) grid(4)", "writes 0..998 .* not all of 1000"),
        (f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1024) grid(4)", "may leave"),
        (f"launch(tensor<999 x f32>, {VECTOR}, {VECTOR}, 1000) grid(4)", "may leave"),
    ],
)
def test_a_launch_that_leaves_a_tensor_or_a_part_of_it_is_refused(launch: str, message: str) -> None:
    with pytest.raises(UnimportableError, match=message):
        raise_kernel(ADD, launch=parse_launch(launch))


def test_more_programs_than_needed_change_nothing() -> None:
    launch = parse_launch(f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1000) grid(9)")
    assert print_graph(raise_kernel(ADD, launch=launch).graph) == print_graph(raise_kernel(ADD).graph)


CALLS = """
// launch(tensor<64 x f32>, tensor<64 x f32>, 5) grid(1)
"builtin.module"() ({
  "tt.func"() <{function_type = (tensor<64xf32>) -> tensor<64xf32>, sym_name = "twice", sym_visibility = "private"}> ({
  ^bb0(%x: tensor<64xf32>):
    %0 = "arith.addf"(%x, %x) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    "tt.return"(%0) : (tensor<64xf32>) -> ()
  }) : () -> ()
  "tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, i32) -> (), sym_name = "k"}> ({
  ^bb0(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32):
    %0 = "tt.make_range"() <{end = 64 : i32, start = 0 : i32}> : () -> tensor<64xi32>
    %1 = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
    %2 = "tt.addptr"(%1, %0) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
    %3 = "tt.load"(%2) : (tensor<64x!tt.ptr<f32>>) -> tensor<64xf32>
    %4 = "arith.constant"() <{value = 4 : i32}> : () -> i32
    %5 = "arith.cmpi"(%n, %4) <{predicate = 4 : i64}> : (i32, i32) -> i1
    %6 = "scf.if"(%5) ({
      %9 = "tt.call"(%3) <{callee = @twice}> : (tensor<64xf32>) -> tensor<64xf32>
      %10 = "tt.call"(%9) <{callee = @twice}> : (tensor<64xf32>) -> tensor<64xf32>
      "scf.yield"(%10) : (tensor<64xf32>) -> ()
    }, {
      "scf.yield"(%3) : (tensor<64xf32>) -> ()
    }) : (i1) -> tensor<64xf32>
    %7 = "tt.splat"(%out) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
    %8 = "tt.addptr"(%7, %0) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
    "tt.store"(%8, %6) : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""


def test_calls_and_branches_that_all_programs_take_are_followed() -> None:
    ones = {"arg0": np.ones(64, "f4")}
    assert evaluate(raise_kernel(CALLS).graph, ones, {})[0].tolist() == [4.0] * 64
    other = raise_kernel(CALLS.replace("64 x f32>, 5)", "64 x f32>, 4)"))
    assert evaluate(other.graph, ones, {})[0].tolist() == [1.0] * 64
    itself = CALLS.replace('"arith.addf"(%x, %x) :', '"tt.call"(%x) <{callee = @twice}> :')
    itself = itself.replace("(tensor<64xf32>, tensor<64xf32>) ->", "(tensor<64xf32>) ->", 1)
    with pytest.raises(UnimportableError, match="calls itself"):
        raise_kernel(itself)
    with pytest.raises(UnimportableError, match="whose body is not in the file"):
        raise_kernel(CALLS.replace("callee = @twice", "callee = @thrice"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"tt.make_range"()', '"tt.make_range"(%n)'),
        ('"tt.return"() : () -> ()', ""),
        ('"scf.yield"(%3) : (tensor<64xf32>) -> ()', '"scf.yield"() : () -> ()'),
        ('"tt.load"(%2) : (tensor<64x!tt.ptr<f32>>)', '"tt.load"(%0) : (tensor<64xi32>)'),
        ('"arith.cmpi"(%n, %4)', '"arith.cmpi"(%n)'),
    ],
)
def test_operations_that_are_not_built_as_their_names_say_are_errors(before: str, after: str) -> None:
    changed = CALLS.replace(before, after).replace('"arith.cmpi"(%n) <{predicate = 4 : i64}> : (i32, i32)',
                                                   '"arith.cmpi"(%n) <{predicate = 4 : i64}> : (i32)')  # fmt: skip
    changed = changed.replace('"tt.make_range"(%n) <{end = 64 : i32, start = 0 : i32}> : ()',
                              '"tt.make_range"(%n) <{end = 64 : i32, start = 0 : i32}> : (i32)')  # fmt: skip
    with pytest.raises(IrError, match=r"^\d+:\d+: (tt|scf|arith)\..*(cannot take|must have)"):
        raise_kernel(changed)


def test_programs_that_write_one_place_are_refused_unless_they_write_the_same() -> None:
    """Every program stores its block to the first one; or, with a second grid axis, each block is stored twice."""
    clash = ADD.replace('"tt.addptr"(%8, %5)', '"tt.addptr"(%8, %3)')
    launch = parse_launch("launch(tensor<1024 x f32>, tensor<1024 x f32>, tensor<256 x f32>, 1024) grid(4)")
    with pytest.raises(UnimportableError, match="several programs or iterations write one element"):
        raise_kernel(clash, launch=launch)
    twice = parse_launch(f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1000) grid(4, 2)")
    assert print_graph(raise_kernel(ADD, launch=twice).graph) == print_graph(raise_kernel(ADD).graph)


def test_a_kernel_in_place_reads_what_was_there_before() -> None:
    """x = x + y is raised; a shifted load from what other programs store to is not."""
    in_place = ADD.replace('%8 = "tt.splat"(%arg2)', '%8 = "tt.splat"(%arg0)')
    (out,) = evaluate(raise_kernel(in_place).graph, {"arg0": np.ones(1000, "f4"), "arg1": np.ones(1000, "f4")}, {})
    assert out.tolist() == [2.0] * 1000
    twice = parse_launch(f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1000) grid(4, 2)")
    with pytest.raises(UnimportableError, match="what other programs may be loading"):
        raise_kernel(in_place, launch=twice)
    shifted = in_place.replace('"tt.addptr"(%10, %5)', '"tt.addptr"(%10, %3)')
    with pytest.raises(UnimportableError, match="what other programs may be loading"):
        raise_kernel(shifted)


def test_elements_outside_a_mask_may_not_take_part_in_a_reduction() -> None:
    """Loaded as 0 instead of -inf, what is beyond a row would be its maximum."""
    assert SOFTMAX.count("0xFF800000") == 1
    with pytest.raises(UnimportableError, match="load them as -inf, not 0"):
        raise_kernel(SOFTMAX.replace("0xFF800000", "0.000000e+00"))


def test_index_arithmetic_that_overflows_is_refused() -> None:
    launch = parse_launch(f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1000) grid(1048576)")
    text = ADD.replace("value = 256 : i32", "value = 4096 : i32")
    with pytest.raises(UnimportableError, match="which i32 cannot hold"):
        raise_kernel(text, launch=launch)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ("", "is not a launch"),
        ("launch(1) grid()", "numbers of programs"),
        ("launch(1) grid(0)", "numbers of programs"),
        ("launch(1) grid(1, 2, 3, 4)", "one to three"),
        ("launch(1) grid(1048577)", "up to 2"),
        ("launch(tensor<4 x u8>) grid(1)", "is not a tensor"),
        ("launch(tensor<0 x f32>) grid(1)", "is not a tensor"),
        ("launch(n) grid(1)", "neither a tensor nor a number"),
    ],
)
def test_a_launch_that_is_none_is_refused(launch: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_launch(launch)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (f"launch({VECTOR}, {VECTOR}, 1000) grid(4)", "has 3 arguments, the kernel takes"),
        (f"launch({VECTOR}, {VECTOR}, 1000, {VECTOR}) grid(4)", "argument 2 of the launch is 1000"),
        (f"launch({VECTOR}, {VECTOR}, {VECTOR}, 1.5) grid(4)", "argument 3 of the launch is 1.5"),
        (f"launch({VECTOR}, {VECTOR}, tensor<1000 x f16>, 1000) grid(4)", "argument 2 of the launch is tensor"),
    ],
)
def test_a_launch_must_fit_the_kernel(launch: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        raise_kernel(ADD, launch=parse_launch(launch))


def test_a_kernel_without_a_launch_says_what_it_takes() -> None:
    with pytest.raises(RequestError, match=r"tensor or number for each of \(!tt.ptr<f32>, .*, i32\)"):
        raise_kernel("\n".join(ADD.splitlines()[2:]))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"tt.return"', "tt.return", "24:5: expected a string"),
        ("%arg0: !tt.ptr<f32>", "%arg0: !tt.ptr<f32", "5:28: expected an address space"),
        ("tensor<256xi32>\n", "tensor<256xi32, #blocked>\n", "TritonGPU IR"),
        ("({\n", "({\n  ^bb0:\n  ^bb1:\n", "several blocks"),
        ("%1, %0", "%1, %77", "%77 is used before it is defined"),
        ("(i32, i32) -> i32", "(i32, i64) -> i32", "says it takes"),
        ("%1 =", "%0 =", "%0 is defined twice"),
        ("value = 256 : i32", "value = 256.5 : i32", "256.5 as i32"),
        ("tensor<256xi32>", "tensor<0xi32>", "a dimension of 0"),
        ("-> i32", "", "expected '->'"),
    ],
)
def test_text_that_is_no_ir_is_an_error_with_its_place(before: str, after: str, message: str) -> None:
    with pytest.raises(IrError, match=message) as caught:
        raise_kernel(ADD.replace(before, after, 1))
    assert caught.value.line > 0 and caught.value.column > 0


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("<{a = " + "[" * 1000, "nested more than 32 deep"),
        ("<{a = " + "{a = " * 1000, "nested more than 32 deep"),
        ("<{a = " + "(" * 1000, "expected a type"),
        ("<{a = " + "tensor<1x" * 1000, "nested more than 32 deep"),
        ("<{a = " + "!tt.ptr<" * 1000, "nested more than 32 deep"),
        ('({"a"() ' * 1000, "nested more than 32 deep"),
        ("<{a = " + "<" * 1000, "expected a type"),
        ("<{a = #x" + "<" * 1000, "never closed"),
        ("<{a = " + "9" * 5000, "a number of 5000 characters"),
        ("<{a = 1 : i" + "9" * 5000, "expected '}'|expected ','"),
        ("<{a = tensor<99999999999xf32>", "a dimension of 99999999999"),
        ("<{a = 0xFFFFFFFFFF : f32", "has more bits than f32"),
        ('<{a = "' + "x" * 5000, "expected a string"),
    ],
)  # fmt: skip
def test_hostile_text_is_an_error_with_its_place(inside: str, message: str) -> None:
    with pytest.raises(IrError, match=message) as caught:
        raise_kernel('"builtin.module"() ' + inside)
    assert caught.value.line == 1 and caught.value.column > 0


def test_text_with_characters_overwritten_is_raised_or_refused() -> None:
    chance, ends = random.Random(1), Counter[str]()
    for _ in range(150):
        damaged = list(SOFTMAX)
        for _ in range(chance.randint(1, 2)):
            damaged[chance.randrange(len(damaged))] = chance.choice('%"(){}<>:=,0123 x-#@!ifa')
        try:
            raise_kernel("".join(damaged))
            ends["raised"] += 1
        except (IrError, UnimportableError, RequestError) as error:
            ends[type(error).__name__] += 1
    assert len(ends) == 4, ends


def test_every_text_cut_short_is_an_error_with_its_place() -> None:
    for length in range(len(ADD.rstrip()) - 1, 0, -7):
        with pytest.raises(IrError) as caught:
            raise_kernel(ADD[:length])
        assert caught.value.line > 0


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nothing"):
        import_triton(tmp_path / "nothing.ttir")
