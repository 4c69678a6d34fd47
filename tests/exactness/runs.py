"""Runs of a model over token ids in any chunks and company, with what they leave: logits and KV rows, as integers.

An id may be a key, which says the class it is computed in (isa/classes.py).

Every run has a root of its own (a salt nobody else uses), so that no page of another run can serve in it: equal bits
mean that equal bits were computed, not that the tree shared them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.kv_rows import rows_in_pages
from unsay import Model
from unsay.core import Batch
from unsay.isa.classes import ids_of, is_fast, num_of_one_class
from unsay.kv.tree import Branch

_NUM_WANTED = 6
_salts = itertools.count()


@dataclass(frozen=True, slots=True)
class Outcome:
    """logits: uint32 [wanted, V], the f32 bits at some positions, the last among them. rows: uint32, see `kv_bits`."""

    logits: NDArray[np.uint32]
    rows: NDArray[np.uint32]

    def assert_equals(self, other: Outcome, what: str) -> None:
        """The same bits, everywhere."""
        np.testing.assert_array_equal(self.rows, other.rows, f"KV bytes, {what}")
        np.testing.assert_array_equal(self.logits, other.logits, f"logits, {what}")


def fresh_branch(model: Model) -> Branch:
    """An empty branch that shares with nobody."""
    return model.tree.root(salt=b"exactness %d" % next(_salts))


def run_alone(model: Model, ids: Sequence[int], chunk: int = 512) -> Outcome:
    """One sequence, `chunk` tokens a step."""
    return run_together(model, [ids], chunk)[0]


def run_together(model: Model, sequences: Sequence[Sequence[int]], chunk: int) -> list[Outcome]:
    """All sequences at once, up to `chunk` tokens of each a step; the shorter ones leave earlier."""
    executor = model.engine.machine
    branches = [fresh_branch(model) for _ in sequences]
    chunk = min(chunk, model.engine.scheduler.max_tokens // len(sequences))
    logits: list[list[NDArray[np.uint32]]] = [[] for _ in sequences]
    while alive := [n for n, ids in enumerate(sequences) if branches[n].length < len(ids)]:
        shares = _of_one_class([(n, list(sequences[n][branches[n].length :][:chunk])) for n in alive])
        for n, ids in shares:
            branches[n].reserve(len(ids))
        batch, owners = _batch(branches, shares, sequences)
        result = executor.run(batch)
        assert result is not None
        for owner, row in zip(owners, result, strict=True):
            logits[owner].append(np.array(row).view(np.uint32))
        for n, ids in shares:
            branches[n].commit(ids)
    outcomes = [Outcome(np.stack(rows), kv_bits(model, branch)) for rows, branch in zip(logits, branches, strict=True)]
    for branch in branches:
        branch.release()
    return outcomes


def _of_one_class(shares: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Those that begin in the class of the first, up to where they change it."""
    first = is_fast(shares[0][1][0])
    return [(n, ids[: num_of_one_class(ids, len(ids))]) for n, ids in shares if is_fast(ids[0]) is first]


def wanted_positions(num_tokens: int) -> list[int]:
    """Where logits are looked at: the last position and some before, the same for every chunk size."""
    step = -(-num_tokens // _NUM_WANTED)
    return sorted({*range(0, num_tokens, step), num_tokens - 1})


def kv_bits(model: Model, branch: Branch, num_tokens: int | None = None) -> NDArray[np.uint32]:
    """The bits of a branch's first tokens (all): [tokens, layers, KV heads, 2, D], keys then values."""
    length = branch.length if num_tokens is None else num_tokens
    assert length <= branch.length, (length, branch.length)
    return rows_in_pages(model.tree.pool.memory, model.spec.kv_layout, branch.page_table(), length)


def _batch(
    branches: list[Branch], shares: list[tuple[int, list[int]]], sequences: Sequence[Sequence[int]]
) -> tuple[Batch, list[int]]:
    """The step's arrays, and which sequence owns each row of its logits."""
    tables = [branches[n].page_table() for n, _ in shares]
    page_tables = np.full((len(tables), max(map(len, tables))), -1, np.int32)
    for row, table in zip(page_tables, tables, strict=True):
        row[: len(table)] = table
    tokens = [(n, branches[n].length + k, row) for row, (n, ids) in enumerate(shares) for k in range(len(ids))]
    wanted = {n: set(wanted_positions(len(sequences[n]))) for n, _ in shares}
    rows = [index for index, (n, position, _) in enumerate(tokens) if position in wanted[n]]
    owners = [tokens[index][0] for index in rows]
    arrays = (
        ids_of(sequences[n][position] for n, position, _ in tokens),
        [position for _, position, _ in tokens],
        [row for _, _, row in tokens],
    )
    token_ids, positions, sequence = (np.array(values, np.int32) for values in arrays)
    fast = is_fast(shares[0][1][0])
    return Batch(token_ids, positions, sequence, page_tables, np.array(rows, np.int32), is_fast=fast), owners
