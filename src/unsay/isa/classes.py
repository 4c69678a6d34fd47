"""Classes of arithmetic a token may be computed in, and a token's key, which says the class too (docs/numerics.md N16).

    key   0..2^31-1 is a token id, computed exactly; with 2^31 on top, the same id in the fast class

The KV tree, a context's pending tokens and whatever else compares tokens hold keys: an exact key is the id itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unsay.errors import RequestError

EXACT, FAST = PREFILLS = ("exact", "fast")
"""What a model computes prompts in: the name is that of the class."""

_FAST_BIT = 1 << 31
MAX_TOKEN_ID = _FAST_BIT - 1


def check_prefill(name: object) -> None:
    """Raise RequestError unless this is the name of a class."""
    if name not in PREFILLS:
        raise RequestError(f"prefill {name!r} is not known; there are: {', '.join(PREFILLS)}")


def keys_of(token_ids: Iterable[int], is_fast: bool) -> list[int]:
    """The keys of tokens that are all of one class."""
    return [token_id | _FAST_BIT for token_id in token_ids] if is_fast else list(token_ids)


def ids_of(keys: Iterable[int]) -> list[int]:
    """Their ids."""
    return [key & MAX_TOKEN_ID for key in keys]


def is_fast(key: int) -> bool:
    """Whether the token is of the fast class."""
    return key >= _FAST_BIT


def num_of_one_class(keys: Sequence[int], most: int) -> int:
    """How many of the first `most` keys, one after the other, are of the class of the first."""
    first = is_fast(keys[0])
    for place in range(1, min(most, len(keys))):
        if is_fast(keys[place]) is not first:
            return place
    return min(most, len(keys))
