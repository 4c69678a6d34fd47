"""What executors have in common that compute in the interpreter, with NumPy."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from unsay.core import Batch, Float32Array, Float32View, Int32Array, Lane
from unsay.runtime.defined_scan import DefinedScan, in_view
from unsay.runtime.scan import Scan


class ArrayBatch(NamedTuple):
    """A `core.Batch` whose fields are arrays of the same shapes, and of the same memory."""

    token_ids: Int32Array
    positions: Int32Array
    sequence: Int32Array
    page_tables: Int32Array
    logit_rows: Int32Array
    lanes: tuple[Lane, ...] = ()
    is_fast: bool = False


def in_arrays(batch: Batch) -> ArrayBatch:
    """A batch for NumPy."""
    token_ids, positions, sequence, page_tables, logit_rows = map(np.asarray, batch[:5])
    return ArrayBatch(token_ids, positions, sequence, page_tables, logit_rows, batch.lanes, batch.is_fast)


def in_views(batch: ArrayBatch) -> Batch:
    """A batch for any executor."""
    token_ids, positions, sequence, page_tables, logit_rows = (array.data for array in batch[:5])
    return Batch(token_ids, positions, sequence, page_tables, logit_rows, batch.lanes, batch.is_fast)


def in_rows(logits: Float32Array) -> list[Float32View]:
    """Logits [R, V] as executors give them."""
    return [in_view(np.ascontiguousarray(row)) for row in logits]


class InterpretedRuns:
    """The half of an Executor that is about interrupts."""

    scan: Scan = DefinedScan()

    def __init__(self) -> None:
        self.interrupt_word = memoryview(array("i", [0]))

    def close(self) -> None:
        """Nothing to end: memory goes with the object."""
