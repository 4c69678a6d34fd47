"""The session log: durable before acknowledged, shared by threads and processes, errors for what is no log."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from unsay.errors import RequestError, SessionLogError
from unsay.session.log import SessionLog
from unsay.session.replay import Event, Verb, replay

WRITER = """
import sys
from pathlib import Path
from unsay.session.log import SessionLog
from unsay.session.replay import Event, Verb
log = SessionLog(Path(sys.argv[1]))
session = log.create({"seed": 7})
print(session, flush=True)
for number in range(100_000):
    count = log.append(session, [Event(Verb.ANSWER, kept=number, token_ids=(number,))], after=number)
    print(count, flush=True)
"""

CREATOR = """
import sys
from pathlib import Path
from unsay.session.log import SessionLog
SessionLog(Path(sys.argv[1])).create({})
"""


def answer(kept: int, *ids: int) -> Event:
    return Event(Verb.ANSWER, kept=kept, token_ids=ids)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SessionLog]:
    with SessionLog(tmp_path / "sessions.db") as opened:
        yield opened


def test_events_come_back_as_they_were_written(log: SessionLog) -> None:
    session = log.create({"model": "tiny", "temperature": 0.5})
    events = [
        Event(Verb.USER, token_ids=(1, 2, 49151), answer_start=3, has_turns=True),
        answer(3, 7),
        Event(Verb.ANSWER, kept=4, token_ids=(2**32 - 1,), answer_start=3, finish="stop", stop=("END", "é")),
        Event(Verb.UNDO, number=1),
    ]
    assert log.append(session, events[:1], after=0) == 1
    assert log.append(session, events[1:], after=1) == 4
    log.close()
    with SessionLog(log.path) as reopened:
        assert reopened.events(session) == events
        (logged,) = reopened.sessions()
        assert (logged.id, logged.settings) == (session, {"model": "tiny", "temperature": 0.5})
        assert logged.num_events == 4 and logged.parent is None


def test_a_fork_continues_where_its_parent_was(log: SessionLog) -> None:
    parent = log.create({})
    count = log.append(parent, [Event(Verb.USER, token_ids=(1, 2), answer_start=2), answer(2, 3)], after=0)
    child = log.fork(parent, {})
    log.append(parent, [answer(3, 4)], after=count)
    log.append(child, [Event(Verb.ROLLBACK, kept=2), Event(Verb.INJECT, kept=2, token_ids=(9,))], after=0)
    grandchild = log.fork(child, {})
    log.append(child, [answer(3, 5)], after=2)
    assert replay(log.events(parent)).token_ids == [1, 2, 3, 4]
    assert replay(log.events(child)).token_ids == [1, 2, 9, 5]
    assert replay(log.events(grandchild)).token_ids == [1, 2, 9]


@pytest.mark.parametrize("delay_s", [0.05, 0.2, 0.4])
def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path, delay_s: float) -> None:
    path = tmp_path / "sessions.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    session = writer.stdout.readline().strip()
    time.sleep(delay_s)
    writer.send_signal(signal.SIGKILL)
    acknowledged = [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    writer.stdout.close()
    with SessionLog(path) as log:
        ids = replay(log.events(session)).token_ids
        assert ids == list(range(len(ids)))
        assert (acknowledged or [0])[-1] <= len(ids) <= (acknowledged or [0])[-1] + 1
        log.append(session, [answer(len(ids), 5)], after=len(ids))


def test_a_writer_that_does_not_know_the_newest_event_is_refused(log: SessionLog) -> None:
    session = log.create({})
    with SessionLog(log.path) as other:
        other.append(session, [answer(0, 1)], after=0)
    with pytest.raises(SessionLogError, match="has 1 events, this writer knows of 0"):
        log.append(session, [answer(0, 2)], after=0)
    assert log.events(session) == [answer(0, 1)]


def test_threads_and_connections_write_their_sessions_at_once(tmp_path: Path) -> None:
    logs = [SessionLog(tmp_path / "sessions.db") for _ in range(2)]
    sessions = [logs[0].create({"number": number}) for number in range(4)]
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for count in range(15):
                logs[number % 2].append(sessions[number], [answer(count, number * 100 + count)], after=count)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number, session in enumerate(sessions):
        assert replay(logs[0].events(session)).token_ids == [number * 100 + count for count in range(15)]
    for each in logs:
        each.close()


def test_processes_that_make_the_file_at_once_agree(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    makers = [subprocess.Popen([sys.executable, "-c", CREATOR, str(path)]) for _ in range(3)]
    assert [maker.wait() for maker in makers] == [0, 0, 0]
    with SessionLog(path) as log:
        assert len(log.sessions()) == 3


def test_an_unknown_session_is_refused(log: SessionLog) -> None:
    for verb in (log.events, lambda name: log.append(name, [], after=0), lambda name: log.fork(name, {})):
        with pytest.raises(RequestError, match="no session 'nobody'"):
            verb("nobody")


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, not a database\n" * 100)
    with pytest.raises(SessionLogError, match=r"notes\.txt"):
        SessionLog(path)
    assert path.read_text() == "these are my notes, not a database\n" * 100


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(SessionLogError, match="another program"):
        SessionLog(path)
    assert path.read_bytes() == before


def test_a_later_version_is_refused(log: SessionLog) -> None:
    log.close()
    with sqlite3.connect(log.path) as later:
        later.execute("PRAGMA user_version = 2")
    later.close()
    with pytest.raises(SessionLogError, match="version 2, this unsay reads 1"):
        SessionLog(log.path)


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SessionLogError, match=r"nowhere/sessions\.db"):
        SessionLog(tmp_path / "nowhere" / "sessions.db")


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_file_gives_a_typed_error_or_the_events(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "sessions.db"
    with SessionLog(path) as log:
        session = log.create({})
        log.append(session, [answer(number, number) for number in range(500)], after=0)
    generator = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(60):
        content[generator.randrange(len(content))] ^= 0xFF
    path.write_bytes(content)
    try:
        with SessionLog(path) as log:
            log.sessions()
            replay(log.events(session))
    except (SessionLogError, RequestError):
        pass


def test_a_log_costs_what_was_said_however_often_it_was_taken_back(log: SessionLog) -> None:
    session = log.create({})
    count = log.append(session, [Event(Verb.USER, token_ids=tuple(range(8000)), answer_start=8000)], after=0)
    edits: list[Event] = []
    for number in range(500):
        edits += [Event(Verb.INJECT, kept=8000, token_ids=(number,)), Event(Verb.UNDO, number=1)]
    log.append(session, edits, after=count)
    log.close()
    assert log.path.stat().st_size < 8000 * 4 + 1000 * 150 + 64_000
