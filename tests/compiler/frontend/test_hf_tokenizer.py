"""The text side of Hugging Face directories: the same ids as the `tokenizers` library, hostile files refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from tests.tiny import CONTROL_TOKENS, tiny_vocabulary
from tests.tiny_hf import BYTE_LEVEL, SMOLLM, stored, write_json, write_tiny_hf, write_tokenizer, write_weights
from unsay.compiler.frontend.source import open_model, open_text_side
from unsay.errors import ModelFileError, UnsupportedError
from unsay.session.tokenizer import Tokenizer
from unsay.vocabulary import vocabulary


def test_the_tokenizer_and_special_tokens_are_those_of_the_directory(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m", config={"eos_token_id": [2, 3]})
    vocab = open_model(directory).vocab
    assert (vocab.pre, vocab.bos_id, vocab.eos_id, vocab.add_bos, vocab.end_ids) == ("smollm", 1, 2, False, (2, 3))
    assert vocab.tokens[:4] == CONTROL_TOKENS and vocab.token_types[:5] == (3, 3, 3, 3, 1)
    assert Tokenizer(vocabulary(vocab)).eos_ids >= {2, 3}
    write_json(directory / "generation_config.json", {"eos_token_id": 0})
    assert open_model(directory).vocab.end_ids == (0,)
    (directory / "chat_template.jinja").write_text("{{ bos_token }}", encoding="utf-8")
    assert open_model(directory).vocab.chat_template == "{{ bos_token }}"


def test_rows_of_the_embedding_without_a_token_are_unused(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m", config={"vocab_size": 320})
    tensors = stored(directory)
    tensors["model.embed_tokens.weight"] = np.zeros((320, 96), np.float32)
    write_weights(directory, tensors)
    vocab = open_model(directory).vocab
    assert len(vocab.tokens) == 320 and vocab.token_types[-1] == 5 and vocab.tokens[-1] == "[PAD319]"


def _bpe(**changes: object) -> dict[str, object]:
    return {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], **changes}, "added_tokens": []}


def _template(*pieces: dict[str, object]) -> dict[str, object]:
    return {"post_processor": {"type": "TemplateProcessing", "single": list(pieces), "pair": [], "special_tokens": {}}}


_SPECIAL, _TEXT = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
_SPLIT = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False}
_ADDED = {"id": 0, "content": "<|endoftext|>", "special": True}
TOKENIZERS: dict[str, tuple[dict[str, object], str]] = {
    "WordPiece": ({"model": {"type": "WordPiece", "vocab": {}}}, "a model of type 'WordPiece'"),
    "byte fallback": (_bpe(byte_fallback=True), "byte_fallback = True"),
    "dropout": (_bpe(dropout=0.1), "dropout = 0.1"),
    "prefixes": (_bpe(continuing_subword_prefix="##"), "continuing_subword_prefix"),
    "unknown text": (_bpe(unk_token="a"), "lacks some bytes"),
    "no pre-tokenizer": ({"pre_tokenizer": None}, "no pre-tokenizer"),
    "Metaspace": ({"pre_tokenizer": {"type": "Metaspace"}}, "a pre-tokenizer of type 'Metaspace'"),
    "a space in front": ({"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}}, "add_prefix_space"),
    "digits in a row": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, BYTE_LEVEL]}}, "words"),
    "another regex": ({"pre_tokenizer": _SPLIT}, "words"),
    "a key nobody knows": ({"pre_tokenizer": {**BYTE_LEVEL, "new": 1}}, "a ByteLevel with 'new'"),
    "lower case": ({"normalizer": {"type": "Lowercase"}}, "a normalizer of type 'Lowercase'"),
    "NFC before digits": ({"normalizer": {"type": "NFC"}}, "the way it cuts text"),
    "stripped tokens": ({"added_tokens": [{**_ADDED, "lstrip": True}]}, "matched with lstrip"),
    "BOS and EOS": (_template(_SPECIAL, _TEXT, _SPECIAL), "a post-processor that makes"),
    "a token that is not BOS": (
        _template({"SpecialToken": {"id": "<|im_end|>"}}, _TEXT), r"puts '<\|im_end\|>' in front"),
    "RoBERTa": ({"post_processor": {"type": "RobertaProcessing"}}, "a post-processor of type 'RobertaProcessing'"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_tokenizer_that_is_not_built_in_is_refused_by_name(tmp_path: Path, case: str) -> None:
    changes, message = TOKENIZERS[case]
    directory = write_tiny_hf(tmp_path / "m")
    write_tokenizer(directory, **changes)
    with pytest.raises(UnsupportedError, match=message):
        open_model(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": []}, "model is no object"),
        (_bpe(vocab={"a": 0, "b": 0}), "1 ids to more than one token"),
        (_bpe(vocab={"a": -1}), "the token 'a' has the id -1"),
        (_bpe(vocab={"a": 1 << 40}), "has the id 1099511627776"),
        (_bpe(vocab={"a": 293}), "ids up to 293, the embedding 293 rows"),
        (_bpe(merges=["ab"]), "the merge 'ab' is no pair"),
        (_bpe(merges=[["a"]]), "is no pair"),
        ({"added_tokens": [{**_ADDED, "content": "other"}]}, r"the id 0 is '<\|endoftext\|>' in model.vocab"),
    ],
)
def test_a_tokenizer_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict, message: str) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    write_tokenizer(directory, **changes)
    with pytest.raises(ModelFileError, match=message):
        open_model(directory)


def test_a_bos_in_front_is_what_the_settings_say_or_else_the_post_processor(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    for processor, setting, wanted in (
        (_template(_SPECIAL, _TEXT), None, True),
        (_template(_TEXT), None, False),
        (_template(_SPECIAL, _TEXT), False, False),
        ({}, True, True),
    ):
        write_tokenizer(directory, **processor)
        settings = json.loads((directory / "tokenizer_config.json").read_text())
        write_json(directory / "tokenizer_config.json", {**settings, "add_bos_token": setting})
        assert open_model(directory).vocab.add_bos is wanted


TEXTS = (
    "", " ", "\n\n  x", "It's 12345 and 3,000.50", "I'LL we've  you'd", "naïve café é", "日本語 ½ ⅷ", "a\tb\r\nc ",
    "<|im_start|>user\nhi<|im_end|>", "🙂👍🏽 ", "pandas  and the  others", "\u1e9b\u0323 \u212b", "x" * 50,
)  # fmt: skip
_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LIBRARY: dict[str, tuple[Any, list[Any], bool]] = {
    "gpt-2": (None, [pre_tokenizers.ByteLevel(add_prefix_space=False)], False),
    "smollm": (
        None, [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)], False),
    "llama-bpe": (
        None, [pre_tokenizers.Split(Regex(_REGEX % r"\p{N}{1,3}"), "isolated"),
               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)], True),
    "qwen2": (
        normalizers.NFC(), [pre_tokenizers.Split(Regex(_REGEX % r"\p{N}"), "isolated"),
                            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)], False),
}  # fmt: skip


@pytest.mark.parametrize("kind", _LIBRARY)
def test_ids_are_those_of_the_tokenizers_library(tmp_path: Path, kind: str) -> None:
    """The file is the library's own, of each kind of model there is."""
    tokens, _, merges = tiny_vocabulary()
    normalizer, steps, ignore_merges = _LIBRARY[kind]
    pairs = [tuple(merge.split(" ")) for merge in merges]
    library = LibraryTokenizer(models.BPE(dict(zip(tokens, range(len(tokens)), strict=True)), pairs))
    library.model.ignore_merges = ignore_merges
    library.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    if normalizer is not None:
        library.normalizer = normalizer
    library.add_special_tokens(list(CONTROL_TOKENS))
    library.save(str(tmp_path / "tokenizer.json"))
    vocab = open_text_side(tmp_path)
    assert vocab.pre == kind
    ours = Tokenizer(vocabulary(vocab))
    for text in TEXTS:
        assert ours.encode(text, special=True) == library.encode(text).ids, text


def test_merges_written_as_pairs_are_the_same_merges(tmp_path: Path) -> None:
    directory = write_tiny_hf(tmp_path / "m")
    before = open_model(directory).vocab
    fields = json.loads((directory / "tokenizer.json").read_text())
    fields["model"]["merges"] = [merge.split(" ") for merge in fields["model"]["merges"]]
    write_json(directory / "tokenizer.json", fields)
    assert open_model(directory).vocab == before
    assert fields["pre_tokenizer"] == SMOLLM


# hostile text

TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no JSON"),
        (b"[1]", "is no JSON object"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b'{"a": ' + b"[" * 100_000, "nested too deep"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no JSON"),
        (b" " * ((1 << 25) + 1), "more than 33554432 bytes"),
    ],
)
def test_text_that_is_no_sound_json_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    directory = write_tiny_hf(tmp_path / "m", layers=1)
    for name in TEXT_FILES:
        before = (directory / name).read_bytes() if (directory / name).is_file() else b"{}"
        (directory / name).write_bytes(content)
        with pytest.raises(ModelFileError, match=message):
            open_model(directory)
        (directory / name).write_bytes(before)


VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -1, 2**70, 0.5, 1e999, "", "a", "BPE", "Sequence", "ByteLevel", "Split"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "content"]), inner),
    max_leaves=4,
)


def paths_of(value: object, prefix: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where in a JSON value something can be replaced: a few of each object and list, at every depth."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else [])
    inner = [path for key, item in items[:12] for path in paths_of(item, (*prefix, key))]
    return [(*prefix, key) for key, _ in items[:12]] + inner


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with something in every text file."""
    directory = write_tiny_hf(tmp_path_factory.mktemp("fuzz") / "m", layers=1, config={"eos_token_id": [2]})
    write_tokenizer(directory, **_template(_SPECIAL, _TEXT))
    write_json(directory / "generation_config.json", {"eos_token_id": [2, 3]})
    return directory


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused_never_anything_else(sound: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TEXT_FILES))
    original = (sound / name).read_text(encoding="utf-8")
    changed = json.loads(original)
    path = data.draw(st.sampled_from(paths_of(changed)))
    place = changed
    for key in path[:-1]:
        place = place[key]  # type: ignore[index]
    place[path[-1]] = data.draw(VALUES)  # type: ignore[index]
    write_json(sound / name, changed)
    try:
        with contextlib.suppress(ModelFileError):
            Tokenizer(vocabulary(open_model(sound).vocab))
    finally:
        (sound / name).write_text(original, encoding="utf-8")
