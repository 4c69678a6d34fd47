"""ONNX models give what onnxruntime gives: operator by operator, and as torch.onnx exports them (tests/data/onnx)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from tests.compiler.frontend.onnx_bytes import field, model, node, port, tensor
from tests.compiler.frontend.onnx_cases import CASES, Case
from unsay.cli.main import main
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.frontend.onnx import import_onnx
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.errors import RequestError, UnimportableError, UnsupportedError

DATA = Path(__file__).parents[2] / "data" / "onnx"
Array = NDArray[Any]


def by_onnxruntime(path: Path, inputs: dict[str, Array]) -> list[Array]:
    """The outputs, computed on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, inputs)]


def compare(path: Path, inputs: dict[str, Array], ranges: dict[str, tuple[int, int]] | None = None) -> list[Array]:
    imported = import_onnx(path, ranges)
    text = print_graph(imported.graph)
    verify(parse(text))
    assert print_graph(parse(text)) == text
    outputs = evaluate(imported.graph, inputs, imported.weights)
    for made, wanted in zip(outputs, by_onnxruntime(path, inputs), strict=True):
        assert made.shape == wanted.shape and made.dtype == wanted.dtype
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    return outputs


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_what_onnxruntime_gives(tmp_path: Path, name: str) -> None:
    case: Case = CASES[name]
    path = tmp_path / "case.onnx"
    path.write_bytes(case.model().SerializeToString())
    compare(path, case.inputs, dict.fromkeys(case.dims.values(), (2, 9)))


@pytest.mark.parametrize("name", ["cnn", "llama", "llama_dynamic", "llama_cache"])
def test_an_exported_model_gives_what_torch_and_onnxruntime_give(name: str) -> None:
    data = dict(np.load(DATA / f"{name}.npz"))
    by_torch = [data.pop(key) for key in sorted(data) if key.startswith("out")]
    for made, wanted in zip(compare(DATA / f"{name}.onnx", data), by_torch, strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 2)])
def test_a_dynamic_llama_runs_at_other_sizes(shape: tuple[int, int]) -> None:
    compare(DATA / "llama_dynamic.onnx", {"input_ids": np.random.default_rng(1).integers(0, 64, shape)})


@pytest.mark.parametrize(("past", "new"), [(1, 1), (9, 2), (2, 7)])
def test_a_step_with_a_cache_runs_at_other_sizes(past: int, new: int) -> None:
    """One token of the first row is masked."""
    values = np.random.default_rng(2)
    cache = {name: values.standard_normal((3, 2, past, 8)).astype(np.float32) for name in ("k0", "v0", "k1", "v1")}
    mask = np.ones((3, past + new), np.int64)
    mask[0, 0] = 0
    ids = values.integers(0, 64, (3, new))
    _, keys, *_ = compare(DATA / "llama_cache.onnx", {"input_ids": ids, "attention_mask": mask, **cache})
    assert keys.shape == (3, 2, past + new, 8)


def test_symbolic_sizes_become_dimensions() -> None:
    graph = import_onnx(DATA / "llama_dynamic.onnx", {"T": (2, 32)}).graph
    assert (graph.dims["T"].low, graph.dims["T"].high) == (2, 32)
    formulas = {name: str(dim.formula) for name, dim in graph.dims.items() if dim.formula}
    assert formulas == {"T_plus_1": "T + 1", "B_times_T": "B*T"}
    with pytest.raises(RequestError, match="no dimension S, it has B, T"):
        import_onnx(DATA / "llama_dynamic.onnx", {"S": (1, 2)})


def test_a_shape_computed_by_nodes_leaves_a_reshape_and_nothing_else() -> None:
    graph = import_onnx(DATA / "llama.onnx").graph
    kinds = {operation.kind for operation in graph.operations}
    assert kinds <= {
        "add", "concat", "constant", "cos", "gather", "input", "matmul", "mul", "neg", "output", "reciprocal", "sqrt",
        "reduce_mean", "reshape", "broadcast_to", "silu", "sin", "slice", "softmax", "transpose", "weight", "sub",
        "select", "less_equal", "and", "iota", "cast", "sigmoid",
    }  # fmt: skip


def load(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(raw)
    import_onnx(path)


def test_all_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    """Operators, domains, attributes, types; what reads them, and what no output needs, is not."""
    nodes = [
        node("Loop", "x", "a"),
        node("MatMulNBits", "x", "b", domain="com.microsoft", bits=4),
        node("Add", "a b", "c"),
        node("Softmax", "x", "d", blocked=2),
        node("Cast", "x", "e", to=8),
        node("Resize", "x", "unused"),
        node("Sum", "c d e", "y"),
    ]
    with pytest.raises(UnimportableError) as caught:
        load(tmp_path, model(nodes, [port("x", [2, 3])], ["y"]))
    problems = caught.value.problems
    assert len(problems) == 4 and all("/" in problem for problem in problems)
    for start, end in (
        ("Loop (domain ai.onnx, opset 17)", "no rule for it"),
        ("MatMulNBits (domain com.microsoft, opset ?)", "no rule for it; attributes bits = 4"),
        ("Softmax (domain ai.onnx, opset 17)", "attribute blocked = 2 is not known"),
        ("Cast (domain ai.onnx, opset 17)", "element type string; LLMIR has f32, i8, i32, i64, bool, f16, f64, bf16"),
    ):
        assert any(problem.startswith(start) and problem.endswith(end) for problem in problems), (start, problems)


def test_an_operator_set_that_is_not_read_is_named(tmp_path: Path) -> None:
    for opset in (6, 26):
        with pytest.raises(UnsupportedError, match=f"operator set {opset}; 7 to 25 are supported"):
            load(tmp_path, model([node("Relu", "x", "y")], [port("x", [2])], ["y"], opset=opset))


def test_a_question_the_sizes_decide_is_refused(tmp_path: Path) -> None:
    """T may be less than 5, so a slice of five elements may have fewer."""
    slices = [tensor("s", np.array([0])), tensor("e", np.array([5]))]
    with pytest.raises(UnimportableError, match="depends on the sizes"):
        load(tmp_path, model([node("Slice", "x s e", "y")], [port("x", ["T"])], ["y"], slices))


@pytest.mark.parametrize(
    ("kind", "inputs", "constant", "attributes", "message"),
    [
        ("Expand", ["T"], [4], {}, "do not broadcast, or only at some sizes"),
        ("Squeeze", ["T", 2], None, {}, "whether T is 1 depends on the sizes"),
        ("ReduceSum", ["T"], None, {"keepdims": 2}, "attribute keepdims = 2 must be 0 or 1"),
        ("Softmax", ["T"], None, {"axis": 1}, "axis 1 of a tensor with 1 dimensions"),
        ("Flatten", [2, 2], None, {"axis": 1.0}, "attribute axis = 1.0 must be of int"),
        ("LeakyRelu", [2], None, {"alpha": float("nan")}, "attribute alpha = nan"),
    ],
)
def test_what_is_not_certain_or_not_allowed_is_refused(
    tmp_path: Path, kind: str, inputs: list[int | str], constant: list[int] | None, attributes: Any, message: str
) -> None:
    tensors = [] if constant is None else [tensor("c", np.array(constant))]
    made = node(kind, "x" if constant is None else "x c", "y", **attributes)
    with pytest.raises(UnimportableError, match=message):
        load(tmp_path, model([made], [port("x", inputs)], ["y"], tensors))


def test_names_that_are_spelled_alike_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model([node("MatMul", "x w", "y")], [port("x", ["a.b", "a_b"]), port("w", ["a_b", 2])], ["y"]))
    graph = import_onnx(path, {"a.b": (1, 2), "a_b": (1, 3)}).graph
    assert [(dim.name, dim.high) for dim in graph.dims.values()] == [("a_b", 2), ("a_b_1", 3)]


def test_import_prints_what_a_model_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cnn.llmir"
    assert main(["import", str(DATA / "cnn.onnx"), "--dim", "N=1..4", "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["dims"] == [{"name": "N", "low": 1, "high": 4, "formula": None}]
    assert told["inputs"] == {"image": "tensor<N x 3 x 16 x 16 x f32>"} and told["operations"]["conv2d"] == 4
    verify(parse(out.read_text()))
    assert main(["import", str(DATA / "cnn.onnx")]) == 0
    printed = capsys.readouterr().out
    assert "N: 1..65536" in printed and "tensor<N x 10 x f32>" in printed


def test_import_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(model([field(2, "y") + field(4, "Loop")], [port("x", [2])], ["y"]))
    for arguments, message in (
        ([str(bad)], "Loop (domain ai.onnx, opset 17) making 'y': no rule for it"),
        ([str(DATA / "cnn.onnx"), "--dim", "N=4..1"], "--dim N=4..1: it must be NAME=LOW..HIGH"),
        ([str(DATA / "cnn.onnx"), "--dim", "M=4"], "no dimension M, it has N"),
        ([str(DATA / "cnn.onnx"), "--launch", "launch(1) grid(1)"], "--launch is for kernels"),
        ([str(tmp_path / "nothing.onnx")], "no model or kernel at"),
    ):
        assert main(["import", *arguments]) == 1
        assert message in capsys.readouterr().err
