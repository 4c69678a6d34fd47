"""Where a text stands among tokens, and what two contexts differ in."""

from __future__ import annotations

import pytest

from tests.tiny import tiny_vocabulary
from unsay.errors import RequestError
from unsay.image import VocabSpec
from unsay.session.text import Diff, answer_text, diff_of, find_before
from unsay.session.tokenizer import Tokenizer
from unsay.vocabulary import vocabulary


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    tokens, types, merges = tiny_vocabulary(0)
    spec = VocabSpec(
        kind="gpt2", pre="smollm", tokens=tuple(tokens), token_types=tuple(types), merges=tuple(merges),
        bos_id=None, eos_id=2, eot_id=None, unk_id=None, pad_id=None, add_bos=False, chat_template=None,
    )  # fmt: skip
    return Tokenizer(vocabulary(spec))


def test_the_first_occurrence_counts(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("pan and pan")
    assert find_before(tokenizer, ids, "pan") == (0, "")


def test_what_the_token_holds_before_the_text_is_returned(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a pan")
    assert tokenizer.token_bytes(ids[-1]) == b" pan"
    assert find_before(tokenizer, ids, "pan") == (len(ids) - 1, " ")
    assert find_before(tokenizer, ids, "n") == (len(ids) - 1, " pa")
    assert find_before(tokenizer, ids, " pan") == (len(ids) - 1, "")


def test_a_text_that_runs_over_tokens_is_found_at_its_first(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("xyz quick")
    assert find_before(tokenizer, ids, "z qui") == (2, "")


def test_a_character_over_several_tokens_is_never_cut(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a€b")
    assert len(ids) == 5
    assert find_before(tokenizer, ids, "€") == (1, "")
    assert find_before(tokenizer, ids, "b") == (4, "")


def test_end_marks_are_no_text(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("x"), 2, *tokenizer.encode("y")]
    assert find_before(tokenizer, ids, "y") == (2, "")
    with pytest.raises(RequestError, match="not in the answer"):
        find_before(tokenizer, ids, "im_end")


def test_what_is_no_text_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="before 20: it must be text; to= takes a token index"):
        find_before(tokenizer, tokenizer.encode("abc"), 20)


@pytest.mark.parametrize("text", ["q", "", "\ud800"])
def test_a_text_that_is_not_there_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError, match="not in the answer"):
        find_before(tokenizer, tokenizer.encode("abc"), text)


def test_an_open_character_is_shown_only_at_the_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a€")[:-1]
    assert answer_text(tokenizer, ids, (), is_final=False) == "a"
    assert answer_text(tokenizer, ids, (), is_final=True) == "a\ufffd"


def test_the_answer_ends_before_a_stop_string(tokenizer: Tokenizer) -> None:
    assert answer_text(tokenizer, tokenizer.encode("one two three"), ("two",)) == "one "


def test_diff(tokenizer: Tokenizer) -> None:
    old, new = tokenizer.encode("one two"), tokenizer.encode("one six")
    assert diff_of(tokenizer, old, old) == Diff(len(old), "", "")
    diff = diff_of(tokenizer, old, new)
    assert tokenizer.decode(old[: diff.num_common]) + diff.added == "one six"
    assert tokenizer.decode(old[: diff.num_common]) + diff.removed == "one two"
