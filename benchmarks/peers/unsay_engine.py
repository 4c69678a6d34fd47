"""unsay as a contestant: what a program that uses the public API gets, detokenizing included.

What only some verbs need is imported by them: a start to the first token is one of the things measured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import perf_counter, sleep
from typing import Any

from benchmarks.peers.protocol import Settings, Unable, serve
from unsay import Model, SamplingParams, Session, TokenEvent, load
from unsay.core import PAGE_TOKENS
from unsay.isa.classes import FAST
from unsay.vm.context import Context

_ANSWER_TOKENS = 64
"""Of an answer that is stopped or taken back."""


class Engine:
    """held: contexts that are computed and stay, whose tokens later requests find in the tree."""

    def __init__(self, settings: Settings) -> None:
        given: dict[str, Any] = {"speculate": False, **settings.options}
        if settings.kv != "f16":
            given["kv"] = settings.kv
        for name in given:
            if name not in (load.__kwdefaults__ or {}):
                raise Unable(f"this unsay has no load({name}=...)")
        self._model: Model = load(settings.model, num_threads=settings.threads, **given)
        self._held: list[tuple[list[int], Context]] = []

    def about(self) -> dict[str, Any]:
        """kv_token_bytes: keys and values of one token."""
        page_bytes = self._model.tree.pool.page_bytes
        return {"kv_token_bytes": page_bytes // PAGE_TOKENS}

    def prefill(self, ids: list[int]) -> dict[str, Any]:
        """A prompt none of which is held, to its first token."""
        started = perf_counter()
        tokens = [event.token_id for event in self._model.generate(ids, _greedy(1))]
        return {"seconds": perf_counter() - started, "ids": tokens}

    def hold(self, contexts: list[list[int]]) -> None:
        """Compute contexts, and let go of those before."""
        for _, context in self._held:
            context.release()
        self._held = [(ids, self._computed(ids)) for ids in contexts]

    def decode(self, count: int) -> dict[str, Any]:
        """`count` tokens after the first of each context, one of each in turn."""
        streams = [self._model.generate(ids, _greedy(count + 1)) for ids, _ in self._held]
        answers = [[next(stream).token_id] for stream in streams]
        started = perf_counter()
        for _ in range(count):
            for answer, stream in zip(answers, streams, strict=True):
                answer.append(next(stream).token_id)
        seconds = perf_counter() - started
        for stream in streams:
            _close(stream)
        return {"seconds": seconds, "ids": answers}

    def correct(self, text: str, made: int, kept: int, injection: str) -> dict[str, Any]:
        """A running answer is stopped from another thread, cut to `kept` tokens, given the injection, and goes on."""
        with self._session(text) as session:
            reader = threading.Thread(target=session.generate, args=(made * 20,))
            reader.start()
            while len(session.answer_ids) < made:
                sleep(0.0005)
            started = perf_counter()
            session.interrupt()
            session.rollback(to=kept)
            session.inject(injection)
            first = next(session.stream(max_tokens=1)).token_id
            seconds = perf_counter() - started
            reader.join()
            told = session.correction
            assert told is not None and told.num_injected is not None
            return {"seconds": seconds, "first": first, "ids": session.answer_ids[:kept], "computed": told.num_computed}

    def edited(self, text: str, made: int, kept: int, injection: str, count: int) -> dict[str, Any]:
        """An answer is cut and corrected, and goes on with what was taken back to guess from. context: the tokens it
        goes on from, for others to go on from too."""
        with self._session(text) as session:
            session.generate(made)
            session.rollback(to=kept)
            session.inject(injection)
            context = session.token_ids
            stream = session.stream(count + 1)
            answer = [next(stream).token_id]
            started = perf_counter()
            answer += [event.token_id for event in stream]
            return {"seconds": perf_counter() - started, "ids": [answer], "context": context}

    def stops(self, context: int, samples: int) -> dict[str, Any]:
        """Microseconds of stops, see unsay.benchmark.stops."""
        from unsay.benchmark.contexts import computed
        from unsay.benchmark.stops import cold_calls, stops_in_decode, stops_in_prefill

        with computed(self._model, context, _ANSWER_TOKENS, temperature=0.0) as session:
            decode, floor = stops_in_decode(session, samples), cold_calls(session, samples)
        prefill = stops_in_prefill(self._model, context, samples)
        note = (
            "{0.count} samples; with the rollback made right behind it p50 {0.p50_us:.0f}, p99 {0.p99_us:.0f} us in "
            "decode, {1.p50_us:.0f} and {1.p99_us:.0f} in prefill; three calls of Python that do nothing, where the "
            "stops in decode are, {2.p50_us:.0f} and {2.p99_us:.0f}"
        )
        return {
            "stop_decode_p99": decode.stop.p99_us, "stop_prefill_p99": prefill.stop.p99_us,
            "stop_decode_p50": decode.stop.p50_us, "stop_prefill_p50": prefill.stop.p50_us,
            "note": note.format(decode.taken_back, prefill.taken_back, floor),
        }  # fmt: skip

    def rollbacks(self, context: int, samples: int) -> dict[str, Any]:
        """Microseconds of rollbacks and forks, ten for a sample, and of as many as samples in a stream."""
        from unsay.benchmark.contexts import computed
        from unsay.benchmark.correct import forks, forks_in_stream, rollbacks, rollbacks_in_stream

        with computed(self._model, context, _ANSWER_TOKENS, temperature=0.0) as session:
            rollback, fork = rollbacks(session, samples), forks(session, samples)
            cold = rollbacks_in_stream(session, samples).p50_us, forks_in_stream(session, samples).p50_us
        note = (
            "{} samples; between two events of a stream, right behind a step, {:.0f} us (rollback) and {:.0f} us (fork)"
        )
        return {"rollback_p50": rollback.p50_us, "fork_p50": fork.p50_us, "note": note.format(rollback.count, *cold)}

    def perplexity(self, window: list[int], first_scored: int) -> dict[str, Any]:
        """Negative log-likelihoods, in nats, of a window's tokens from `first_scored` on, added up."""
        import numpy as np

        from unsay.evaluation import token_log_probs

        logits = self._model.logits(window[:-1])[first_scored - 1 :]
        return {"nll": -float(np.sum(token_log_probs(logits, window[first_scored:])))}

    def _computed(self, ids: list[int]) -> Context:
        context = Context(self._model.tree.root())
        context.append(ids, self._model.spec.prefill == FAST)
        self._model.engine.compute(context, 1)
        return context

    def _session(self, text: str) -> Session:
        """Its prompt is computed if it is held."""
        session = self._model.session(temperature=0.0, ignore_eos=True)
        session.append(text)
        return session


def _greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)


def _close(stream: Iterator[TokenEvent]) -> None:
    for _ in stream:
        raise AssertionError("a stream had more tokens than were asked for")


if __name__ == "__main__":
    serve(Engine)
