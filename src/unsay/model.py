"""A loaded model: the image, its executor, one KV pool and one engine, shared by all sessions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from unsay.core import PAGE_TOKENS, Float32Array, SamplingParams, TokenEvent
from unsay.cores import usable_cores
from unsay.engine.engine import Engine
from unsay.engine.params import changed, validate
from unsay.engine.request import Request
from unsay.errors import ContextFullError, RequestError
from unsay.image import ImageFiles, ModelSpec, VocabSpec
from unsay.isa.classes import EXACT, FAST, check_prefill
from unsay.isa.kv import AUTO, check_kv_format
from unsay.kv.pages import PagePool
from unsay.kv.tree import KvTree
from unsay.runtime.executor import Executor
from unsay.session.journal import Journal, load_session, settings_of
from unsay.session.session import Session
from unsay.session.template import ChatTemplate, template_runner
from unsay.session.textstream import TextStream
from unsay.session.timeline import Timeline
from unsay.session.tokenizer import Tokenizer
from unsay.session.turns import Turns
from unsay.session.words import kind_of
from unsay.vm.context import Context
from unsay.vocabulary import Vocabulary, open_vocabulary, vocabulary

if TYPE_CHECKING:
    from unsay.core import Progress
    from unsay.runtime.image import Image
    from unsay.session.log import SessionLog

_POOL_CONTEXTS = 4
"""Whole contexts the KV pool holds by default. Memory is taken only where it is written."""

EXECUTORS = ("native", "reference", "checked", "null")


def load(
    name_or_path: str | Path,
    *,
    target: str | None = None,
    num_threads: int | None = None,
    executor: str = "native",
    kv: str = AUTO,
    prefill: str = EXACT,
    kv_tokens: int | None = None,
    speculate: bool = True,
    progress: Progress | None = None,
) -> Model:
    """Load a known model ("smollm2:135m"), a GGUF file or a Hugging Face directory.

    Downloads and compiles what the cache does not have.

    target: instruction set to compile for, the best of this CPU by default. num_threads: one per usable core by
    default. executor: "native", "reference" (slow, the definition), "checked" (that, and the
    invariants of every instruction: InvariantError) or "null" (no arithmetic). kv: what keys and values are kept
    as, "f16", "f32" or "int8"; "auto" is f32 if the model's weights are, else f16. prefill: "fast" computes what is
    not part of an answer a little less accurately; for CPUs with AMX, no faster elsewhere (docs/numerics.md N16).
    kv_tokens: tokens all sessions together can keep. speculate: compute guesses along with the next token
    (engine/drafter.py); without, the tokens are the same, and come slower where the text repeats itself.
    Raises ModelNotFoundError, DownloadError, ModelFileError, TargetError or CacheError.
    """
    from unsay import hub
    from unsay.compiler.compile import compile_model
    from unsay.default_target import check_runs_here, default_target

    if executor not in EXECUTORS:
        raise RequestError(f"executor {executor!r} is not known; there are: {', '.join(EXECUTORS)}")
    check_kv_format(kv)
    check_prefill(prefill)
    _check_sizes(num_threads, kv_tokens)
    if target is not None:
        check_runs_here(target)
    chosen = target or default_target()
    source = hub.resolve(_checked_path(name_or_path), progress)
    files = compile_model(source, target=chosen, kv=kv, prefill=prefill, accept=_check_text_side, progress=progress)
    return open_image(files, num_threads=num_threads, executor=executor, kv_tokens=kv_tokens, speculate=speculate)


def open_image(
    files: ImageFiles,
    *,
    num_threads: int | None = None,
    executor: str = "native",
    kv_tokens: int | None = None,
    speculate: bool = True,
) -> Model:
    """The model of an image that is in the cache already; see `load`."""
    from unsay.runtime.image import load_image

    image = load_image(files)
    spec = image.manifest.spec
    vocab = open_vocabulary(files.vocabulary)
    threads = min(usable_cores(), image.manifest.max_threads) if num_threads is None else num_threads
    num_tokens = _POOL_CONTEXTS * spec.context_length if kv_tokens is None else kv_tokens
    pool = PagePool(spec.kv_layout.page_bytes, -(-num_tokens // PAGE_TOKENS))
    return Model(_make_executor(executor, image, pool, threads), KvTree(pool), vocab, speculate=speculate)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a model file or Hugging Face directory, which may hold nothing else."""
    from unsay.compiler.frontend.source import open_text_side

    return Tokenizer(vocabulary(open_text_side(Path(_checked_path(path)))))


def _as_list(token_ids: Iterable[object]) -> list[object]:
    try:
        return list(token_ids)
    except TypeError:
        raise RequestError(f"token ids are {token_ids!r}: give a list of integers") from None


def _index(given: object) -> int:
    """An integer of any library as an int, -1 for what is none."""
    try:
        return -1 if isinstance(given, bool) else operator.index(cast(int, given))
    except TypeError:
        return -1


def _checked_params(given: object) -> SamplingParams:
    if given is not None and not isinstance(given, SamplingParams):
        raise RequestError(f"params is {given!r}: it must be a SamplingParams, or None for the defaults")
    return given or SamplingParams()


def _check_text_side(vocab: VocabSpec) -> None:
    """Refuse a tokenizer or template that cannot be used. A vocabulary that contradicts itself the compiler refuses."""
    kind_of(vocab.kind, vocab.pre)
    template_runner(vocab.chat_template)


def _checked_path(given: object) -> str | Path:
    if not isinstance(given, str | Path):
        raise RequestError(
            f"the model is {given!r}: give the name of a known model, or the path of a file or directory"
        )
    return given


def _check_sizes(num_threads: object, kv_tokens: object) -> None:
    for name, value in (("num_threads", num_threads), ("kv_tokens", kv_tokens)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise RequestError(f"{name} is {value!r}: it must be an integer, or None for the default")


def _make_executor(name: str, image: Image, pool: PagePool, num_threads: int) -> Executor:
    if name == "native":
        from unsay.runtime.native import NativeExecutor as Chosen
    elif name == "reference":
        from unsay.runtime.reference import ReferenceExecutor as Chosen
    elif name == "checked":
        from unsay.runtime.checked import CheckedExecutor as Chosen
    else:
        from unsay.runtime.null import NullExecutor as Chosen
    return Chosen(image, pool.memory, num_threads)


class Model:
    """Close it, or use it in a `with` block. Any number of threads may use one."""

    def __init__(self, executor: Executor, tree: KvTree, vocab: Vocabulary, *, speculate: bool = True) -> None:
        self.tokenizer = Tokenizer(vocab)
        self.tree = tree
        self.engine = Engine(executor, speculate=speculate)
        self._executor = executor
        self._template = ChatTemplate(vocab)
        self._is_closed = False

    @property
    def spec(self) -> ModelSpec:
        """Shape of the model."""
        return self._executor.spec

    @property
    def _is_fast(self) -> bool:
        """Whether prompts are of the fast class."""
        return self.spec.prefill == FAST

    def session(
        self,
        system: str | None = None,
        params: SamplingParams | None = None,
        log: SessionLog | None = None,
        **fields: Any,
    ) -> Session:
        """A new conversation. system: the system message. params, or single fields of SamplingParams, as seed=7.

        log: a `session.log.SessionLog`; what is said and done is then on the disk before it is acknowledged.
        """
        self._check_open()
        if system is not None and not isinstance(system, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RequestError(f"the system message is {system!r}: it must be a string, or None for the model's own")
        merged = changed(_checked_params(params), fields)
        validate(merged, self.tokenizer.vocab_size)
        turns = Turns(self._template, self.tokenizer, system)
        journal = None if log is None else Journal.begin(log, settings_of(system, merged, self._is_fast))
        timeline = Timeline.begin(Context(self.tree.root()), journal, self._is_fast)
        return Session(self.engine, self.tokenizer, turns, timeline, merged)

    def restore(self, log: SessionLog, session: str) -> Session:
        """A conversation as its log left it, with its history; `SessionLog.sessions()` names them.

        It goes on in the class of arithmetic it began in: one of exact prompts stays exact in any model, one of fast
        prompts needs a model that was loaded with prefill="fast" (RequestError).
        """
        self._check_open()
        saved = load_session(log, session)
        if saved.is_fast and not self._is_fast:
            raise RequestError(
                f"the prompts of session {session!r} are of the fast class, this model computes exactly: load it with "
                "prefill='fast'"
            )
        turns = Turns(self._template, self.tokenizer, saved.system)
        return Session(self.engine, self.tokenizer, turns, Timeline.restored(self.tree, saved), saved.params)

    def generate(self, token_ids: Iterable[int], params: SamplingParams | None = None) -> Iterator[TokenEvent]:
        """What follows a context of token ids, token by token. Nothing is held before the first is asked for.

        Raises RequestError or ContextFullError at once.
        """
        self._check_open()
        ids = self._check_ids(token_ids)
        if len(ids) >= self.spec.context_length:
            raise ContextFullError(f"{len(ids)} tokens leave no room in a context of {self.spec.context_length}")
        chosen = _checked_params(params)
        validate(chosen, self.tokenizer.vocab_size)
        return self._generate(ids, chosen)

    def _generate(self, ids: list[int], params: SamplingParams) -> Iterator[TokenEvent]:
        context = Context(self.tree.root())
        context.append(ids, self._is_fast)
        eos_ids = frozenset[int]() if params.ignore_eos else self.tokenizer.eos_ids
        request = Request(context, params, ids, len(ids), eos_ids, params.max_tokens, self.engine.drafter(ids))
        stream = TextStream(self.engine, self.tokenizer, request)
        try:
            yield from stream
        finally:
            self.engine.recover()
            stream.close()
            context.release()

    def logits(self, token_ids: Iterable[int]) -> Float32Array:
        """Logits after each of the tokens of a prompt, float32 [T, V]: teacher forcing. Raises as `generate`."""
        self._check_open()
        ids = self._check_ids(token_ids)
        if len(ids) > self.spec.context_length:
            raise ContextFullError(f"{len(ids)} tokens do not fit in a context of {self.spec.context_length}")
        context = Context(self.tree.root())
        context.append(ids, self._is_fast)
        try:
            return self.engine.compute(context, len(ids))
        finally:
            context.release()

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Ids of a text, without BOS. special: whether names of special tokens in it stand for those tokens."""
        return self.tokenizer.encode(text, special)

    def detokenize(self, token_ids: Iterable[int]) -> str:
        """Text of ids, special tokens by name."""
        return self.tokenizer.decode(self._check_ids(ids) if (ids := _as_list(token_ids)) else [])

    def close(self) -> None:
        """End the threads and unmap; sessions cannot be used afterwards. Idempotent."""
        self.engine.close()
        self._is_closed = True

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RequestError("this model is closed: load() it again")

    def _check_ids(self, token_ids: Iterable[object]) -> list[int]:
        given = _as_list(token_ids)
        if not given:
            raise RequestError("the list of token ids is empty: give at least one token")
        ids, size = [_index(token_id) for token_id in given], self.spec.vocab_size
        for place, token_id in enumerate(ids):
            if not 0 <= token_id < size:
                raise RequestError(
                    f"token {place} is {given[place]!r}: token ids are integers in 0..{size - 1}, "
                    "this model's vocabulary"
                )
        return ids
