"""Special tokens are found as a regex of all their names would find them, and a file may not state any number."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.vocabularies import tiny_spec
from unsay.errors import UnsupportedError
from unsay.session.special import SpecialNames
from unsay.vocabulary import CONTROL, MAX_NAME_CHARACTERS, MAX_SPECIAL, special_ids

NAMES = st.sets(st.text("<|^-]ab", min_size=1, max_size=4), max_size=6)


@given(NAMES, st.text("<|^-]abc\n", max_size=40))
def test_the_longest_name_at_each_place_from_the_left(names: set[str], text: str) -> None:
    ordered = sorted(names, key=len, reverse=True)
    pattern = f"({'|'.join(map(re.escape, ordered))})" if names else "((?!))"
    assert SpecialNames(names).split(text) == re.split(pattern, text)


def test_pieces_alternate_and_join_to_the_whole() -> None:
    names = SpecialNames(["<|im_end|>", "<|im_end|>x"])
    assert names.split("a<|im_end|><|im_end|>x<|im") == ["a", "<|im_end|>", "", "<|im_end|>x", "<|im"]


def test_as_many_special_tokens_as_any_model_has_and_no_more() -> None:
    for count, is_refused in ((MAX_SPECIAL, False), (MAX_SPECIAL + 1, True)):
        names = tuple(f"<{index}>" for index in range(count))
        spec = tiny_spec(tokens=names, token_types=(CONTROL,) * count)
        if is_refused:
            with pytest.raises(UnsupportedError, match=f"{count} special tokens"):
                special_ids(spec)
        else:
            assert len(special_ids(spec)) == count


def test_a_name_as_long_as_any_model_has_and_no_longer() -> None:
    long, longer = "x" * MAX_NAME_CHARACTERS, "x" * (MAX_NAME_CHARACTERS + 1)
    assert special_ids(tiny_spec(tokens=(long,), token_types=(CONTROL,))) == {long: 0}
    with pytest.raises(UnsupportedError, match="257 characters"):
        special_ids(tiny_spec(tokens=(longer,), token_types=(CONTROL,)))
