"""crabstore under measurement, through the calls that a program makes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

from crabdb import CrabDB
from crabdb.format import RECORD_OVERHEAD
from crabstore import Between, SessionFilter
from crabstore.backends.crabdb import CrabBackend
from crabstore.store.messages import HistoryEntry

from ..corpus import Corpus, Message, Query
from .common import BULK, LIMIT, REPEATS, Clock, Engine, Figures, Outcome, Part, Stream, resident, victims

__all__ = ["Crabstore", "CrabstoreSessions", "kinds"]

SINGLES = 4_000


class Crabstore(Engine):
    """Asked for messages."""

    @property
    def path(self) -> Path:
        """The store's file."""
        return self.folder / "store.crmem"

    def fill(self, corpus: Corpus, messages: int) -> Outcome:
        return asyncio.run(self._fill(corpus, messages))

    async def _fill(self, corpus: Corpus, messages: int) -> Outcome:
        store = await CrabBackend.open(self.path)
        stream = Stream(corpus.sessions(messages))
        writer = _Writer(store, stream)
        single = min(SINGLES, messages // 5)
        bulk = messages - 2 * single
        clock, lag = await _beside(writer.write(bulk, BULK))
        figures = _each("bulk", clock, bulk) | {"lag_bulk_ms": lag.worst * 1e3}
        # What the bulk left to do (compaction) is told apart; single appends meet a store at rest.
        closing = Clock()
        with closing:
            await store.checkpoint()
            await store.close()
        figures["close_s"] = closing.seconds
        store = await CrabBackend.open(self.path)
        writer.store = store
        clock = await writer.write(single, 1)
        figures |= _each("append", clock, single) | {"append_p99_us": clock.high(0.99) * 1e6}
        _, lag = await _beside(writer.write(single, 1))
        figures |= {"lag_ms": lag.worst * 1e3, "lag_processor_ms": lag.processor * 1e3}
        await store.close()
        figures["text_mb"] = stream.bytes / 1e6
        return Outcome(figures | kinds(self.path))

    def search(self, queries: list[Query]) -> Outcome:
        return asyncio.run(self._search(queries))

    async def _search(self, queries: list[Query]) -> Outcome:
        bare, opening = resident(), Clock()
        with opening:
            store = await CrabBackend.open(self.path, create=False)
        opened = resident()
        cold = [await _timed(self.ask, store, query, 1) for query in queries]
        warm = [await _timed(self.ask, store, query, REPEATS) for query in queries]
        figures = {"open_ms": opening.seconds * 1e3, "rss_mb": resident()}
        await store.close()
        return Outcome(figures | {"rss_bare_mb": bare, "rss_open_mb": opened}, cold, warm)

    async def ask(self, store: CrabBackend, query: Query) -> None:
        """One search."""
        where: dict[str, str | Between] = {}
        if query.project:
            where["project"] = query.project
        if query.since:
            where["ts"] = Between(query.since)
        await store.text.search("msg", query.text, LIMIT, where)

    def delete(self, corpus: Corpus, messages: int) -> Outcome:
        return asyncio.run(self._delete(corpus, messages))

    async def _delete(self, corpus: Corpus, messages: int) -> Outcome:
        store = await CrabBackend.open(self.path, create=False)
        await store.text.search("msg", "opened", 1)
        deleting = Clock()
        for session, _ in victims(corpus, messages):
            with deleting:
                assert await store.sessions.delete(session.handle)
        await store.close()
        return Outcome({"delete_ms": median(deleting.milliseconds)})


class CrabstoreSessions(Crabstore):
    """Asked for sessions."""

    async def ask(self, store: CrabBackend, query: Query) -> None:
        where = SessionFilter(project=query.project, since=query.since)
        await store.sessions.search(query.text, LIMIT, where)


class _Writer:
    """Appends a corpus to sessions, and lets other tasks of the event loop have their turn after each call."""

    def __init__(self, store: CrabBackend, stream: Stream) -> None:
        self.store = store
        self._stream = stream

    async def write(self, count: int, most: int) -> Clock:
        """Append the next `count` messages, at most so many a call; what that took.

        Opening a session counts where messages come in bulk, and not where single ones are measured.
        """
        clock = Clock()
        for part in self._stream.take(count, most):
            if part.first:
                with clock if most > 1 else nullcontext():
                    await self._open(part)
            with clock:
                entries = [_entry(message, part.number + at) for at, message in enumerate(part.messages)]
                await self.store.sessions.append_messages(part.session.handle, entries)
                await asyncio.sleep(0)
        return clock

    async def _open(self, part: Part) -> None:
        session = part.session
        agent = await self.store.agents.ensure(session.agent)
        await self.store.sessions.open(
            session.handle,
            agent=agent.id,
            created_by="user",
            created_at=session.messages[0].ts,
            title=session.title,
            root=session.project,
        )


def _entry(message: Message, number: int) -> HistoryEntry:
    make = HistoryEntry.assistant if message.role == "assistant" else HistoryEntry.user
    return make(message.text, id=f"message-{number:08}", ts=message.ts)


class _Lag:
    """How long an event loop keeps a task waiting."""

    def __init__(self) -> None:
        self.worst = 0.0
        """The most seconds by which it woke too late."""
        self.processor = 0.0
        """The most seconds of this thread's processor time between two turns of it: what other processes on the
        machine add to the other figure is not in this one."""

    async def watch(self) -> None:
        """Sleep for a millisecond at a time, until cancelled."""
        while True:
            due, used = perf_counter() + 0.001, thread_time()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, perf_counter() - due)
            self.processor = max(self.processor, thread_time() - used)


def _each(name: str, clock: Clock, count: int) -> Figures:
    """Microseconds a message."""
    return {
        f"{name}_us": clock.seconds / count * 1e6,
        f"{name}_processor_us": clock.processor / count * 1e6,
    }


async def _beside(work: Awaitable[Clock]) -> tuple[Clock, _Lag]:
    """What `work` returns, and the lag beside it."""
    lag = _Lag()
    watching = asyncio.create_task(lag.watch())
    result = await work
    watching.cancel()
    return result, lag


async def _timed(
    ask: Callable[[CrabBackend, Query], Awaitable[None]], store: CrabBackend, query: Query, runs: int
) -> list[float]:
    clock = Clock()
    for _ in range(runs):
        with clock:
            await ask(store, query)
    return clock.milliseconds


def kinds(path: Path) -> Figures:
    """Megabytes of the file by what they are; reads every record."""
    db = CrabDB.open(path, create=False, read_only=True)
    found: Figures = {}
    for col in db.columns():
        after = None
        while col < 255 and (rows := db.scan(col, b"", after=after, limit=10_000)):
            for key, value in rows:
                kind = kind_of(key)
                found[kind] = found.get(kind, 0) + (len(key) + len(value) + RECORD_OVERHEAD) / 1e6
            after = rows[-1][0]
    snapshot = db.stats().snapshot / 1e6
    db.close()
    file, every = path.stat().st_size / 1e6, sum(found.values())
    text = sum(size for kind, size in found.items() if kind.startswith("idx/text"))
    other = sum(size for kind, size in found.items() if kind.startswith(("idx/", "session/id"))) - text
    return {
        **{f"kind {kind}": size for kind, size in sorted(found.items())},
        "content_mb": every - text - other,
        "index_mb": text,
        "other_index_mb": other,
        "snapshot_mb": snapshot,
        "dead_mb": file - every - snapshot,
        "file_mb": file,
    }


def kind_of(key: bytes) -> str:
    """What a row is: the parts of its key that do not vary, the realm left out."""
    names = [part.decode() for part in key.split(b"/", 5)[1:]]
    if names[:2] == ["idx", "text"]:
        return "/".join(names[:4])
    if names[0] == "session":
        return f"session/{names[2]}"
    return "/".join(names[:2]) if names[0] == "idx" else names[0]
