"""Where every weight goes in PERSISTENT memory: written by `lower`, carried out by `compiler.pack`.

    offset 0                                                                       total_bytes
    | entry | pad | entry | pad | ...                                            | entry | pad |
      every entry begins at a multiple of 64 bytes and is a whole multiple of 64 bytes long, zero filled;
      entries are in order of offset and do not overlap

A PackedMatrix [N, K] is laid out in groups of 16 rows as isa/formats.py says. Its N rows come from its sources:

    concat      rows of source 0, then of source 1, ...; padded with zero rows to a multiple of 16 at the very end
                q | k | v                                  row of k number 3 is row (rows of q) + 3
    alternate   two sources of equal N, a multiple of 16: 16-row groups in turn
                gate 0..15 | up 0..15 | gate 16..31 | up 16..31 | ...

A source with `rope_heads` has its rows reordered, head by head, so that rows that rotate together are adjacent
(the files of some architectures pair i with i + D/2, the kernels pair 2i with 2i + 1):

    within a head of D rows:  new row 2i <- old row i,   new row 2i + 1 <- old row i + D/2,   0 <= i < D/2

A PackedVector is f32 [sum of N], its sources one after the other, reordered in the same way (the bias of Q and K).
A RopeTable is f32 [context_length][head_dim / 2][2]: cos, sin (docs/numerics.md N8).

`digest` names a plan by content: two models with equal digests and equal files share one packed file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from unsay.isa.formats import DType, weight_bytes

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Source:
    """One tensor of the model file, by its name there. Rows are reordered when `rope_heads` is set."""

    tensor: str
    num_rows: int
    rope_heads: int | None = None
    head_dim: int = 0


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A weight matrix [sum of source rows, num_columns]; all sources have this dtype in the file."""

    offset: int
    dtype: DType
    num_columns: int
    sources: tuple[Source, ...]
    order: Literal["concat", "alternate"] = "concat"

    @property
    def num_rows(self) -> int:
        """N, before padding."""
        return sum(source.num_rows for source in self.sources)

    @property
    def num_bytes(self) -> int:
        """Bytes taken, a multiple of 64."""
        return aligned(weight_bytes(self.dtype, self.num_rows, self.num_columns))


@dataclass(frozen=True, slots=True)
class PackedVector:
    """An f32 vector: a norm's gamma or beta, or a bias; the file may hold it in any float type."""

    offset: int
    sources: tuple[Source, ...]

    @property
    def num_rows(self) -> int:
        """N."""
        return sum(source.num_rows for source in self.sources)

    @property
    def num_bytes(self) -> int:
        """Bytes taken, a multiple of 64."""
        return aligned(4 * self.num_rows)


@dataclass(frozen=True, slots=True)
class RopeTable:
    """cos and sin of every position, f32 [context_length][head_dim / 2][2]."""

    offset: int
    context_length: int
    head_dim: int
    base: float

    @property
    def num_bytes(self) -> int:
        """Bytes taken, a multiple of 64."""
        return aligned(self.context_length * self.head_dim * 4)


PlanEntry: TypeAlias = PackedMatrix | PackedVector | RopeTable


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """All entries, in order of offset."""

    entries: tuple[PlanEntry, ...]
    total_bytes: int

    def digest(self) -> str:
        """sha256 of the plan as canonical JSON, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The plan as canonical JSON: sorted keys, no spaces, each entry with the name of its class."""
        entries = [{"kind": type(entry).__name__, **asdict(entry)} for entry in self.entries]
        fields = {"entries": entries, "total_bytes": self.total_bytes}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def aligned(num_bytes: int) -> int:
    """`num_bytes` rounded up to the alignment of an entry."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
