"""os.fork, as multiprocessing does it: a child may use the model, whatever other threads were doing."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models import loaded
from unsay import SamplingParams
from unsay.errors import SessionLogError
from unsay.session.log import SessionLog

PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)


def in_child(work: Callable[[], object], seconds: int = 60) -> int:
    """Exit status of a forked child that does this, 0 when all went well."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("executor", ["null", "native"])
def test_a_child_forked_while_another_thread_steps(tiny_path: Path, tmp_path: Path, executor: str) -> None:
    draws, ids = random.Random(4), list(range(5, 40))
    with loaded(tiny_path, executor) as model, SessionLog(tmp_path / "log") as log:
        expected = [event.token_id for event in model.generate(list(ids), PARAMS)]
        busy, writer = model.session(ignore_eos=True), model.session(log=log)
        busy.append("hello there")
        must_end = threading.Event()

        def stream() -> None:
            while not must_end.is_set():
                for event in busy.stream(max_tokens=40):
                    if event.index % 8 == 7:
                        busy.rollback(to=1)
                        writer.inject("written")
                busy.rollback(to=0)

        def use() -> None:
            assert [event.token_id for event in model.generate(list(ids), PARAMS)] == expected
            with model.session(ignore_eos=True) as chat:
                chat.append("a child")
                chat.generate(3)
            with pytest.raises(SessionLogError, match="before this process was forked"):
                model.session(log=log)
            busy.interrupt()
            before = busy.token_ids
            assert (busy.logits() == model.logits(before)[-1]).all()
            model.tree.check()

        thread = threading.Thread(target=stream)
        thread.start()
        for _ in range(8):
            time.sleep(draws.uniform(0, 0.02))
            assert in_child(use) == 0
        must_end.set()
        thread.join(60)
        busy.close()
        writer.close()


def test_a_child_goes_on_with_a_session_of_its_own_thread(tiny_path: Path) -> None:
    with loaded(tiny_path) as model, model.session(ignore_eos=True) as chat:
        chat.append("hello there")
        answer = chat.stream(max_tokens=8)
        next(answer)

        def use() -> None:
            assert len(list(answer)) == 7

        assert in_child(use) == 0
        assert len(list(answer)) == 7
