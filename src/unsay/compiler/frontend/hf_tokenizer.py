"""The text side of a Hugging Face directory: tokenizer.json and what stands beside it become a VocabSpec.

    tokenizer.json           vocabulary, merges, added tokens, and how text is cut: compared with the kinds we know
    tokenizer_config.json    names of BOS, EOS, UNK and PAD; add_bos_token; the chat template of older directories
    chat_template.jinja      the chat template of newer ones
    generation_config.json   eos_token_id, one or several: all of them end an answer
    config.json              the same, where there is no generation_config.json

A wrong cut shifts ids without a sign, so every part of tokenizer.json is either one we know or refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from unsay.compiler.frontend.hf_words import as_list, as_object, fail, put_in_front, refuse, word_kind
from unsay.compiler.frontend.json_text import read_json, read_text
from unsay.errors import ModelFileError
from unsay.image import VocabSpec

MAX_TOKENS = 1 << 20

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5

_BYTE_CHARACTERS = frozenset(map(chr, (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))))
"""What byte-level BPE writes bytes in (GPT-2's bytes_to_unicode)."""


def read_vocabulary(directory: Path, config: Mapping[str, Any], num_rows: int | None = None) -> VocabSpec:
    """The tokenizer of a directory; ids up to `num_rows`, the rows of the embedding, that have no token are unused.

    Raises ModelFileError, UnsupportedError, or ModelNotFoundError if there is no tokenizer.json.
    """
    tokenizer = read_json(directory / "tokenizer.json")
    settings = _optional(directory / "tokenizer_config.json")
    model, added = as_object(tokenizer.get("model"), "model"), _added_tokens(tokenizer)
    pre, merges = word_kind(tokenizer, model), _merges(model)
    tokens, types = _tokens(model, added, num_rows)
    ids = {token: index for index, token in enumerate(tokens)}
    end_ids = _end_ids(directory, config, len(tokens))
    bos_id = _named(settings, "bos_token", ids, config)
    eos_id = _named(settings, "eos_token", ids, config)
    return VocabSpec(
        kind="gpt2",
        pre=pre,
        tokens=tokens,
        token_types=types,
        merges=merges,
        bos_id=bos_id,
        eos_id=eos_id if eos_id is not None else next(iter(end_ids), None),
        eot_id=None,
        unk_id=_named(settings, "unk_token", ids, {}),
        pad_id=_named(settings, "pad_token", ids, {}),
        add_bos=_adds_bos(tokenizer, settings, tokens, bos_id),
        chat_template=_template(directory, settings),
        end_ids=end_ids,
    )


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _tokens(
    model: Mapping[str, Any], added: Sequence[Mapping[str, Any]], num_rows: int | None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Every id's token and type; ids without a token get a name of their own and are unused."""
    vocabulary = {token: _id(index, token) for token, index in as_object(model.get("vocab"), "model.vocab").items()}
    kinds = dict.fromkeys(vocabulary.values(), _NORMAL)
    if len(kinds) != len(vocabulary):
        fail(f"model.vocab gives {len(vocabulary) - len(kinds)} ids to more than one token")
    if model.get("unk_token") is not None and not vocabulary.keys() >= _BYTE_CHARACTERS:
        refuse("a vocabulary that lacks some bytes, with a token for unknown text in their place")
    names = {index: token for token, index in vocabulary.items()}
    for token in added:
        name, index = token["content"], _id(token.get("id"), token["content"])
        if names.setdefault(index, name) != name:
            fail(f"the id {index} is {names[index][:40]!r} in model.vocab and {name[:40]!r} in added_tokens")
        kinds[index] = _CONTROL if token.get("special") is True else _USER_DEFINED
    size = max(names, default=-1) + 1
    if num_rows is not None and size > num_rows:
        fail(f"the tokenizer has ids up to {size - 1}, the embedding {num_rows} rows")
    ids = range(size if num_rows is None else num_rows)
    return tuple(names.get(i, f"[PAD{i}]") for i in ids), tuple(kinds.get(i, _UNUSED) for i in ids)


def _id(given: object, token: str) -> int:
    if type(given) is not int or not 0 <= given < MAX_TOKENS:
        fail(f"the token {token[:40]!r} has the id {str(given)[:40]}, ids are in 0..{MAX_TOKENS - 1}")
    return given


def _added_tokens(tokenizer: Mapping[str, Any]) -> list[dict[str, Any]]:
    tokens = [as_object(item, "added_tokens") for item in as_list(tokenizer.get("added_tokens") or [], "added_tokens")]
    for token in tokens:
        name = token.get("content")
        if not isinstance(name, str) or not name:
            fail(f"an added token has the content {str(name)[:40]}")
        for flag in ("lstrip", "rstrip", "single_word"):
            if token.get(flag) not in (None, False):
                refuse(f"the added token {name[:40]!r} is matched with {flag}")
        if token.get("normalized") not in (None, False) and tokenizer.get("normalizer") is not None:
            refuse(f"the added token {name[:40]!r} is looked for in normalised text")
    return tokens


def _merges(model: Mapping[str, Any]) -> tuple[str, ...]:
    """As "left right"; newer files write pairs."""
    merges = as_list(model.get("merges"), "model.merges")
    joined = tuple(item if isinstance(item, str) else _pair(item) for item in merges)
    if wrong := next((merge for merge in joined if merge.count(" ") != 1), None):
        fail(f"the merge {wrong[:40]!r} is no pair of tokens")
    return joined


def _pair(item: object) -> str:
    pair = as_list(item, "model.merges")
    if len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
        fail(f"the merge {str(pair)[:40]} is no pair of tokens")
    return " ".join(pair)


def _adds_bos(
    tokenizer: Mapping[str, Any], settings: Mapping[str, Any], tokens: Sequence[str], bos_id: int | None
) -> bool:
    """What tokenizer_config.json says of it; else whether the post-processor puts it in front."""
    if settings.get("add_eos_token") is True:
        refuse("it ends every text with EOS (add_eos_token)")
    stated = settings.get("add_bos_token")
    if stated is not None:
        return stated is True and bos_id is not None
    put = put_in_front(tokenizer.get("post_processor"))
    if put is None:
        return False
    if bos_id is None or tokens[bos_id] != put:
        refuse(f"its post-processor puts {put[:40]!r} in front of a text, which is not its BOS")
    return True


def _named(settings: Mapping[str, Any], key: str, ids: Mapping[str, int], config: Mapping[str, Any]) -> int | None:
    """The id of a token that tokenizer_config.json names, as a text or an object; else the first of config.json."""
    given = settings.get(key)
    name = cast("dict[str, Any]", given).get("content") if isinstance(given, dict) else given
    if name is None:
        return next(iter(_ids(config.get(f"{key}_id"), f"config.json: {key}_id", len(ids))), None)
    if not isinstance(name, str) or name not in ids:
        raise ModelFileError(f"tokenizer_config.json: {key} is {str(name)[:40]!r}, which is not in the vocabulary")
    return ids[name]


def _end_ids(directory: Path, config: Mapping[str, Any], num_tokens: int) -> tuple[int, ...]:
    """Ids that end an answer, as generation stops at in transformers."""
    generation = _optional(directory / "generation_config.json")
    source, name = (generation, "generation_config.json") if "eos_token_id" in generation else (config, "config.json")
    return _ids(source.get("eos_token_id"), f"{name}: eos_token_id", num_tokens)


def _ids(given: object, what: str, num_tokens: int) -> tuple[int, ...]:
    """One id, a list of them, or null."""
    items = [] if given is None else cast("list[object]", given) if isinstance(given, list) else [given]
    for item in items:
        if type(item) is not int or not 0 <= item < num_tokens:
            raise ModelFileError(f"{what} is {str(item)[:40]}, the vocabulary has {num_tokens} tokens")
    return tuple(cast("list[int]", items))


def _template(directory: Path, settings: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, or the key of tokenizer_config.json, where a list has one named "default"."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            return read_text(path).decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{path.name} is not UTF-8: {error.reason} at byte {error.start}") from error
    given = settings.get("chat_template")
    if isinstance(given, list):
        forms = [as_object(item, "chat_template") for item in cast("list[object]", given)]
        given = next((form.get("template") for form in forms if form.get("name") == "default"), None)
    if given is not None and not isinstance(given, str):
        raise ModelFileError(f"tokenizer_config.json: chat_template is no text: {str(given)[:40]}")
    return given
