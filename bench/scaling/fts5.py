"""SQLite FTS5 under measurement: the text stored in its own table, bm25(), WAL, synchronous NORMAL, 64 MiB of
page cache, attributes in unindexed columns. A commit survives the end of the process and not of the power, as ours
does.
"""

from __future__ import annotations

import sqlite3
from statistics import median

from ..corpus import Corpus, Query
from .common import LIMIT, Clock, Engine, Outcome, Row, resident, victims
from .peers import asked, filled, stored

__all__ = ["FTS5"]

SINGLES = 4_000


class FTS5(Engine):
    """The full-text index of the standard library's database."""

    def fill(self, corpus: Corpus, messages: int) -> Outcome:
        db = self._connect()
        db.execute(
            "CREATE VIRTUAL TABLE messages USING fts5"
            "(text, session UNINDEXED, project UNINDEXED, role UNINDEXED, ts UNINDEXED)"
        )

        def write(rows: list[Row]) -> None:
            db.execute("BEGIN")
            db.executemany(
                "INSERT INTO messages(rowid, text, session, project, role, ts) VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
            db.execute("COMMIT")

        outcome = filled(corpus, messages, min(SINGLES, messages // 5), write)
        closing = Clock()
        with closing:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.close()
        (index,) = self._connect().execute("SELECT sum(length(block)) FROM messages_data").fetchone()
        outcome.figures |= {
            "close_s": closing.seconds,
            "index_mb": index / 1e6,
            "file_mb": stored(self.folder),
        }
        return outcome

    def search(self, queries: list[Query]) -> Outcome:
        opening, bare = Clock(), resident()
        with opening:
            db = self._connect()
            db.execute("SELECT 1 FROM messages LIMIT 1").fetchone()

        def ask(query: Query) -> None:
            match = " OR ".join(f'"{word}"{"*" if query.prefix else ""}' for word in query.words)
            given = {"project = ?": query.project, "ts >= ?": query.since}
            conditions = {condition: value for condition, value in given.items() if value}
            where = " AND ".join(("messages MATCH ?", *conditions))
            db.execute(
                f"SELECT rowid, rank FROM messages WHERE {where} ORDER BY rank LIMIT {LIMIT}",
                (match, *conditions.values()),
            ).fetchall()

        return asked(queries, ask, opening, bare)

    def delete(self, corpus: Corpus, messages: int) -> Outcome:
        db, deleting = self._connect(), Clock()
        for session, first in victims(corpus, messages):
            last = first + len(session.messages) - 1
            with deleting:
                db.execute("DELETE FROM messages WHERE rowid BETWEEN ? AND ?", (first, last))
        return Outcome({"delete_ms": median(deleting.milliseconds)})

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.folder / "store.sqlite", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA cache_size=-65536")
        return db
