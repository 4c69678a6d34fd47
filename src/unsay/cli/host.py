"""What `unsay exec` runs a program in: a machine over a model, or over none."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsay.cli.output import progress_bars
from unsay.cores import usable_cores
from unsay.errors import RequestError
from unsay.kv.pages import PagePool
from unsay.kv.tree import KvTree
from unsay.vm.machine import Machine
from unsay.vm.unlinked import UnlinkedExecutor

if TYPE_CHECKING:
    from unsay.session.tokenizer import Tokenizer

_EXECUTORS = {
    "native": ("unsay.runtime.native", "NativeExecutor"),
    "reference": ("unsay.runtime.reference", "ReferenceExecutor"),
    "checked": ("unsay.runtime.checked", "CheckedExecutor"),
    "null": ("unsay.runtime.null", "NullExecutor"),
}
_NUM_PAGES = 4096
"""Room for 65,536 tokens in all contexts together; memory is taken only where it is written."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a program runs in. tokenizer: None without a model."""

    machine: Machine
    tree: KvTree
    tokenizer: Tokenizer | None

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; without a model the text is ids."""
        if self.tokenizer is not None:
            return self.tokenizer.encode(text)
        try:
            return [int(word) for word in text.split()]
        except ValueError:
            raise RequestError(
                f"without a model there is no tokenizer: {text!r} must be token ids, as '12 7'; or give --model"
            ) from None

    def decode(self, token_ids: list[int]) -> str:
        """The text of token ids; without a model the ids."""
        return self.tokenizer.decode(token_ids) if self.tokenizer is not None else " ".join(map(str, token_ids))


@contextmanager
def open_host(args: argparse.Namespace) -> Generator[Host]:
    """The host that the model options name; closed at the end of the block."""
    host = _unlinked() if args.model is None else _linked(args)
    try:
        yield host
    finally:
        host.machine.executor.close()


def _unlinked() -> Host:
    executor = UnlinkedExecutor()
    return Host(Machine(executor), KvTree(PagePool(executor.spec.kv_layout.page_bytes, _NUM_PAGES)), None)


def _linked(args: argparse.Namespace) -> Host:
    from unsay import hub
    from unsay.compiler.compile import compile_model
    from unsay.default_target import check_runs_here, default_target
    from unsay.runtime.image import load_image
    from unsay.session.tokenizer import Tokenizer
    from unsay.vocabulary import open_vocabulary

    if args.target is not None:
        check_runs_here(args.target)
    with progress_bars() as progress:
        source = hub.resolve(args.model, progress)
        files = compile_model(source, target=args.target or default_target(), kv=args.kv, progress=progress)
    image = load_image(files)
    pool = PagePool(image.manifest.spec.kv_layout.page_bytes, _NUM_PAGES)
    module, name = _EXECUTORS[args.executor]
    executor = getattr(importlib.import_module(module), name)(image, pool.memory, args.threads or usable_cores())
    tokenizer = Tokenizer(open_vocabulary(files.vocabulary))
    return Host(Machine(executor, image.weights), KvTree(pool), tokenizer)
