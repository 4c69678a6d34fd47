"""The contract between the VM (L2) and whatever computes (L1): native, reference or null."""

from __future__ import annotations

from typing import Protocol

from unsay.core import Batch, Float32View, Int32View
from unsay.image import ModelSpec
from unsay.runtime.scan import Scan


class Executor(Protocol):
    """Runs the model program of one image over a batch.

    Constructed as Executor(image, kv_memory, num_threads): kv_memory is the bytes [num_pages, page_bytes], in one
    piece, page_bytes == spec.kv_layout.page_bytes.

    Precondition of run: every page_tables entry a token at position p needs (0..p // 16) names a page, and pages of
    positions about to be written are held by that sequence alone. Postcondition: rows of the batch's positions are
    written in their pages (garbage after an interrupt), and nothing else in the pool changed.
    Not re-entrant: the caller has the right to step.

    interrupt_word: i32 [1]. While it is not zero, the run in progress, or else the next one, stops between two tiles
    and returns None. Any thread may write it at any time. A word and not a method, since who stops runs cold
    (docs/decisions/012).
    """

    interrupt_word: Int32View

    @property
    def spec(self) -> ModelSpec:
        """Shape of the model that runs here."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most tokens (T) one batch may hold."""
        ...

    @property
    def max_rows(self) -> int:
        """Most logit rows (R) one batch may ask for."""
        ...

    @property
    def scan(self) -> Scan:
        """What looks at the rows of logits."""
        ...

    def run(self, batch: Batch) -> list[Float32View] | None:
        """The R rows of logits [V], valid until the next run; None if it was interrupted."""
        ...

    def close(self) -> None:
        """End worker threads and unmap memory; idempotent."""
        ...
