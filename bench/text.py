"""How long does it take to index a message and to find it again, beside SQLite FTS5 in the same run?

    python -m bench.text [--messages 20000 150000] [--json FILE]

The corpus is made (see bench/corpus.py): about 18 distinct terms a message. Each side commits every message
by itself, so that it survives a kill of the process, then indexes the same again in commits of 256.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crabstore.backends.crabdb import CrabBackend
from crabstore.store.bm25 import tokens
from crabstore.store.messages import HistoryEntry

from .corpus import ZipfCorpus

BULK = 256
MESSAGES_PER_SESSION = 40
REPEATS = 7

Row = dict[str, float | int | str]


def main() -> None:
    """Run every size and print the table."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--messages", type=int, nargs="+", default=[20_000, 150_000])
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    rows = [row for count in given.messages for row in measure(count)]
    for row in rows:
        print("{messages:>8} {what:<34} {ours:>12} {fts5:>12} {ratio:>8} {unit}".format_map(row))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def measure(count: int) -> list[Row]:
    """The rows of one size."""
    corpus = ZipfCorpus()
    messages = list(corpus.texts(count))
    queries = {
        query.kind: query.text for query in corpus.queries(count) if not (query.project or query.since)
    }
    distinct = statistics.mean(len(set(tokens(text))) for text in messages[:2000])
    print(
        f"{count} messages, {sum(map(len, messages)) / 1e6:.1f} MB of text, {distinct:.1f} distinct terms each"
    )
    with tempfile.TemporaryDirectory() as folder:
        ours = asyncio.run(crabstore(Path(folder), messages, queries))
        peer = fts5(Path(folder), messages, queries)
    return [row(count, what, ours[what], peer.get(what)) for what in ours]


def row(count: int, what: str, ours: float, peer: float | None) -> Row:
    """One line of the table; a ratio over 1 says that ours is faster or smaller."""
    unit = "MB" if "bytes" in what else ("us a message" if "index" in what or "append" in what else "ms")
    return {
        "messages": count,
        "what": what,
        "ours": round(ours, 3),
        "fts5": "" if peer is None else round(peer, 3),
        "ratio": "" if peer is None else round(peer / ours, 2),
        "unit": unit,
    }


async def crabstore(folder: Path, messages: list[str], queries: dict[str, str]) -> dict[str, float]:
    """Keyed text search over crabdb."""
    figures: dict[str, float] = {}
    store = await CrabBackend.open(folder / "single.crmem")
    start = time.perf_counter()
    for number, text in enumerate(messages):
        batch = store.batch()
        await store.text.index(batch, "msg", _key(store, number), text)
        await store.commit(batch)
    figures["index, a commit each"] = (time.perf_counter() - start) / len(messages) * 1e6
    for name, query in queries.items():
        figures[f"search: {name}"] = await _async_median(store, query)
    await store.close()
    figures["bytes"] = (folder / "single.crmem").stat().st_size / 1e6

    store = await CrabBackend.open(folder / "bulk.crmem")
    start = time.perf_counter()
    for at in range(0, len(messages), BULK):
        batch = store.batch()
        for number, text in enumerate(messages[at : at + BULK], at):
            await store.text.index(batch, "msg", _key(store, number), text)
        await store.commit(batch)
    figures[f"index, {BULK} a commit"] = (time.perf_counter() - start) / len(messages) * 1e6
    await store.close()
    figures["append to a session, everything"] = await _append(folder, messages[:20_000])
    return figures


async def _append(folder: Path, messages: list[str]) -> float:
    store = await CrabBackend.open(folder / "append.crmem")
    for number in range(0, len(messages), MESSAGES_PER_SESSION):
        await store.sessions.open(f"s{number:08}", agent="A", created_by="me")
    start = time.perf_counter()
    for number, text in enumerate(messages):
        handle = f"s{number - number % MESSAGES_PER_SESSION:08}"
        await store.sessions.append_messages(handle, [HistoryEntry.user(text, id=str(number))])
    spent = time.perf_counter() - start
    await store.close()
    return spent / len(messages) * 1e6


def _key(store: CrabBackend, number: int) -> bytes:
    session, place = divmod(number, MESSAGES_PER_SESSION)
    return store.key("session", f"{session:020}", "msg", f"{place:012}")


async def _async_median(store: CrabBackend, query: str) -> float:
    spent: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        await store.text.search("msg", query, 20)
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e3


def fts5(folder: Path, messages: list[str], queries: dict[str, str]) -> dict[str, float]:
    """SQLite FTS5 with the text stored, ranked by its own bm25, WAL and synchronous NORMAL."""
    figures: dict[str, float] = {}
    db = _fts5_open(folder / "single.sqlite")
    start = time.perf_counter()
    for number, text in enumerate(messages):
        db.execute("INSERT INTO messages(rowid, text) VALUES (?, ?)", (number, text))
    figures["index, a commit each"] = (time.perf_counter() - start) / len(messages) * 1e6
    for name, query in queries.items():
        match = " OR ".join(query.split())
        figures[f"search: {name}"] = _median(lambda match=match: _fts5_search(db, match))  # type: ignore[misc]
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    figures["bytes"] = (folder / "single.sqlite").stat().st_size / 1e6

    db = _fts5_open(folder / "bulk.sqlite")
    start = time.perf_counter()
    for at in range(0, len(messages), BULK):
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO messages(rowid, text) VALUES (?, ?)", enumerate(messages[at : at + BULK], at)
        )
        db.execute("COMMIT")
    figures[f"index, {BULK} a commit"] = (time.perf_counter() - start) / len(messages) * 1e6
    db.close()
    return figures


def _fts5_open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("CREATE VIRTUAL TABLE messages USING fts5(text)")
    return db


def _fts5_search(db: sqlite3.Connection, match: str) -> None:
    db.execute(
        "SELECT rowid, rank FROM messages WHERE messages MATCH ? ORDER BY rank LIMIT 20", (match,)
    ).fetchall()


def _median(search: Callable[[], None]) -> float:
    spent: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        search()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e3


if __name__ == "__main__":
    main()
