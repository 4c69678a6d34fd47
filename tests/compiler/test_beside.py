"""Threads beside: they end with the block, and soon if it is left by an exception."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future

import pytest

from unsay.compiler.beside import Beside, ended_by, look


def test_what_is_started_gives_its_result_or_error() -> None:
    with Beside() as beside:
        assert beside.start(divmod, 7, 2).result() == (3, 1)
        with pytest.raises(ZeroDivisionError):
            beside.start(divmod, 7, 0).result()


def test_a_block_that_ends_well_waits_and_stops_nothing() -> None:
    go = threading.Event()

    def work() -> str:
        with ended_by(lambda: pytest.fail("ended")):
            go.wait()
            look()
        return "done"

    with Beside() as beside:
        future = beside.start(work)
        go.set()
    assert future.result() == "done"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_block_left_by_an_exception_ends_what_looks_and_what_waits(error: type[BaseException]) -> None:
    futures: list[Future[None]] = []
    begun = threading.Barrier(3)

    def look_on() -> None:
        begun.wait()
        while True:
            look()

    def wait() -> None:
        end = threading.Event()
        with ended_by(end.set):
            begun.wait()
            end.wait()

    def left() -> None:
        with Beside() as beside:
            futures.extend(beside.start(work) for work in (look_on, wait))
            begun.wait()
            raise error

    with pytest.raises(error):
        left()
    assert [future.done() for future in futures] == [True, True]
    assert isinstance(futures[0].exception(), CancelledError) and futures[1].exception() is None


def test_who_comes_to_wait_afterwards_is_ended_at_once() -> None:
    go, end = threading.Event(), threading.Event()

    def wait() -> None:
        go.wait()
        with ended_by(end.set):
            end.wait()

    def let_go() -> None:
        with ended_by(go.set):
            end.wait()

    def left() -> None:
        with Beside() as beside:
            beside.start(wait)
            beside.start(let_go)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        left()
    assert end.is_set()


def test_elsewhere_nothing_happens() -> None:
    look()
    with ended_by(lambda: pytest.fail("ended")):
        pass
