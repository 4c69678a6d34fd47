"""llama.cpp as a contestant, through the C functions that llama-cpp-python exposes: no sampler, no text.

The next token is the argmax of the logits, which costs less than its own samplers. options: flash_attention (-1 its own
choice, 0 off, 1 on).
"""

# pyright: basic, reportMissingImports=false
# The peer's package is in the peer's environment only: what it returns has no types here.

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import llama_cpp
import numpy as np

from benchmarks.peers.protocol import Settings, serve

_BATCH_TOKENS = 2048
_ROOM_TOKENS = 128
"""Positions beyond a context for what is generated from it."""

Share = tuple[int, int, Sequence[int], int]
"""sequence, position of its first token, token ids, how many of the last of them want logits."""


class Engine:
    """One native context at a time, as large as its work needs; sequence s of it holds contexts[s]."""

    def __init__(self, settings: Settings) -> None:
        self._silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silence, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._settings = settings
        self._model = llama_cpp.llama_model_load_from_file(
            settings.model.encode(), llama_cpp.llama_model_default_params()
        )
        assert self._model, settings.model
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(_BATCH_TOKENS, 0, 1)
        self._context: Any = None
        self._shape = (0, 0)
        self._held: list[list[int]] = []
        self._first: list[int] = []

    def about(self) -> dict[str, Any]:
        system = llama_cpp.llama_print_system_info().decode()
        return {"version": f"llama-cpp-python {llama_cpp.__version__}", "build": system.strip()}

    def prefill(self, ids: list[int]) -> dict[str, Any]:
        """A prompt, to its first token."""
        self._held = []
        self._open(1, len(ids))
        self._forget()
        started = perf_counter()
        tokens = self._run([(0, 0, ids, 1)])
        return {"seconds": perf_counter() - started, "ids": tokens}

    def hold(self, contexts: list[list[int]]) -> None:
        self._open(len(contexts), max(map(len, contexts)))
        self._forget()
        self._held = contexts
        self._first = [self._run([(sequence, 0, ids, 1)])[0] for sequence, ids in enumerate(contexts)]

    def decode(self, count: int) -> dict[str, Any]:
        answers = [[token] for token in self._first]
        started = perf_counter()
        for step in range(count):
            shares = [(s, len(ids) + step, answers[s][-1:], 1) for s, ids in enumerate(self._held)]
            for answer, token in zip(answers, self._run(shares), strict=True):
                answer.append(token)
        seconds = perf_counter() - started
        for sequence, ids in enumerate(self._held):
            self._cut(sequence, len(ids))
        return {"seconds": seconds, "ids": answers}

    def correct(self, made: int, kept: int, injected: list[int]) -> dict[str, Any]:
        """An answer of `made` tokens ends at a token boundary, is cut to `kept`, and goes on behind `injected`."""
        (ids,) = self._held
        answer = list(self._first)
        for step in range(made):
            answer += self._run([(0, len(ids) + step, answer[-1:], 1)])
        started = perf_counter()
        self._cut(0, len(ids) + kept)
        (first,) = self._run([(0, len(ids) + kept, injected, 1)])
        seconds = perf_counter() - started
        self._cut(0, len(ids))
        return {"seconds": seconds, "first": first, "ids": answer[:kept], "computed": len(injected)}

    def perplexity(self, window: list[int], first_scored: int) -> dict[str, Any]:
        num_rows = len(window) - first_scored
        self._held = []
        self._open(1, len(window))
        self._forget()
        self._run([(0, 0, window[:-1], num_rows)])
        logits = np.stack([self._row(len(window) - 1 - num_rows + row) for row in range(num_rows)]).astype(np.float64)
        peaks = logits.max(axis=-1)
        totals = peaks + np.log(np.exp(logits - peaks[:, None]).sum(axis=-1))
        return {"nll": float(np.sum(totals - logits[np.arange(num_rows), window[first_scored:]]))}

    def _open(self, num_sequences: int, num_tokens: int) -> None:
        """A native context with room for that many tokens in each sequence, unless there is one."""
        shape = (num_sequences, num_tokens + _ROOM_TOKENS)
        if shape == self._shape:
            return
        if self._context:
            llama_cpp.llama_free(self._context)
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max, params.n_ctx = num_sequences, shape[0] * shape[1]
        params.n_batch, params.kv_unified = _BATCH_TOKENS, False
        params.n_threads = params.n_threads_batch = self._settings.threads
        params.flash_attn_type = self._settings.options.get("flash_attention", -1)
        if self._settings.kv == "int8":
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_Q8_0
        self._context, self._shape = llama_cpp.llama_init_from_model(self._model, params), shape
        assert self._context, shape

    def _forget(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def _cut(self, sequence: int, length: int) -> None:
        assert llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), sequence, length, -1)

    def _run(self, shares: Sequence[Share]) -> list[int]:
        """Compute; the argmax at the end of each share. One share may be longer than a batch."""
        if len(shares) == 1 and len(shares[0][2]) > _BATCH_TOKENS:
            sequence, position, ids, num_rows = shares[0]
            self._run([(sequence, position, ids[:_BATCH_TOKENS], 0)])
            return self._run([(sequence, position + _BATCH_TOKENS, ids[_BATCH_TOKENS:], num_rows)])
        ends = self._fill(shares)
        status = llama_cpp.llama_decode(self._context, self._batch)
        assert status == 0, status
        return [int(np.argmax(self._row(end))) for end, share in zip(ends, shares, strict=True) if share[3]]

    def _fill(self, shares: Sequence[Share]) -> list[int]:
        """Write the shares into the batch; where each ends."""
        batch, ends, place = self._batch, [], 0
        for sequence, position, ids, num_rows in shares:
            for number, token in enumerate(ids):
                batch.token[place], batch.pos[place] = token, position + number
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = number >= len(ids) - num_rows
                place += 1
            ends.append(place - 1)
        batch.n_tokens = place
        return ends

    def _row(self, place: int) -> np.ndarray:
        """Logits [V] of the batch's token at `place`."""
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, place), (self._vocab_size,))


if __name__ == "__main__":
    serve(Engine)
