"""A contestant that computes nothing: `python -m tests.benchmark.fake_engine`."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.peers.protocol import Settings, Unable, serve


class Engine:
    """Cannot do what `options` calls impossible."""

    def __init__(self, settings: Settings) -> None:
        if settings.kv != "f16":
            raise Unable("this engine has f16 keys and values only")
        self._settings = settings

    def about(self) -> dict[str, Any]:
        return {"version": "fake 1", "threads": self._settings.threads}

    def prefill(self, ids: list[int]) -> dict[str, Any]:
        os.write(1, b"native code says something\n")
        return {"seconds": len(ids) / 2, "ids": ids[-1:]}

    def hold(self, contexts: list[list[int]]) -> None:
        if self._settings.options.get("forgets"):
            raise Unable("it holds nothing")

    def decode(self, count: int) -> dict[str, Any]:
        raise ValueError(count)


if __name__ == "__main__":
    serve(Engine)
