"""The file of sessions: every event is on the disk before it is acknowledged. SQLite, write-ahead log, full sync.

    sessions  id | parent, parent_events: what a fork starts from | created: Unix seconds | settings: the caller's JSON
    events    session, seq 0.. | verb | kept | ids: little-endian u32 | place: JSON of the other fields of an Event

A fork copies nothing: its events are its parent's first `parent_events`, a FORK, then its own. Threads share a log;
processes share the file. A writer says how many events it has seen, so that two never write one session unaware.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unsay.errors import RequestError, SessionLogError
from unsay.forked import begins_anew, free
from unsay.session.replay import Event, Verb

_APPLICATION_ID = 0x756E7361
"""The ASCII of "unsa", where SQLite keeps whose file this is."""

_VERSION = 1
_LOCK_WAIT_S = 10.0

_SCHEMA = f"""
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, parent TEXT REFERENCES sessions, parent_events INTEGER, created REAL NOT NULL,
    settings TEXT NOT NULL
) STRICT;
CREATE TABLE events (
    session TEXT NOT NULL REFERENCES sessions, seq INTEGER NOT NULL, verb TEXT NOT NULL, kept INTEGER NOT NULL,
    ids BLOB NOT NULL, place TEXT NOT NULL, PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True, slots=True)
class LoggedSession:
    """A session of the log. num_events: its own, without those of the session it was forked from."""

    id: str
    parent: str | None
    created: float
    settings: dict[str, Any]
    num_events: int


class SessionLog:
    """An open file of sessions; made if missing. Raises SessionLogError wherever the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._is_parents = False
        with self._explained():
            self._db = sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise
        begins_anew(self)

    def begin_anew(self) -> None:
        """In a forked child, which must not use it: SQLite forbids to share a connection, even to close it there."""
        free(self._lock)
        self._is_parents = True

    def create(self, settings: dict[str, Any]) -> str:
        """Begin a session; returns its id."""
        return self._insert_session(None, None, settings)

    def fork(self, parent: str, settings: dict[str, Any]) -> str:
        """Begin a session where `parent` is now; returns its id."""
        return self._insert_session(parent, self._num_events(parent), settings)

    def append(self, session: str, events: Sequence[Event], after: int) -> int:
        """Make `events` durable; returns how many the session has now. `after`: how many the caller knows of.

        SessionLogError, and nothing written, if somebody else has written to the session since.
        """
        with self._transaction() as db:
            present = self._count(db, session)
            if present != after:
                raise SessionLogError(
                    f"session {session} has {present} events, this writer knows of {after}: another process uses it, "
                    "or an exception came between a write and what follows it; open it again"
                )
            rows = [(session, after + place, *_row(event)) for place, event in enumerate(events)]
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
        return after + len(events)

    def events(self, session: str) -> list[Event]:
        """Every event that made the session, those of the sessions it was forked from first: for `replay`."""
        with self._transaction() as db:
            parts = [self._own_events(db, session, None)]
            parent, count = self._parent(db, session)
            while parent is not None:
                parts.append([*self._own_events(db, parent, count), Event(Verb.FORK)])
                parent, count = self._parent(db, parent)
        return [event for part in reversed(parts) for event in part]

    def sessions(self) -> list[LoggedSession]:
        """All sessions, oldest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT id, parent, created, settings, (SELECT count(*) FROM events WHERE session = id) "
                "FROM sessions ORDER BY created, rowid"
            ).fetchall()
            return [LoggedSession(row[0], row[1], row[2], json.loads(row[3]), row[4]) for row in rows]

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock:
            if not self._is_parents:
                self._db.close()

    def __enter__(self) -> SessionLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> None:
        """Refuse what is not ours before anything is written to it."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        ours, version = (
            db.execute("PRAGMA application_id").fetchone()[0],
            db.execute("PRAGMA user_version").fetchone()[0],
        )
        is_new = not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        db.execute("ROLLBACK")
        if not is_new and ours != _APPLICATION_ID:
            raise SessionLogError(f"{self.path} is a database of another program: name another file for the sessions")
        if not is_new and version != _VERSION:
            raise SessionLogError(
                f"{self.path} has version {version}, this unsay reads {_VERSION}: use the unsay it is of"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        if is_new:
            self._make_tables()

    def _make_tables(self) -> None:
        """Unless another process has made them since we looked."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
        db.execute("COMMIT")

    def _insert_session(self, parent: str | None, parent_events: int | None, settings: dict[str, Any]) -> str:
        session = uuid.uuid4().hex
        with self._transaction() as db:
            row = (session, parent, parent_events, time.time(), json.dumps(settings))
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)
        return session

    def _num_events(self, session: str) -> int:
        with self._transaction() as db:
            return self._count(db, session)

    def _count(self, db: sqlite3.Connection, session: str) -> int:
        self._parent(db, session)
        (last,) = db.execute("SELECT max(seq) FROM events WHERE session = ?", (session,)).fetchone()
        return 0 if last is None else last + 1

    def _parent(self, db: sqlite3.Connection, session: str) -> tuple[str | None, int | None]:
        row = db.execute("SELECT parent, parent_events FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise RequestError(f"no session {session!r} in {self.path}")
        return row

    def _own_events(self, db: sqlite3.Connection, session: str, count: int | None) -> list[Event]:
        query = "SELECT verb, kept, ids, place FROM events WHERE session = ? ORDER BY seq LIMIT ?"
        rows = db.execute(query, (session, -1 if count is None else count)).fetchall()
        return [_event(*row) for row in rows]

    def _check_ours(self) -> None:
        if self._is_parents:
            raise SessionLogError(
                f"the session log {self.path} was opened before this process was forked, and its parent has it: "
                "open it after the fork, not before"
            )

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """All or nothing; durable when the block has been left."""
        with self._lock, self._explained():
            self._check_ours()
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Generator[None]:
        """What SQLite or a damaged row makes of the file, as an error that names it."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise SessionLogError(f"the session log {self.path} cannot be used: {error}") from error


def _row(event: Event) -> tuple[str, int, bytes, str]:
    place = {
        "answer_start": event.answer_start,
        "has_turns": event.has_turns,
        "finish": event.finish,
        "stop": event.stop,
        "number": event.number,
    }
    ids = np.array(event.token_ids, "<u4").tobytes()
    return event.verb.value, event.kept, ids, json.dumps({name: value for name, value in place.items() if value})


def _event(verb: str, kept: int, ids: bytes, place: str) -> Event:
    fields = json.loads(place)
    fields["stop"] = tuple(fields.get("stop", ()))
    return Event(Verb(verb), kept, tuple(np.frombuffer(ids, "<u4").tolist()), **fields)
