"""What a KV page looks like. It holds P = 16 tokens of one sequence, all layers, in the image's format:

    f16, f32    page [L][K]{ keys [D][P] | values [P][D] }
    int8        page [L][K]{ keys [D/4][P][4] | values [P/4][D][4] | key scales f32 [P] | value scales f32 [P] }

Keys are transposed: one vector is one dim of 16 tokens. Of int8, the four elements that are added to one sum together
lie together. What is stored and how it is read is N9 of docs/numerics.md.
Rows at and beyond a context's length hold garbage and are never read for their value.
"""

from __future__ import annotations

from typing import NamedTuple

from unsay.core import PAGE_TOKENS
from unsay.errors import RequestError
from unsay.isa.formats import DType

KV_FORMATS = {"f16": DType.F16, "f32": DType.F32, "int8": DType.I8}
"""Names of the formats keys and values are kept in, and the type of an element."""

AUTO = "auto"
"""The format that the model's weights ask for: f32 if they are F32, else f16."""

MOST_INT8_DIM = 1024
"""Elements of a head whose products with integers of 15 bits add up in 32."""

_ELEMENT_BYTES = {DType.F16: 2, DType.F32: 4, DType.I8: 1}
_SCALE_BYTES = 4
_PAGE_MULTIPLE = 64
"""A cache line. Were it a page of the system, the same head of 16 pages of int8 would share few lines of a cache."""


def check_kv_format(name: object) -> None:
    """Raise RequestError unless this is "auto" or the name of a format."""
    if name != AUTO and name not in KV_FORMATS:
        raise RequestError(f"KV format {name!r} is not known; there are: {AUTO}, {', '.join(KV_FORMATS)}")


class KvLayout(NamedTuple):
    """Byte offsets inside a KV page. dtype: of an element."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: DType = DType.F16

    @property
    def is_scaled(self) -> bool:
        """Whether elements are integers, with a scale for each row of a head."""
        return self.dtype is DType.I8

    @property
    def together(self) -> int:
        """Elements of a key, or values of an element, that lie next to each other: they are added to one sum."""
        return 4 if self.is_scaled else 1

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return _ELEMENT_BYTES[self.dtype]

    @property
    def head_bytes(self) -> int:
        """Keys and values of one head of one layer."""
        row_bytes = self.head_dim * self.element_bytes + (_SCALE_BYTES if self.is_scaled else 0)
        return 2 * PAGE_TOKENS * row_bytes

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token."""
        return self.num_layers * self.num_kv_heads * self.head_bytes // PAGE_TOKENS

    @property
    def used_bytes(self) -> int:
        """Bytes of a page that hold keys and values."""
        return self.num_layers * self.num_kv_heads * self.head_bytes

    @property
    def page_bytes(self) -> int:
        """Distance between pages in the pool."""
        return -(-self.used_bytes // _PAGE_MULTIPLE) * _PAGE_MULTIPLE

    def key_offset(self, layer: int, head: int) -> int:
        """Offset of keys."""
        return (layer * self.num_kv_heads + head) * self.head_bytes

    def value_offset(self, layer: int, head: int) -> int:
        """Offset of values."""
        return self.key_offset(layer, head) + self.head_dim * PAGE_TOKENS * self.element_bytes

    def scale_offset(self, layer: int, head: int) -> int:
        """Offset of the scales of an int8 head: f32 [2][P], keys then values."""
        assert self.is_scaled, self
        return self.key_offset(layer, head) + 2 * self.head_dim * PAGE_TOKENS * self.element_bytes
