from __future__ import annotations

import threading
import unicodedata
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session import bpe_oracle
from tests.session.vocabularies import tiny_spec, tiny_words
from unsay.compiler.frontend.describe import vocab_spec
from unsay.compiler.frontend.gguf import open_gguf
from unsay.errors import ModelFileError, RequestError, UnsupportedError
from unsay.session.tokenizer import Tokenizer
from unsay.session.words import KINDS
from unsay.vocabulary import vocabulary

TOKENIZERS = {pre: Tokenizer(tiny_words(pre=pre)) for pre in KINDS}
TINY = TOKENIZERS["smollm"]


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer(vocabulary(vocab_spec(open_gguf(smollm2))))


@given(st.text())
def test_decode_gives_back_the_text_encoded(text: str) -> None:
    for pre in ("gpt-2", "smollm", "llama-bpe"):
        tokenizer = TOKENIZERS[pre]
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode(text, special=True)) == text


@given(st.text())
def test_qwen2_gives_back_the_text_composed(text: str) -> None:
    tokenizer = TOKENIZERS["qwen2"]
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


_PIECES = ("the", "Panda", " ", "  ", "\n", "\r\n", "\t", "12", "3456", "'s", "'LL", "don't", "é", "e\u0301", "½")
_MORE_PIECES = ("日本", "🐼", "\u3000", "\xa0", ".", "...", "!?", "_", "-", "'")
_TEXT_LIKE = st.lists(
    st.sampled_from(_PIECES + _MORE_PIECES)
    | st.characters(exclude_categories=["Cs", "Cn", "Co"], max_codepoint=0xFFFF),
    max_size=20,
).map("".join)


@pytest.mark.parametrize("pre", KINDS)
@given(text=_TEXT_LIKE)
def test_ids_are_those_of_the_plain_algorithm(pre: str, text: str) -> None:
    assert TOKENIZERS[pre].encode(text) == bpe_oracle.encode(tiny_spec(pre=pre), text)


@given(st.lists(st.sampled_from(["<|im_end|>", "<|im_", "end|>", "<|im_start|>", "a", "\n", " ", "<|tool|>"])))
def test_no_plain_text_becomes_a_control_token(pieces: list[str]) -> None:
    for tokenizer in TOKENIZERS.values():
        assert not tokenizer.control_ids & set(tokenizer.encode("".join(pieces)))


def test_control_tokens_are_found_only_where_asked_for() -> None:
    assert TINY.encode("a<|im_end|><|im_start|>", special=True)[1:] == [2, 1]
    assert TINY.encode("<|im_end|>")[0] > 3


def test_words_run_over_span_ends_but_control_tokens_do_not() -> None:
    assert TINY.encode_spans([("<|im_end|>\n", True), ("the", False)]) == [2, *TINY.encode("\nthe")]
    split = TINY.encode_spans([("<|im_", True), ("end|>", True)])
    assert split == TINY.encode("<|im_end|>")


def test_bos_is_added_once_and_only_where_the_model_wants_it() -> None:
    wants = Tokenizer(tiny_words(add_bos=True))
    assert wants.with_bos([7]) == [1, 7]
    assert wants.with_bos([1, 7]) == [1, 7]
    assert wants.with_bos([]) == [1]
    assert TINY.with_bos([7]) == [7]


def test_end_of_turn_ids_are_those_of_the_file_and_those_known_by_name() -> None:
    assert TINY.eos_ids == {0, 2}
    assert Tokenizer(tiny_words(eot_id=3)).eos_ids == {0, 2, 3}


@pytest.mark.parametrize("text", ["ab\ud800", "\udfff", "\ud83dx"])
def test_half_a_surrogate_pair_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(RequestError, match=r"character \d is U\+D"):
        TINY.encode(text)


def test_a_byte_kept_of_an_input_that_is_not_utf_8_is_named() -> None:
    with pytest.raises(RequestError, match="not UTF-8: after 3 characters comes the byte 0xe9"):
        TINY.encode(b"caf\xe9".decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("text", [5, None, b"bytes", ["a"]])
def test_what_is_no_text_is_refused(text: object) -> None:
    for special in (False, True):
        with pytest.raises(RequestError, match="is no text"):
            TINY.encode(cast(str, text), special=special)


@pytest.mark.parametrize("token_id", [-1, TINY.vocab_size])
def test_an_id_beyond_the_vocabulary_is_refused(token_id: int) -> None:
    assert TINY.token_bytes(TINY.vocab_size - 1)
    with pytest.raises(RequestError, match=r"0\.\.\d+"):
        TINY.token_bytes(token_id)


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'deepseek-llm'.*gpt-2, smollm, llama-bpe, qwen2"):
        Tokenizer(tiny_words(pre="deepseek-llm"))
    with pytest.raises(UnsupportedError, match=r"'llama'.*gpt2"):
        Tokenizer(tiny_words(kind="llama"))


@pytest.mark.parametrize(
    ("merges", "named"),
    [
        (("h e", "zz top"), "do not fit together: .*`zz` out of vocabulary"),
        (("h e", "he"), "'he' is not two tokens"),
        (("h e l",), "'h e l' is not two tokens"),
        (("h e l", "he"), "'h e l' is not two tokens"),
        (("",), "'' is not two tokens"),
        ((" " * 10_000_000,), "' +' is not two tokens"),
    ],
)
def test_merges_that_do_not_fit_the_vocabulary_are_an_error_of_the_file(merges: tuple[str, ...], named: str) -> None:
    with pytest.raises(ModelFileError, match=named) as raised:
        Tokenizer(tiny_words(merges=merges))
    assert len(str(raised.value)) < 200


def test_a_token_named_twice_is_an_error_of_the_file() -> None:
    spec = tiny_spec()
    with pytest.raises(ModelFileError, match="twice"):
        Tokenizer(tiny_words(tokens=(*spec.tokens, "he"), token_types=(*spec.token_types, 1)))


def test_digits_are_cut_as_each_kind_says() -> None:
    spec = tiny_spec()
    longer = {
        "tokens": (*spec.tokens, "12", "123"),
        "token_types": (*spec.token_types, 1, 1),
        "merges": (*spec.merges, "1 2", "12 3"),
    }
    counts = {pre: len(Tokenizer(tiny_words(pre=pre, **longer)).encode("123123")) for pre in KINDS}
    assert counts == {"gpt-2": 2, "smollm": 6, "llama-bpe": 2, "qwen2": 6}


def test_ignore_merges_takes_a_whole_word_that_no_merge_makes() -> None:
    spec = tiny_spec()
    word = {"tokens": (*spec.tokens, "hello"), "token_types": (*spec.token_types, 1)}
    assert len(Tokenizer(tiny_words(pre="llama-bpe", **word)).encode("hello")) == 1
    assert len(Tokenizer(tiny_words(pre="gpt-2", **word)).encode("hello")) > 1


def test_threads_share_one_tokenizer() -> None:
    texts = [f"the {n} pandas and {n * n} others" for n in range(200)]
    expected = [TINY.encode(text) for text in texts]
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(n for n, text in enumerate(texts) if TINY.encode(text) != expected[n])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


GOLDEN = {
    "Hello, world! 123": [19556, 28, 905, 17, 216, 33, 34, 35],
    "日本 🎉": [23274, 115, 40993, 15107, 232, 227],
}


def test_smollm2_ids_are_the_published_ones(smollm2_tokenizer: Tokenizer) -> None:
    for text, token_ids in GOLDEN.items():
        assert smollm2_tokenizer.encode(text) == token_ids


@given(text=st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"], max_codepoint=0x3FFFF)))
def test_smollm2_gives_back_the_text_encoded(smollm2_tokenizer: Tokenizer, text: str) -> None:
    assert smollm2_tokenizer.decode(smollm2_tokenizer.encode(text)) == text
