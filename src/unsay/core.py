"""Frozen values that travel between layers, and the alphabet their shapes are written in.

What is made for every token is a tuple: between two steps code and data are in no cache, and each line of them counts.
Arrays travel as memoryviews, which NumPy takes as they are (`np.asarray`): importing it is a third of a warm start, and
nothing on the way to a token that machine code computes needs it (docs/decisions/011-start.md).

B  sequences in a step          T  tokens in a step (all sequences together)
R  rows of logits in a step     V  vocabulary
L  layers                       H  query heads      K  key/value heads
D  head size                    P  page tokens (16)
E  embedding (hidden) size      F  feed-forward size
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Int32Array: TypeAlias = "NDArray[np.int32]"
Float32Array: TypeAlias = "NDArray[np.float32]"
Int32View: TypeAlias = "memoryview[int]"
Float32View: TypeAlias = "memoryview[float]"
"""Contiguous, of formats "i" and "f"."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called as progress(what, done, total) while something slow goes on: what is the work's name ("download", "repack",
"compile", or that another process is at it); done and total are in units of its own (bytes for the first two), a total
of 0 is not known."""

PAGE_TOKENS = 16
"""P: tokens in one KV page."""


class SamplingParams(NamedTuple):
    """How the next token is chosen. The defaults are greedy-free, plain sampling at temperature 0.7.

    temperature 0 is greedy. top_k 0, top_p 1.0 and min_p 0.0 are off. Penalties look at the tokens of the
    branch itself. `logit_bias` is added to the logits of the tokens it names. `seed` keys the noise of every
    position (Philox), so an edit leaves other draws alone. `stop` strings end the answer and are not part of
    it. Validated by `engine.params.validate`.
    """

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    seed: int = 0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False


class TokenEvent(NamedTuple):
    """One token of an answer, as streamed.

    index: place in the answer, from 0. text: the characters this token completed ("" while a character or a
    possible stop string is still open). logprob: natural log of the model's probability for it (temperature 1,
    before penalties). finish: None, or why the answer ended here: "stop" | "length" | "interrupt".
    """

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    token_id: int
    text: str
    logprob: float
    finish: str | None = None


class Lane(NamedTuple):
    """What the sampler needs to choose one token: row r of a step's logits belongs to lane r.

    position: index in the whole context of the token to be chosen; history: the branch's token ids before it;
    answer_start: index in `history` where the current answer begins. guess: what the row before must have chosen for
    this one to count, None where it stands alone. is_plain: `runtime.scan.is_plain(params)`, which asks much.
    """

    request_id: int
    params: SamplingParams
    position: int
    history: Sequence[int]
    answer_start: int
    guess: int | None = None
    is_plain: bool = False


class Batch(NamedTuple):
    """One step's work for the executor. Tokens of one sequence are adjacent and in order.

    token_ids, positions, sequence: [T]; sequence[t] is a row of page_tables.
    page_tables: [B, N], pool page index of each page of the sequence, -1 beyond its end.
    logit_rows: [R], ascending indices into T whose logits are wanted.
    lanes: one per logit row, () where nothing is sampled (evaluation). is_fast: the class of all its tokens
    (isa/classes.py).
    """

    token_ids: Int32View
    positions: Int32View
    sequence: Int32View
    page_tables: Int32View
    logit_rows: Int32View
    lanes: tuple[Lane, ...] = ()
    is_fast: bool = False
