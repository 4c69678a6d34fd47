"""The machine: control instructions, contexts taking turns, examples on the null executor and on tiny models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.images import make_batch, plain_image
from unsay.errors import ContextFullError, MachineError, PositionError
from unsay.isa.opcodes import OPCODES, Peripheral
from unsay.kv.pages import PagePool
from unsay.kv.tree import KvTree
from unsay.runtime import reference
from unsay.runtime.null import NullExecutor
from unsay.runtime.reference import ReferenceExecutor
from unsay.vm import control
from unsay.vm.assembler import assemble
from unsay.vm.context import Context
from unsay.vm.machine import Machine
from unsay.vm.peripherals import Peripherals

EXAMPLES = Path(__file__).parents[2] / "examples"
EXECUTORS = {"null": NullExecutor, "reference": ReferenceExecutor}


class Bench:
    """A machine over a small model, with a tree to run contexts in."""

    def __init__(self, image, executor="null"):
        self.tree = KvTree(PagePool(image.manifest.spec.kv_layout.page_bytes, 64))
        self.image = image
        self.machine = Machine(EXECUTORS[executor](image, self.tree.pool.memory, 1), image.weights)

    def context(self, token_ids=()):
        context = Context(self.tree.root())
        context.append(token_ids)
        return context

    def run(self, text, token_ids=(), **options):
        """Run assembly to its end: (tokens by context, outcome)."""
        program = assemble(text).program if isinstance(text, str) else text
        events = self.machine.execute(program, self.context(token_ids), **options)
        tokens = {}
        while True:
            try:
                event = next(events)
            except StopIteration as stop:
                self.tree.check()
                return tokens, stop.value
            tokens.setdefault(event.context_id, []).append(event.token_id)

    def greedy(self, token_ids, count):
        """The same continuation without a program."""
        context = self.context(token_ids)
        chosen = []
        for _ in range(count):
            context.branch.reserve(len(context.pending))
            batch = make_batch(
                [(context.branch.length, context.pending)], [context.branch.page_table()], [len(context.pending) - 1]
            )
            chosen.append(int(np.argmax(self.machine.run(batch)[0])))
            context.commit(len(context.pending))
            context.append(chosen[-1:])
        context.release()
        return chosen


@pytest.fixture(scope="module")
def image(tiny_path):
    return plain_image(tiny_path)


@pytest.fixture
def bench(image):
    return Bench(image)


@pytest.fixture(params=EXECUTORS)
def either(request, image):
    return Bench(image, request.param)


def registers(bench, text, **options):
    _, outcome = bench.run(text + "\nHALT", **options)
    return outcome.contexts[0].registers


def test_every_opcode_has_a_handler_and_none_is_left_over():
    named = set(control.HANDLERS) | set(reference.HANDLERS)
    assert named == {row.name for row in OPCODES}
    assert set(control.HANDLERS) & set(reference.HANDLERS) == {"STREAM"}


def test_arithmetic_is_of_128_bits_and_unsigned(bench):
    got = registers(
        bench,
        """
        LOAD R1, low=1, high=0
        LOAD R2, low=0xffffffffffffffff, high=0xffffffffffffffff
        IADD R3, R1, R2
        IADD R4, R2, R2
        COMPARE.LESS R5, R1, R2
        COMPARE.EQUAL R6, R2, R2
        COMPARE.LESS R7, R2, R2
        COMPARE.LESS.EQUAL R8, R2, R2
        COMPARE R9, R1, R1
    """,
    )
    assert got[3:10] == [0, 2**128 - 2, 1, 1, 0, 1, 0]


def test_r0_reads_zero_whatever_is_written(bench):
    assert registers(bench, "LOAD R0, low=5, high=0\nIADD R1, R0, R0")[:2] == [0, 0]


def test_branches(bench):
    got = registers(
        bench,
        """
        LOAD R1, low=5, high=0
        LOAD R2, low=0xffffffffffffffff, high=0xffffffffffffffff
        LOAD R4, low=3, high=0
    again: IADD R3, R3, R4
        IADD R1, R1, R2
        BRANCH R1, label=again
        BRANCH.IF_ZERO R3, label=again
    """,
    )
    assert got[3] == 15


def test_step_sample_emit_is_greedy_decoding(either):
    tokens, outcome = either.run("""
        LOAD R1, low=6, high=0
        LOAD R2, low=0xffffffffffffffff, high=0xffffffffffffffff
    next: STEP R4
        STREAM R3, channel=SAMPLE
        STREAM -, R3, channel=EMIT
        IADD R1, R1, R2
        BRANCH R1, label=next
        HALT
    """, [5, 6, 7])  # fmt: skip
    assert tokens[0] == either.greedy([5, 6, 7], 6)
    assert outcome.contexts[0].branch.token_ids() == [5, 6, 7, *tokens[0][:-1]]
    assert outcome.num_steps == 2 + 5 * 6 + 1 and not outcome.interrupted


def test_a_long_prompt_is_computed_in_steps_the_executor_can_hold(bench):
    bench.machine.executor._max_tokens = 7
    prompt = list(range(30))
    tokens, _ = bench.run("STEP R1\nSTREAM R1, channel=SAMPLE\nSTREAM -, R1, channel=EMIT\nHALT", prompt)
    assert tokens[0] == bench.greedy(prompt, 1)


def test_fork_gives_the_child_the_same_state_and_another_id(bench):
    tokens, outcome = bench.run("""
        STEP R1
        FORK R4, label=child
        LOAD R2, low=100, high=0
        STREAM -, R2, channel=EMIT
        STREAM -, R4, channel=EMIT
        HALT
    child: STREAM R3, channel=SAMPLE
        STREAM -, R3, channel=EMIT
        STREAM -, R4, channel=EMIT
        HALT
    """, [9, 8])  # fmt: skip
    assert tokens[0] == [100, 1]
    assert tokens[1] == [bench.greedy([9, 8], 1)[0], 0]
    assert outcome.contexts[0].length == 2 and outcome.contexts[1].length == 3


def test_abort_goes_back_to_the_checkpoint_and_injects(bench):
    peripherals = Peripherals()
    peripherals.post(Peripheral.USER_INPUT, [50, 51], target=5)
    _, outcome = bench.run("""
        LOAD R6, low=7, high=0
        STEP R1
        CHECKPOINT R2
        SENSE R5, peripheral=USER_INPUT
        BRANCH.IF_ZERO R5, label=done
        LOAD R6, low=0, high=0
        STREAM R3, channel=SAMPLE
        STEP R1
        STREAM R3, channel=SAMPLE
        ABORT R0, R5
    done: HALT
    """, [1, 2, 3, 4], peripherals=peripherals)  # fmt: skip
    context = outcome.contexts[0]
    assert context.registers[2:7] == [4, 0, 0, 0, 7]
    assert context.branch.token_ids() == [1, 2, 3, 4, *bench.greedy([1, 2, 3, 4], 1)] and context.pending == [50, 51]


def test_abort_before_every_checkpoint_starts_the_program_again(bench):
    with pytest.raises(MachineError, match="did not halt within 60"):
        bench.run("""
            STEP R1
            LOAD R5, low=@fix, high=0
            ABORT R0, R5
            HALT
        .data
        fix: .record 1 50
        """, [1, 2, 3], max_steps=60)  # fmt: skip


def test_a_correction_whose_target_does_not_exist_is_a_position_error(bench):
    text = "LOAD R5, low=@fix, high=0\nABORT R0, R5\nHALT\n.data\nfix: .record {} 1"
    for target in (4, -1, 2**63 - 1, -(2**63)):
        with pytest.raises(PositionError, match=r"0\.\.3"):
            bench.run(text.format(target), [1, 2, 3])


def test_abort_of_another_context_makes_it_run_again(bench):
    _, outcome = bench.run("""
        FORK R4, label=child
        SENSE R1, peripheral=GUARD
        SENSE R1, peripheral=GUARD
        LOAD R5, low=@fix, high=0
        ABORT R4, R5
        HALT
    child: CHECKPOINT -
        STEP R1
        STREAM R2, channel=SAMPLE
        HALT
    .data
    fix: .record 3 60
    """, [1, 2, 3])  # fmt: skip
    child = outcome.contexts[1]
    assert child.branch.token_ids() == [1, 2, 3, 60] and child.pending == bench.greedy([1, 2, 3, 60], 1)
    assert outcome.contexts[0].pending == [1, 2, 3]


CORRECT = (EXAMPLES / "correct.avms").read_text()


def test_the_example_takes_words_back(either):
    """What was kept stays, the correction stands at its place, and the answer goes on as if it had always been so."""
    peripherals = Peripherals()
    peripherals.post(Peripheral.USER_INPUT, [5, 6, 7, 8])
    plain, _ = either.run(CORRECT, peripherals=peripherals)

    peripherals.post(Peripheral.USER_INPUT, [5, 6, 7, 8])
    program = assemble(CORRECT).program
    events = either.machine.execute(program, either.context(), peripherals=peripherals)
    tokens = {0: [], 1: []}
    outcome = None
    while outcome is None:
        try:
            event = next(events)
            tokens[event.context_id].append(event.token_id)
            if len(tokens[0]) == 6 and event.context_id == 0:
                peripherals.post(Peripheral.USER_INPUT, [70, 71, 72], target=4 + 3)
        except StopIteration as stop:
            outcome = stop.value
    kept = [5, 6, 7, 8, *plain[0][:3], 70, 71, 72]
    assert tokens[0][:6] == plain[0][:6] and tokens[1] == plain[1] == plain[0][:4]
    rest = either.greedy(kept, 24)
    rest = rest[: rest.index(2) + 1] if 2 in rest else rest
    assert tokens[0][6:] == rest
    final = outcome.contexts[0]
    assert (final.branch.token_ids() + final.pending)[: len(kept)] == kept
    either.tree.check()


def test_the_tensor_example_counts(either):
    program = (EXAMPLES / "tensors.avms").read_text()
    for prompt in ([3], [0, 9, 14], [7, 7]):
        tokens, outcome = either.run(program, prompt)
        assert tokens[0] == [prompt[-1] + 1] and outcome.logits.shape == (16,)


def test_a_compiled_model_run_as_a_program_gives_the_logits_of_the_executor(image):
    bench = Bench(image, "reference")
    prompt = [5, 9, 200, 31]
    _, outcome = bench.run(image.program, prompt)
    step = bench.machine.run(make_batch([(0, prompt)], [[60]], [3]))
    assert np.array_equal(outcome.logits[: image.manifest.spec.vocab_size], step[0])
    assert outcome.contexts[0].branch.token_ids() == prompt


def test_an_idle_program_sleeps_until_there_is_input(bench):
    """It looks twice before each sleep, and never without one."""

    class SilentForAWhile(Peripherals):
        num_sleeps = 0

        def wait(self, timeout_s):
            assert timeout_s > 0
            self.num_sleeps += 1
            if self.num_sleeps == 5:
                self.post(Peripheral.VAD)
            return self.num_sleeps == 5

    text = "wait: SENSE R1, peripheral=VAD\nBRANCH.IF_ZERO R1, label=wait\nHALT"
    peripherals = SilentForAWhile()
    _, outcome = bench.run(text, peripherals=peripherals)
    assert peripherals.num_sleeps == 5
    assert outcome.num_steps <= 2 * 2 * 5 + 3


def test_a_program_that_waits_for_what_cannot_come_is_stopped(bench):
    peripherals = Peripherals()
    peripherals.close()
    with pytest.raises(MachineError, match="nothing more will come"):
        bench.run("wait: SENSE R1, peripheral=GUARD\nJUMP label=wait", peripherals=peripherals)


def test_an_interrupted_step_commits_nothing(bench):
    bench.machine.executor.interrupt_word[0] = 1
    _, outcome = bench.run("STEP R1\nHALT", [1, 2])
    assert outcome.interrupted and outcome.contexts[0].branch.length == 0 and outcome.contexts[0].pending == [1, 2]


TENSOR = "TENSOR{} R1, dtype={}, rank=2, dim0={}, dim1={}, dim2=1, dim3=1, offset={}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("loop: JUMP label=loop", "did not halt within 500 instructions; raise --max-steps"),
        ("loop: FORK R1, label=loop\nJUMP label=loop", "did not halt within"),
        ("JUMP label=99", "ran off the program"),
        ("LOAD R1, low=1, high=1", "ran off the program"),
        ("STEP R1", "no pending tokens"),
        ("STREAM R1, channel=SAMPLE", "no logits"),
        ("STREAM R1, channel=EMIT", "ra is needed"),
        ("STREAM R1, R2, channel=9", "channel 9"),
        ("SENSE R1, peripheral=9", "no peripheral 9"),
        ("LOAD R1, low=7, high=0\nABORT R1, R2", "no context 7"),
        ("ABORT R0, R2", "no record at"),
        ("LOAD R1, low=0, high=0x1000000000000000\nSTREAM -, R1, channel=INJECT", "no record at"),
        ("LOAD R1, low=0, high=0x4000000000000000\nSTREAM -, R1, channel=INJECT", "not an address"),
        ("LOAD R1, low=0, high=0x100000000\nSTREAM -, R1, channel=INJECT", "not an address"),
        ("LOAD R1, low=@x, high=0\nSTREAM -, R1, channel=INJECT\n.data\nx: .i64 -1\n.i32 9999 1", "room for"),
        ("ADD R1, R2, R3", "names no tensor"),
        (TENSOR.format("", "F32", 4, 4, "none").replace("rank=2", "rank=5"), "rank 5"),
        (TENSOR.format("", "F32", 0, 4, "none"), "no dimension may be 0"),
        (TENSOR.format("", "Q8A", 4, 33, "none"), "blocks are 32"),
        (TENSOR.format("", 99, 4, 4, "0"), "0x63"),
        (TENSOR.format(".REGION0.REGION1", "F32", 4, 4, "0xffffffffff"), "outside its memory"),
        (TENSOR.format("", "F32", 2**31, 2**31, 0) + "ADD R1, R1, R1", "its region ends"),
        (TENSOR.format("", "F32", 2**31, 2**31, "none") + "ADD R1, R1, R1", "its region ends"),
        (TENSOR.format("", "F32", 4, 4, "@x") + "ADD R1, R1, R1\n.data\nx: .zero 64", "cannot be written"),
        (TENSOR.format(".REGION1", "F32", 4, 4, 0) + "ADD R1, R1, R1", "cannot be written"),
        (TENSOR.format(".DIM_ROWS", "F32", 1, 4, "none") + "STREAM -, R1, channel=LOGITS", "no pending tokens"),
        (TENSOR.format("", "F32", 4, 4, "none").replace("R1", "R0"), "R0"),
    ],
)  # fmt: skip
def test_what_the_machine_forbids(bench, text, says):
    with pytest.raises(MachineError) as caught:
        bench.run(text, max_steps=500)
    assert says in str(caught.value)


def test_forks_without_end_are_stopped(bench):
    with pytest.raises(MachineError, match="1024 contexts"):
        bench.run("loop: FORK R1, label=loop\nJUMP label=loop", max_steps=10**6)


def test_a_context_longer_than_the_model_allows_is_refused(bench):
    with pytest.raises(ContextFullError, match="1025 tokens, the model's context holds 1024"):
        bench.run("STEP R1\nHALT", [1] * 1025)


@pytest.mark.parametrize(
    "text",
    [
        "LOAD R1, low=@r, high=0\nSTREAM -, R1, channel=INJECT\nSTEP R2\nHALT\n.data\nr: .record -1 5 2000000000",
        "TENSOR R1, dtype=F32, rank=2, dim0=1, dim1=400, dim2=0, dim3=0, offset=0\n"
        "STREAM -, R1, channel=LOGITS\nSTREAM R2, -, channel=SAMPLE\nSTEP R3\nHALT",
    ],
    ids=["injected", "sampled from logits of the program's own"],
)
def test_a_token_outside_the_vocabulary_never_reaches_the_executor(tiny_path, text):
    """The embedding row of such a token lies outside the weights: a native step once read it and ended the process."""
    bench = Bench(plain_image(tiny_path))
    bench.machine.executor.run = lambda batch: pytest.fail(f"ran {batch.token_ids}")
    with pytest.raises(MachineError, match=r"not in the vocabulary of the linked model, 0\.\.292"):
        bench.run(text, [5], choose=lambda logits, context: 399)


def test_more_logits_than_there_is_room_for_are_refused(tiny_path):
    wide = "TENSOR R1, dtype=F32, rank=2, dim0=1, dim1=33554432, dim2=0, dim3=0, offset=0"
    with pytest.raises(MachineError, match="134217728 bytes of logits"):
        Bench(plain_image(tiny_path)).run(f"{wide}\nSTREAM -, R1, channel=LOGITS\nHALT", [5])


def test_a_compiled_models_program_without_a_prompt_says_so(image):
    program = Bench(image).image.program
    with pytest.raises(MachineError, match="begin with a prompt"):
        Bench(image).run(program)
