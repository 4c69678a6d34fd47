"""What is measured, a function for each group of rows. Everybody gets the same token ids, made by our tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import texts
from benchmarks.peers.contestants import (
    LLAMA,
    LLAMA_INT8,
    MEMORY,
    MEMORY_INT8,
    MULTIPLYING,
    OPENVINO,
    OPENVINO_INT8,
    OURS,
    OURS_FAST,
    OURS_GUESSING,
    OURS_INT8,
)
from benchmarks.peers.field import Asked, Field
from benchmarks.peers.memory import MemoryReader
from benchmarks.peers.multiply import Multiplier
from benchmarks.peers.whole import cold_start, peak_memory, warm_start
from unsay.compiler.frontend.gguf import open_gguf
from unsay.session.tokenizer import Tokenizer

_DECODED = 48
_EDITED = 64
_BATCHED = 32
_SESSIONS = 8
_MADE, _KEPT = 30, 20
_PREFILL_START, _PREFILL_STEP = 11, 7
"""Where in the text the prompts of prefill begin: each round elsewhere, and where no context that is held does."""

_WINDOW = 512
_WIKITEXT = "= Robert <unk> ="
"""How the test part of WikiText-2 begins, with rare words left out: wiki.test.tokens. On it llama.cpp has about
the perplexity that is recorded of it; on wiki.test.raw, where they stand, everybody has a fifth more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """rounds: samples of each figure. latencies: samples of a stop, half as many as of a rollback. text,
    chunks: what perplexity is measured on."""

    tokenizer: Tokenizer
    rounds: int
    latencies: int
    text: Path
    chunks: int

    @property
    def long_rounds(self) -> int:
        """Samples of figures that take long."""
        return min(self.rounds, max(3, self.rounds // 2))


def decode(field: Field, plan: Plan) -> None:
    """One context; and beside it what reading its bytes takes."""
    names = (OURS, OURS_INT8, LLAMA, LLAMA_INT8, OPENVINO, OPENVINO_INT8)
    for context in (0, 512, 2048):
        work = f"decode {context}"
        children = field.present(work, names)
        _add_readers(field, children, context)
        ids = texts.english(plan.tokenizer, max(1, context))
        answers = _decode(field, plan, work, children, [ids], _DECODED)
        _note_agreement(field, work, answers)
    _part_of_limit(field, "decode 0")


def speculation(field: Field, plan: Plan) -> None:
    """Text that repeats what stands before it: peers decode plainly, from the very same ids."""
    names = (OURS_GUESSING, OURS, LLAMA, OPENVINO)
    work = "edit copied"
    children = field.present(work, names)
    answers = _decode(field, plan, work, children, [plan.tokenizer.encode(texts.EDIT)], _EDITED)
    _note_same_tokens(field, work, answers)
    _dropped(field, plan, names, "edit dropped", texts.RECORD)
    _dropped(field, plan, names, "prose dropped", texts.PROSE)


def prefill(field: Field, plan: Plan) -> None:
    """Prompts nobody has seen. llama.cpp with q8_0 keys and values is slower here than with f16, and left out."""
    for length, num_rounds in ((512, plan.rounds), (2048, plan.long_rounds)):
        work = f"prefill {length}"
        children = field.present(work, (OURS, OURS_INT8, OURS_FAST, LLAMA, OPENVINO))
        children[MULTIPLYING] = Multiplier(_token_products(field), field.threads)
        prompts = [
            texts.english(plan.tokenizer, length, _PREFILL_START + _PREFILL_STEP * number)
            for number in range(num_rounds + 1)
        ]
        field.prepare(work, children, lambda child: child.ask("prefill", ids=prompts[-1]))  # noqa: B023, called at once
        field.rounds(
            work, children, num_rounds,
            lambda child, number: child.ask("prefill", ids=prompts[number]),  # noqa: B023
            lambda answer: length / answer["seconds"],  # noqa: B023
        )  # fmt: skip


def batch(field: Field, plan: Plan) -> None:
    """Eight contexts, each a text of its own, one token of each in turn."""
    for context in (32, 512):
        work = f"batch {context}"
        children = field.present(work, (OURS, OURS_INT8, LLAMA, OPENVINO))
        _add_readers(field, children, _SESSIONS * context)
        contexts = [texts.english(plan.tokenizer, context, start) for start in range(_SESSIONS)]
        _decode(field, plan, work, children, contexts, _BATCHED)


def stop(field: Field, plan: Plan) -> None:
    """Ours alone: no peer can be stopped inside a token."""
    works = "stop decode p99", "stop prefill p99", "stop decode p50", "stop prefill p50"
    _latencies(field, "stops", 2048, plan.latencies, works)


def rollback(field: Field, plan: Plan) -> None:
    """Ours alone, in a context that is nearly full."""
    _latencies(field, "rollbacks", 8000, max(1, plan.latencies // 5), ("rollback p50", "fork p50"))


def correction(field: Field, plan: Plan) -> None:
    """An answer is cancelled after 30 tokens, cut to about 20, given 12, and goes on; in each round to another length,
    as a prefix cache would know what was asked before. Peers are cancelled where it costs them
    nothing, between two tokens; ours from another thread, anywhere."""
    injection = texts.injection(plan.tokenizer)
    injected = plan.tokenizer.encode(injection)
    for context in (512, 2048, 6000):
        work = f"correction {context}"
        text, ids = texts.stable(plan.tokenizer, context)
        children = field.present(work, (OURS, LLAMA, OPENVINO))
        ours = children.get(OURS)

        def correct(child: Asked, number: int = -1, ours: Asked | None = ours, text: str = text) -> dict[str, Any]:
            told = {"text": text, "injection": injection} if child is ours else {"injected": injected}
            return child.ask("correct", made=_MADE, kept=_KEPT - number, **told)

        field.prepare(work, children, lambda child: child.ask("hold", contexts=[ids]))  # noqa: B023
        field.prepare(work, children, correct)
        answers = field.rounds(work, children, plan.rounds, correct, lambda answer: 1e3 * answer["seconds"])
        for name, told in answers.items():
            if told[0]["computed"] is not None:
                field.results.note(work, f"{name} computed {told[0]['computed']} tokens")


def start(field: Field, plan: Plan) -> None:
    """New processes to their first token."""
    ids = texts.english(plan.tokenizer, 10)
    warm_start(field, "start warm", (OURS, LLAMA, OPENVINO), ids, plan.rounds)
    cold_start(field, "start cold", OURS, ids, plan.long_rounds)


def memory(field: Field, plan: Plan) -> None:
    """New processes that read a prompt of 2,048 tokens and answer with 64."""
    peak_memory(field, "memory", (OURS, LLAMA, OPENVINO), texts.english(plan.tokenizer, 2048), _EDITED)


def perplexity(field: Field, plan: Plan) -> None:
    """The second half of every window is scored, as llama.cpp's own tool does."""
    text = plan.text.read_text(encoding="utf-8")
    work = "perplexity" if text.lstrip().startswith(_WIKITEXT) else "perplexity other"
    children = field.present(work, (OURS, OURS_INT8, OURS_FAST, LLAMA, OPENVINO))
    ids = plan.tokenizer.encode(text)[: plan.chunks * _WINDOW]
    windows = [ids[place : place + _WINDOW] for place in range(0, len(ids) - _WINDOW + 1, _WINDOW)]
    field.perplexity(work, children, windows, _WINDOW // 2)
    field.results.note(work, f"{plan.text.name}, the first {len(windows)} windows of {_WINDOW} tokens")


WORKS: dict[str, Callable[[Field, Plan], None]] = {
    work.__name__: work
    for work in (decode, speculation, prefill, batch, stop, rollback, correction, start, memory, perplexity)
}
"""By the names of rows.GROUPS."""


def _decode(
    field: Field, plan: Plan, work: str, children: dict[str, Asked], contexts: list[list[int]], count: int
) -> dict[str, list[dict[str, Any]]]:
    field.prepare(work, children, lambda child: child.ask("hold", contexts=contexts))
    field.prepare(work, children, lambda child: child.ask("decode", count=4))
    return field.rounds(
        work, children, plan.rounds, lambda child, _: child.ask("decode", count=count),
        lambda answer: len(contexts) * count / answer["seconds"],
    )  # fmt: skip


def _dropped(field: Field, plan: Plan, names: Sequence[str], work: str, made: texts.Correction) -> None:
    """An answer of ours is corrected near its beginning; peers go on from the same tokens."""
    children = field.present(work, names)
    if OURS not in children:
        return
    told = {"made": _EDITED + 16, "count": _EDITED, **asdict(made)}
    context = children[OURS].ask("edited", **told)["context"]
    ours = [children[name] for name in (OURS, OURS_GUESSING) if name in children]
    field.prepare(work, children, lambda child: child.ask("hold", contexts=[context]))
    answers = field.rounds(
        work, children, plan.rounds,
        lambda child, _: child.ask("edited", **told) if child in ours else child.ask("decode", count=_EDITED),
        lambda answer: _EDITED / answer["seconds"],
    )  # fmt: skip
    _note_same_tokens(field, work, answers)


def _latencies(field: Field, what: str, context: int, samples: int, works: Sequence[str]) -> None:
    present = [field.present(work, (OURS,)) for work in works]
    if OURS not in present[0]:
        return
    child = present[0][OURS]
    told, share = field.watch.undisturbed(lambda: child.ask(what, context=context, samples=samples), [child.pid])
    for work in works:
        field.results.add(work, OURS, [told[work.replace(" ", "_")]], [share])
        field.results.note(work, told["note"])


def _part_of_limit(field: Field, work: str) -> None:
    figures = field.results.figures.get(work, {})
    if OURS in figures and MEMORY in figures:
        pairs = zip(figures[OURS].samples, figures[MEMORY].samples, strict=True)
        field.results.begin(f"{work} of limit")
        others = max(figures[OURS].others, figures[MEMORY].others)
        field.results.add(f"{work} of limit", OURS, [ours / limit for ours, limit in pairs], [others])


def _add_readers(field: Field, children: dict[str, Asked], num_cached: int) -> None:
    """Of what a step reads: the model's tensors, and the keys and values of `num_cached` tokens."""
    weights = sum(tensor.num_bytes for tensor in open_gguf(Path(field.model)).tensors.values())
    for reader, engine in ((MEMORY, OURS), (MEMORY_INT8, OURS_INT8)):
        if engine in children:
            num_bytes = weights + num_cached * field.kv_token_bytes(engine)
            children[reader] = MemoryReader(num_bytes, field.threads)


def _token_products(field: Field) -> int:
    """A product for each element of a matrix but those of the output head, which only the last token of a prompt meets.
    What attention multiplies is not among them."""
    tensors = open_gguf(Path(field.model)).tensors.values()
    layers = [tensor.shape for tensor in tensors if tensor.name.startswith("blk.") and len(tensor.shape) == 2]
    return sum(rows * columns for rows, columns in layers)


def _note_agreement(field: Field, work: str, answers: dict[str, list[dict[str, Any]]]) -> None:
    """How many of the first tokens are those of llama.cpp and OpenVINO: the work was the same."""
    if OURS not in answers:
        return
    ours: list[int] = answers[OURS][0]["ids"][0]
    for name in (LLAMA, OPENVINO):
        if name in answers:
            theirs: list[int] = answers[name][0]["ids"][0]
            same = next(
                (place for place, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), len(ours)
            )
            field.results.note(work, f"the first {same} of {len(ours)} greedy tokens are those of {name}")


def _note_same_tokens(field: Field, work: str, answers: dict[str, list[dict[str, Any]]]) -> None:
    if OURS in answers and OURS_GUESSING in answers:
        assert answers[OURS][0]["ids"] == answers[OURS_GUESSING][0]["ids"], "guesses changed a token"
        field.results.note(work, "the tokens with and without guesses are the same")
