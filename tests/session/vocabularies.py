"""Vocabularies for the tests of the text side, without a model file around them."""

from __future__ import annotations

from tests.tiny import CHAT_TEMPLATE, tiny_vocabulary
from unsay.image import VocabSpec
from unsay.vocabulary import Vocabulary, vocabulary


def tiny_spec(**changes: object) -> VocabSpec:
    """The vocabulary of the tiny models: all 256 bytes, a few merges, four control tokens."""
    tokens, types, merges = tiny_vocabulary()
    spec = VocabSpec(
        kind="gpt2",
        pre="smollm",
        tokens=tuple(tokens),
        token_types=tuple(types),
        merges=tuple(merges),
        bos_id=1,
        eos_id=2,
        eot_id=None,
        unk_id=0,
        pad_id=2,
        add_bos=False,
        chat_template=CHAT_TEMPLATE,
    )
    return spec._replace(**changes)  # type: ignore[arg-type]


def tiny_words(**changes: object) -> Vocabulary:
    """The same, ready to be used."""
    return vocabulary(tiny_spec(**changes))
