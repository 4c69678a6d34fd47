"""A memory plan holds: run in the arena it plans a graph gives the same, and values that meet there are refused."""

import json

import numpy as np
import pytest

from unsay.compiler.dialect.domains import FLOAT
from unsay.compiler.dialect.sema import OFFSETS
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.plan_memory import plan_memory
from unsay.compiler.passes.schedule import schedule
from unsay.compiler.verify.memory_plan import check_memory, memory_plan
from unsay.compiler.verify.spec import Level, check
from unsay.errors import IrError

_TEXT = """graph g() {
  %x = input() {name = "x"} : tensor<4 x 32 x f32>
  %a = exp(%x) : tensor<4 x 32 x f32>
  %b = neg(%x) : tensor<4 x 32 x f32>
  %c = mul(%b, %b) : tensor<4 x 32 x f32>
  %d = mul(%a, %c) : tensor<4 x 32 x f32>
  %r = reshape(%d) : tensor<128 x f32>
  %e = neg(%r) : tensor<128 x f32>
  %f = add(%e, %r) : tensor<128 x f32>
  %h = exp(%e) : tensor<128 x f32>
  output(%f, %h, %r)
}
"""


def _run_in_arena(graph: Graph, x: np.ndarray, order: list[int]) -> list[np.ndarray]:
    """Every value is written where the plan says, and read from there."""
    arena = np.full(int(graph.sema["arena_bytes.cpu"]), 0xA5, np.uint8)
    places: dict[Value, np.ndarray] = {}
    for operation in (graph.operations[index] for index in order):
        operands = [places[operand] for operand in operation.operands]
        if operation.kind == "output":
            return [operand.copy() for operand in operands]
        shape = operation.result.type.dims
        if operation.kind == "input":
            places[operation.result] = x
        elif operation.kind == "reshape":
            places[operation.result] = operands[0].reshape(shape)
        else:
            (offset,) = operation.integers(OFFSETS)
            place = arena[offset : offset + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
            place[:] = SEMANTICS[operation.kind](FLOAT, operation, operands)[0]
            places[operation.result] = place
    raise AssertionError("no output")


def _planned(stages: bool) -> Graph:
    graph = parse(_TEXT)
    if stages:
        schedule(graph)
    assert plan_memory(graph) == 7
    check(graph, Level.TENSOR)
    return graph


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stages", [False, True])
def test_a_graph_run_in_its_plan_gives_the_same(stages: bool, seed: int):
    graph, random = _planned(stages), np.random.default_rng(seed)
    x = random.standard_normal((4, 32)).astype(np.float32)
    order = list(range(len(graph.operations)))
    if stages:
        random.shuffle(order)
        order.sort(key=lambda index: graph.operations[index].integer("sema.stage"))
    for expected, got in zip(evaluate(parse(_TEXT), {"x": x}, {}), _run_in_arena(graph, x, order), strict=True):
        assert np.array_equal(expected, got)


def test_what_is_free_again_is_used_again():
    assert _planned(stages=False).sema["arena_bytes.cpu"] == 4 * 512 < 7 * 512


def test_the_report_is_what_is_in_the_graph():
    graph = _planned(stages=True)
    plan = memory_plan(graph)
    assert plan.arena_bytes == {"cpu": graph.sema["arena_bytes.cpu"]}
    fields = json.loads(plan.to_json())
    assert fields["by"] == "stage" and {line["name"] for line in fields["values"]} == set("abcdefh")
    lines = plan.to_text().splitlines()
    assert lines[0] == f"g, cpu: {plan.arena_bytes['cpu']} bytes" and len(lines) == 1 + 7
    assert all(line["num_bytes"] == 512 for line in fields["values"])


def test_every_plan_with_two_living_values_in_one_place_is_refused():
    graph = _planned(stages=False)
    refused = 0
    for operation in graph.operations:
        if OFFSETS in operation.attributes:
            (offset,) = operation.integers(OFFSETS)
            for other in range(0, 2048, 64):
                operation.attributes[OFFSETS] = (other,)
                refused += _is_refused(graph)
            operation.attributes[OFFSETS] = (offset,)
            assert not _is_refused(graph)
    assert refused > 100


def _is_refused(graph: Graph) -> bool:
    try:
        check_memory(graph)
    except IrError as error:
        return "lives at the same time; run plan_memory" in str(error)
    return False


def test_sizes_without_a_bound_worth_the_name_are_refused():
    text = """graph g(B: 1..1000000, T: 1..1000000)%s {
  %%x = input() {name = "x"} : tensor<B x T x 1000000 x f32>
  %%y = exp(%%x) : tensor<B x T x 1000000 x f32>
  output(%%y)
}"""
    with pytest.raises(IrError, match=r"may take 4\.0e\+18 bytes on the cpu: give its dimensions narrower ranges"):
        plan_memory(parse(text % ""))
    graph = parse(text % " where B*T <= 1000")
    plan_memory(graph)
    assert graph.sema["arena_bytes.cpu"] == 4 * 10**9


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%b = neg(%x) {sema.offsets = [512]}", "%b = neg(%x) {sema.offsets = [508]}",
         "4:3: %b lies on %a, which lives at the same time"),
        ("%b = neg(%x) {sema.offsets = [512]}", "%b = neg(%x)", "4:3: %b = neg(...): all operations that make values"),
        ("%b = neg(%x) {sema.offsets = [512]}", "%b = neg(%x) {sema.offsets = [0, 512]}", "one for each, got (0, 512)"),
        ("%b = neg(%x) {sema.offsets = [512]}", "%b = neg(%x) {sema.offsets = [-512]}", "got (-512,)"),
        ("%b = neg(%x) {sema.offsets = [512]}", "%b = neg(%x) {sema.offsets = [inf]}", "got (inf,)"),
        ("%b = neg(%x) {sema.offsets = [512]}", "%b = neg(%x) {sema.offsets = [2048]}",
         "4:3: %b ends at byte 2560 of the cpu, arena_bytes.cpu is 2048; run plan_memory"),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_hold_is_refused_with_its_line(old: str, new: str, message: str):
    text = print_graph(_planned(stages=False))
    assert old in text
    with pytest.raises(IrError) as refused:
        check(parse(text.replace(old, new)), Level.TENSOR)
    assert message in str(refused.value)
