"""How much of the output head could be left unread, exactly: designs for a first look that bounds every logit.

Run: python -m benchmarks.head [--model M] [--tokens N] [--json]        (about two minutes)

A design reads some bytes of every row, which give a logit and a bound on its error; rows that can still win are read
in full. The bounds are Cauchy-Schwarz on what the first look left out of a row and of the hidden state. Measured on
hidden states of two greedy answers: bytes of the first look, rows that survive it, and bytes in all, as shares of the
head. `bytes`: rows that survive are read one by one. `bytes_in_groups`: 16 rows at a time, as packed weights lie.
`bound_to_error`: the mean bound over the root mean square of the errors.

planes        the upper bits of every weight, 0..255; one norm of the rest for a row
blocks        the same, a norm for every block of 32
columns       4 bits, and 8 of the columns with the most energy; axes: of the rest, its part along the main axes of
              hidden states too. Columns and axes come from hidden states of a text, which no model file has
leading       whole columns, those with the most energy
clusters      no column: the row's distance from the mean of its cluster
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report, parser
from unsay import Model, load
from unsay.core import Batch, Float32Array, Float32View
from unsay.isa.formats import QUANT_BLOCK, ROW_GROUP, DType
from unsay.isa.opcodes import Dim0, Region
from unsay.runtime.interpreted import ArrayBatch, in_arrays
from unsay.runtime.native import NativeExecutor
from unsay.runtime.tensors import Tensor, unpack_blocks

_TEXT = Path(__file__).parent.parent / "tests" / "data" / "northanger_abbey.txt"
_QUESTIONS = ("Write a Python function that merges two sorted lists.", "Tell me a story about a fox.")
_ROW_BYTES = QUANT_BLOCK + 2
"""Of a block of one row of Q8_0."""
_TEMPERATURES = (0.0, 0.7, 1.0)
_NORM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Head:
    """weights q [V, K/32, 32] (integers) and d [V, K/32]; states [N, K] of a text and of answers, and their logits."""

    q: Float32Array
    d: Float32Array
    text: Float32Array
    answers: Float32Array
    logits: Float32Array

    def matrix(self, q: Float32Array) -> Float32Array:
        """[V, K] of integers [V, K/32, 32]."""
        return (q * self.d[:, :, None]).reshape(len(q), -1)


def main() -> None:
    """Try every design."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    args = made.parse_args()
    report = Report(args)
    with load(args.model, speculate=False) as model:
        head = _record(model, args.tokens)
    for bits in (3, 4, 5, 6):
        _planes(report, head, bits)
    for num_columns, num_axes in ((32, 0), (64, 0), (64, 1), (96, 1)):
        _columns(report, head, num_columns, num_axes)
    for num_columns in (192, 288):
        _leading(report, head, num_columns)
    _clusters(report, head, 256)


def _record(model: Model, num_tokens: int) -> Head:
    """Run the model, and keep what its last product read and made."""
    executor = model.engine.machine.executor
    assert isinstance(executor, NativeExecutor)
    image = executor._keep_alive[0]  # pyright: ignore[reportPrivateUsage]
    named = {op.registers[0]: op for op in image.program if op.row.name == "TENSOR"}
    product = [op for op in image.program if op.row.name == "MATMUL"][-1]
    memory = {Region.GLOBAL: np.asarray(executor._arena), Region.PERSISTENT: np.asarray(image.weights)}  # pyright: ignore[reportPrivateUsage]
    x, weight = (
        Tensor(DType(op.integer("dtype")), (op.integer("dim0"), op.integer("dim1")), extent,
               memory[Region(op.flags & 3)][op.integer("offset"):])
        for op, extent in zip((named[r] for r in product.registers[1:3]), (Dim0.ROWS, Dim0.FIXED), strict=True)
    )  # fmt: skip
    assert weight.dtype is DType.Q8_0 and x.dtype is DType.Q8W, "the designs are for a Q8_0 head"
    assert weight.dims[0] % ROW_GROUP == 0, "and for whole groups of rows"
    states: list[Float32Array] = []
    logits: list[Float32Array] = []
    run = executor.run

    def recorded(batch: Batch) -> list[Float32View] | None:
        made = run(batch)
        assert made is not None
        states.append(_values(x, in_arrays(batch)))
        logits.append(np.array(made))
        return made

    executor.run = recorded
    model.logits(model.tokenize(_TEXT.read_text(encoding="utf-8")[20_000:21_500]))
    num_text = sum(map(len, states))
    for question in _QUESTIONS:
        with model.session(temperature=0.0) as session:
            session.user(question)
            session.generate(num_tokens)
    blocks = unpack_blocks(weight, np.arange(weight.dims[0] // ROW_GROUP))
    every = np.concatenate(states)
    q, d = np.ascontiguousarray(blocks.q.transpose(2, 0, 1)), np.ascontiguousarray(blocks.d.T)
    return Head(q, d, every[16:num_text], every[num_text::2], np.concatenate(logits)[num_text::2])


def _values(x: Tensor, batch: ArrayBatch) -> Float32Array:
    packed = x.quantised(batch)
    assert packed.hi is not None
    whole = packed.lo.astype(np.float32) + 128 * packed.hi.astype(np.float32)
    blocks = whole.reshape(len(whole), -1, QUANT_BLOCK) * packed.scale[:, :, None]
    return blocks.reshape(len(whole), -1).astype(np.float32, copy=False)


def _upper(head: Head, bits: int) -> Float32Array:
    """The weights with their lower bits at the middle of what these can be."""
    step = 2.0 ** (8 - bits)
    return (np.floor(head.q / step) * step + (step - 1) / 2).astype(np.float32)


def _planes(report: Report, head: Head, bits: int) -> None:
    upper = _upper(head, bits)
    seen, left = head.matrix(upper), head.matrix(head.q - upper)
    num_blocks = head.q.shape[1]
    share = bits * 4 + 2
    approximate = head.answers @ seen.T
    bound = _norms(head.answers)[:, None] * _norms(left)
    _judge(report, f"planes, {bits} bits", head, approximate, bound, share + _NORM_BYTES / num_blocks)
    parts = (_norms(array.reshape(-1, num_blocks, QUANT_BLOCK)) for array in (head.answers, left))
    x, w = parts
    _judge(report, f"blocks, {bits} bits", head, approximate, x @ w.T, share + 1)


def _columns(report: Report, head: Head, num_columns: int, num_axes: int) -> None:
    whole, seen = head.matrix(head.q), head.matrix(_upper(head, 4))
    energy = (head.text**2).mean(0) * ((whole - seen) ** 2).mean(0)
    best = np.argsort(-energy)[:num_columns]
    seen[:, best] = whole[:, best]
    axes: Float32Array = np.linalg.svd(head.text, full_matrices=False)[2][:num_axes]
    left, rest, typical = (a - (a @ axes.T) @ axes for a in (whole - seen, head.answers, head.text))
    approximate = head.answers @ seen.T + (head.answers @ axes.T) @ ((whole - seen) @ axes.T).T
    weight = np.sqrt(np.sqrt((typical**2).mean(0)) / np.maximum(np.sqrt((left**2).mean(0)), 1e-4)) + 1e-3
    bound = _norms(rest / weight)[:, None] * _norms(left * weight)
    share = 18 + (num_columns / 2 + 2 * num_axes + _NORM_BYTES) / head.q.shape[1]
    _judge(report, f"columns, {num_columns}, axes {num_axes}", head, approximate, bound, share)


def _leading(report: Report, head: Head, num_columns: int) -> None:
    whole = head.matrix(head.q)
    order = np.argsort(-(head.text**2).mean(0) * (whole**2).mean(0))
    best, rest = order[:num_columns], np.sort(order[num_columns:])
    approximate = head.answers[:, best] @ whole[:, best].T
    bound = _norms(head.answers[:, rest])[:, None] * _norms(whole[:, rest])
    share = (num_columns * (1 + 2 / QUANT_BLOCK) + _NORM_BYTES) / head.q.shape[1]
    _judge(report, f"leading, {num_columns} columns", head, approximate, bound, share)


def _clusters(report: Report, head: Head, num_clusters: int) -> None:
    whole = head.matrix(head.q)
    means = whole[:: len(whole) // num_clusters][:num_clusters].copy()
    near = np.zeros(len(whole), np.intp)
    for _ in range(8):
        near = (whole @ means.T - (means**2).sum(1) / 2).argmax(1)
        for cluster in np.unique(near):
            means[cluster] = whole[near == cluster].mean(0)
    approximate = (head.answers @ means.T)[:, near]
    bound = _norms(head.answers)[:, None] * _norms(whole - means[near])
    _judge(report, f"clusters, {num_clusters}", head, approximate, bound, 2 * _NORM_BYTES / head.q.shape[1])


def _norms(a: Float32Array) -> Float32Array:
    return np.sqrt((a**2).sum(-1))


def _judge(
    report: Report, name: str, head: Head, approximate: NDArray[np.floating], bound: Float32Array, first_bytes: float
) -> None:
    """first_bytes: of a block of a row, on average, at the first look."""
    assert np.all(np.abs(approximate - head.logits) <= bound + 1e-3), f"{name}: the bound is not sound"
    noise = np.random.default_rng(0).gumbel(size=approximate.shape).astype(np.float32)
    first = first_bytes / _ROW_BYTES
    worst = float(bound.mean() / np.sqrt(((approximate - head.logits) ** 2).mean()))
    for temperature in _TEMPERATURES:
        scores = approximate + temperature * noise
        survives = scores + bound >= (scores - bound).max(1, keepdims=True)
        report.add(
            name, temperature=temperature, bound_to_error=worst, first_look=first, rows_surviving=_share(survives),
            bytes=first + _share(survives) * (1 - min(first, 1)),
            bytes_in_groups=first + _share(survives.reshape(len(survives), -1, ROW_GROUP).any(2)) * (1 - min(first, 1)),
        )  # fmt: skip


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean())


if __name__ == "__main__":
    main()
