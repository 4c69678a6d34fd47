"""OpenVINO GenAI as a contestant: its paged pipeline on the same GGUF file, stepped by hand, with its prefix cache on.

A context that is held is one the prefix cache knows. Its own choice of arithmetic, apart from the format of keys and
values.
"""

# pyright: basic, reportMissingImports=false
# The peer's package is in the peer's environment only: what it returns has no types here.

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from benchmarks.peers.protocol import Settings, serve

_CACHE_GB = 1


class Engine:
    """held: contexts whose keys and values were computed, and have not been needed for anything else since."""

    def __init__(self, settings: Settings) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching, scheduler.cache_size = True, _CACHE_GB
        scheduler.max_num_batched_tokens = 2048
        properties = {
            "INFERENCE_NUM_THREADS": settings.threads, "PERFORMANCE_HINT": "LATENCY",
            "KV_CACHE_PRECISION": {"f16": "f16", "int8": "u8"}[settings.kv],
        }  # fmt: skip
        self._pipeline = genai.ContinuousBatchingPipeline(settings.model, scheduler, "CPU", properties)
        self._held: list[list[int]] = []
        self._num_requests = 0

    def about(self) -> dict[str, Any]:
        return {"version": f"openvino-genai {genai.__version__}", "build": f"openvino {openvino.__version__}"}

    def prefill(self, ids: list[int]) -> dict[str, Any]:
        """A prompt, to its first token. The cache knows each prompt only once: give another every time."""
        started = perf_counter()
        tokens = self._finish([self._ask(ids, 1)])
        return {"seconds": perf_counter() - started, "ids": tokens[0]}

    def hold(self, contexts: list[list[int]]) -> None:
        for ids in contexts:
            self._finish([self._ask(ids, 1)])
        self._held = contexts

    def decode(self, count: int) -> dict[str, Any]:
        """The steps after the one that all first tokens are there."""
        handles = [self._ask(ids, count + 1) for ids in self._held]
        answers: list[list[int]] = [[] for _ in handles]
        while not all(answers):
            self._step(handles, answers)
        num_before = sum(map(len, answers))
        started = perf_counter()
        while self._pipeline.has_non_finished_requests():
            self._step(handles, answers)
        seconds = perf_counter() - started
        num_timed = sum(map(len, answers)) - num_before
        return {"seconds": seconds * count * len(answers) / num_timed, "ids": answers}

    def correct(self, made: int, kept: int, injected: list[int]) -> dict[str, Any]:
        """An answer is stopped at a token boundary; prompt, kept tokens and injection are asked for anew."""
        (ids,) = self._held
        handle, answers = self._ask(ids, made * 20), [[]]
        while len(answers[0]) < made:
            self._step([handle], answers)
        started = perf_counter()
        handle.stop()
        again = self._ask([*ids, *answers[0][:kept], *injected], 1)
        (first,) = self._finish([again])[0]
        seconds = perf_counter() - started
        return {"seconds": seconds, "first": first, "ids": answers[0][:kept], "computed": None}

    def perplexity(self, window: list[int], first_scored: int) -> dict[str, Any]:
        """From the log-probabilities of an echoed prompt; the last token is a prompt's too."""
        config = _greedy(1)
        config.echo, config.logprobs = True, 1
        handle = self._add(window, config)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        (output,) = handle.read_all()
        return {"nll": -float(np.sum(np.array(output.generated_log_probs[first_scored : len(window)], np.float64)))}

    def _ask(self, ids: Sequence[int], count: int) -> Any:
        return self._add(ids, _greedy(count))

    def _add(self, ids: Sequence[int], config: Any) -> Any:
        self._num_requests += 1
        return self._pipeline.add_request(self._num_requests, openvino.Tensor(np.array([ids], np.int64)), config)

    def _finish(self, handles: list[Any]) -> list[list[int]]:
        answers: list[list[int]] = [[] for _ in handles]
        while self._pipeline.has_non_finished_requests():
            self._step(handles, answers)
        return answers

    def _step(self, handles: list[Any], answers: list[list[int]]) -> None:
        """One step; its tokens go to the answers."""
        self._pipeline.step()
        for handle, answer in zip(handles, answers, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    answer += output.generated_ids


def _greedy(count: int) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens, config.do_sample, config.ignore_eos, config.apply_chat_template = count, False, True, False
    return config


if __name__ == "__main__":
    serve(Engine)
