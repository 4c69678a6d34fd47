"""Text to token ids and back, from the vocabulary in the model file.

Byte-level BPE: text is cut into words by a regex that depends on the model (`pre`), the bytes of each word are written
in a 256-character alphabet (GPT-2's bytes_to_unicode), and pairs are merged in rank order. The merging is done by the
`tokenizers` library. Control tokens never enter it: they are found by `encode` itself, and only where it is told to,
so no text of a user can become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Bpe

from unsay.errors import ModelFileError, RequestError, UnsupportedError
from unsay.image import VocabSpec
from unsay.session.special import CONTROL, SpecialNames, places, special_ids

_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_WORD = _WORD % r"\p{N}{1,3}"
_QWEN2_WORD = _WORD % r"\p{N}"

_ENDS_A_TURN = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<EOT>")
)
"""Control tokens that end an answer, whatever the file says of its EOS (the same names llama.cpp goes by)."""

_KEPT_BYTES = range(0xDC80, 0xDD00)
"""What Python's "surrogateescape" keeps the bytes 0x80 to 0xff of an input as that is not UTF-8."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one `pre` cuts text into words. word: regex of a word, None for GPT-2's own."""

    word: str | None = None
    single_digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False


KINDS: dict[str, Kind] = {
    "gpt-2": Kind(),
    "smollm": Kind(single_digits=True),
    "llama-bpe": Kind(word=_LLAMA3_WORD, ignore_merges=True),
    "qwen2": Kind(word=_QWEN2_WORD, nfc=True),
}


class Tokenizer:
    """Immutable once made, so any number of threads may use one.

    A byte the vocabulary has no token for is dropped, as by the model's other tokenizers (SmolLM2 lacks a few
    control characters and two lead bytes of unassigned planes). Raises UnsupportedError for a kind not in KINDS,
    ModelFileError for a vocabulary that contradicts itself.
    """

    def __init__(self, spec: VocabSpec) -> None:
        self._spec = spec
        self._special_ids = special_ids(spec)
        self._special_names = SpecialNames(self._special_ids)
        self._control_ids = frozenset(places(spec.token_types, (CONTROL,)))
        self._bpe = _build_bpe(spec, _kind_of(spec), self._special_ids)

    @property
    def vocab_size(self) -> int:
        """V: number of token ids."""
        return len(self._spec.tokens)

    @property
    def bos_id(self) -> int | None:
        """Token that starts a text, None if the file names none; `add_bos` says whether it is wanted."""
        return self._spec.bos_id

    @property
    def add_bos(self) -> bool:
        """Whether a context of this model starts with BOS."""
        return self._spec.add_bos and self._spec.bos_id is not None

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer: the file's EOS and EOT, and control tokens known to be one."""
        named = {self._special_ids[token] for token in _ENDS_A_TURN if token in self._special_ids}
        stated = {i for i in (self._spec.eos_id, self._spec.eot_id) if i is not None}
        return frozenset(named | stated | set(self._spec.end_ids))

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that are marks for the model and not text to be shown."""
        return self._control_ids

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of a text, without BOS. special: whether names of special tokens in it stand for those tokens.

        Raises RequestError if it is no text, or holds half of a surrogate pair.
        """
        return self.encode_spans([(text, special)])

    def encode_spans(self, spans: Iterable[tuple[str, bool]]) -> list[int]:
        """Ids of spans of (text, special) as one text: words may run over a span's end, special tokens may not."""
        token_ids: list[int] = []
        plain: list[str] = []
        for text, special in spans:
            check_text(text)
            pieces = self._special_names.split(text) if special else [text]
            plain.append(pieces[0])
            for name, following in zip(pieces[1::2], pieces[2::2], strict=True):
                token_ids += self._encode_plain("".join(plain))
                token_ids.append(self._special_ids[name])
                plain = [following]
        return token_ids + self._encode_plain("".join(plain))

    def with_bos(self, token_ids: Sequence[int]) -> list[int]:
        """The ids as a context of their own: BOS in front if the model wants one and it is not there yet."""
        bos = self._spec.bos_id
        if not self.add_bos or bos is None or (token_ids and token_ids[0] == bos):
            return list(token_ids)
        return [bos, *token_ids]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of the ids, control tokens by name; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for: a control token's are its name. Raises RequestError beyond the vocabulary."""
        if not 0 <= token_id < len(self._spec.tokens):
            raise RequestError(f"token id {token_id} is not in the vocabulary, which has 0..{self.vocab_size - 1}")
        token = self._spec.tokens[token_id]
        if token in self._special_ids:
            return token.encode()
        return b"".join(_BYTE_OF.get(character) or character.encode() for character in token)

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        return self._bpe.encode(text, add_special_tokens=False).ids


def _kind_of(spec: VocabSpec) -> Kind:
    if spec.kind != "gpt2":
        raise UnsupportedError(f"tokenizer model {spec.kind!r} is not supported; supported: 'gpt2' (byte-level BPE)")
    if spec.pre not in KINDS:
        raise UnsupportedError(f"tokenizer kind (pre) {spec.pre!r} is not supported; supported: {', '.join(KINDS)}")
    return KINDS[spec.pre]


def _build_bpe(spec: VocabSpec, kind: Kind, special_ids: dict[str, int]) -> Bpe:
    ids = dict(zip(spec.tokens, range(len(spec.tokens)), strict=True))
    if len(ids) != len(spec.tokens):
        raise ModelFileError(f"the vocabulary names {len(spec.tokens) - len(ids)} tokens twice")
    for name in special_ids:
        del ids[name]
    pairs = _pairs(spec.merges)
    try:
        bpe = Bpe(models.BPE(ids, pairs, ignore_merges=kind.ignore_merges))
    except Exception as error:  # the library's complaints about a vocabulary have no type of their own
        raise ModelFileError(f"the vocabulary and its merges do not fit together: {error}") from error
    if kind.nfc:
        bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = _pre_tokenizer(kind)
    return bpe


def _pairs(merges: Sequence[str]) -> list[tuple[str, str]]:
    """The two tokens of each merge. All are split at once: there are tens of thousands, at every start."""
    joined = " ".join(merges)
    if joined.count(" ") != 2 * len(merges) - 1 or not all(" " in merge for merge in merges):
        odd = next((merge for merge in merges if merge.count(" ") != 1), None)
        if odd is not None:
            raise ModelFileError(f"the merge {odd[:80]!r} is not two tokens with a space between them")
    words = joined.split(" ")
    return list(zip(words[::2], words[1::2], strict=False))


def _pre_tokenizer(kind: Kind) -> pre_tokenizers.Sequence:
    steps: list[pre_tokenizers.PreTokenizer] = []
    if kind.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if kind.word is not None:
        steps.append(pre_tokenizers.Split(Regex(kind.word), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind.word is None))
    return pre_tokenizers.Sequence(steps)


def check_text(text: object) -> None:
    """Raise RequestError for what is no text, or holds half of a surrogate pair, which no file or terminal can.

    Some halves are how Python keeps a byte of its input that is not UTF-8; that byte is then named.
    """
    if not isinstance(text, str):
        raise RequestError(f"{text!r} is no text: give a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if code in _KEPT_BYTES:
            raise RequestError(
                f"the text is not UTF-8: after {error.start} characters comes the byte 0x{code & 0xFF:02x}; convert it"
            ) from None
        raise RequestError(
            f"the text is not valid Unicode: character {error.start} is U+{code:04X}, half of a surrogate pair; "
            "decode it as UTF-8 first"
        ) from None


def _byte_alphabet() -> dict[str, bytes]:
    """The byte each character of a token stands for: printable Latin-1 is itself, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    pairs = [(chr(byte), byte) for byte in printable] + [(chr(0x100 + n), byte) for n, byte in enumerate(others)]
    return {character: bytes([byte]) for character, byte in pairs}


_BYTE_OF = _byte_alphabet()
