"""The store without the awaits: every call runs on one event loop in a thread of the store's own.

So it works where a loop is running already, in a notebook too. Written by tools/sync_facade.py from the async
interfaces; never edited, never a second implementation.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from . import opening
from .store import reindex as _reindex
from .store.agents import AgentConfig, Agents
from .store.backend import Backend
from .store.batch import Column
from .store.bm25 import Analysis, Bm25
from .store.errors import StoreClosed
from .store.harnesses import Harnesses
from .store.memory import Kind, Memory, MemoryEntry, MemoryHit
from .store.messages import HistoryEntry
from .store.records import Json, Record
from .store.session_index import Redact
from .store.session_records import (
    Appended,
    EventLine,
    Loaded,
    OtherEvent,
    Recent,
    SessionMeta,
    Source,
    SourceRow,
)
from .store.session_search import SessionAnswer, SessionFilter
from .store.sessions import Sessions
from .store.skills import Skills, SkillSummary
from .store.text import GroupHits, Hits, Scale, TextSearch, Where
from .store.weights import Weights

__all__ = ["SyncStore", "open_sync"]

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="crabstore", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[object, object, T]) -> T:
        """What `call` returns, or the error that it raises."""
        if self._loop.is_closed():
            call.close()
            raise StoreClosed
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def closed(self) -> bool:
        """Whether the thread has ended."""
        return self._loop.is_closed()

    def stop(self) -> None:
        """End the thread; calls after it are errors."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncAgents:
    """`crabstore.store.agents.Agents` without the awaits."""

    def __init__(self, loop: _Loop, inner: Agents) -> None:
        self._loop = loop
        self._inner = inner

    def create(self, config: AgentConfig) -> AgentConfig:
        """Store a new agent under a new id. Raises NameTaken, or InvalidArgument for a bad name."""
        return self._loop.run(self._inner.create(config))

    def put(self, agent: AgentConfig) -> None:
        """Store `agent` whole under its id, renaming it if its name changed. Raises NameTaken."""
        self._loop.run(self._inner.put(agent))

    def get(self, agent_id: str) -> AgentConfig | None:
        """The agent with this id, or None."""
        return self._loop.run(self._inner.get(agent_id))

    def named(self, name: str) -> AgentConfig | None:
        """The agent with this name, or None."""
        return self._loop.run(self._inner.named(name))

    def ensure(self, name: str) -> AgentConfig:
        """The agent with this name, made with defaults if there is none."""
        return self._loop.run(self._inner.ensure(name))

    def ids(self) -> list[str]:
        """Every agent's id, in the order of their names. Reads no config."""
        return self._loop.run(self._inner.ids())

    def configs(self) -> list[AgentConfig]:
        """Every agent, in the order of their names."""
        return self._loop.run(self._inner.configs())

    def delete(self, agent_id: str) -> bool:
        """Remove an agent; whether it was there. Its sessions stay. A default that names it is cleared with it."""
        return self._loop.run(self._inner.delete(agent_id))

    def default(self) -> str | None:
        """The id of the default agent, or None."""
        return self._loop.run(self._inner.default())

    def set_default(self, agent_id: str | None) -> None:
        """Make an agent the default, or with None have no default. Raises NotFound."""
        self._loop.run(self._inner.set_default(agent_id))


class SyncSessions:
    """`crabstore.store.sessions.Sessions` without the awaits."""

    def __init__(self, loop: _Loop, inner: Sessions) -> None:
        self._loop = loop
        self._inner = inner

    def config(self) -> Weights:
        """The judgement numbers of the search."""
        return self._inner.config()

    def open(
        self,
        handle: str | None = None,
        *,
        agent: str,
        created_by: str,
        created_at: str = "",
        title: str = "",
        root: str = "",
        source: Source | None = None,
    ) -> SessionMeta:
        """The session with this handle, or from this source; a new one if there is none."""
        return self._loop.run(
            self._inner.open(
                handle,
                agent=agent,
                created_by=created_by,
                created_at=created_at,
                title=title,
                root=root,
                source=source,
            )
        )

    def meta(self, handle: str) -> SessionMeta | None:
        """What the session is, or None if there is no such session."""
        return self._loop.run(self._inner.meta(handle))

    def find_latest(self, agent: str, created_by: str) -> SessionMeta | None:
        """The session of this identity that was created last, or None."""
        return self._loop.run(self._inner.find_latest(agent, created_by))

    def handles(self, agent: str | None = None, created_by: str | None = None) -> list[str]:
        """All handles, an agent's, or an identity's; within an identity the newest comes last."""
        return self._loop.run(self._inner.handles(agent, created_by))

    def starting_with(self, start: str, limit: int = 20) -> list[str]:
        """The first handles that begin with `start`, ascending."""
        return self._loop.run(self._inner.starting_with(start, limit))

    def recent(self, limit: int = 20, after: Recent | None = None) -> list[Recent]:
        """A page of sessions, the one that changed last first; `after` is the last row of the page before."""
        return self._loop.run(self._inner.recent(limit, after))

    def append_messages(self, handle: str, entries: Iterable[HistoryEntry], *, at: str = "") -> Appended:
        """Append to the history; index what may be found. All or nothing. Raises NotFound."""
        return self._loop.run(self._inner.append_messages(handle, entries, at=at))

    def append_events(self, handle: str, events: Iterable[EventLine]) -> None:
        """Append to the trace. Raises NotFound."""
        self._loop.run(self._inner.append_events(handle, events))

    def append_compact(self, handle: str, summary: str, *, boundary: int | None = None) -> str:
        """Record that the history before `boundary` (default: all of it) is now represented by `summary`."""
        return self._loop.run(self._inner.append_compact(handle, summary, boundary=boundary))

    def update(
        self,
        handle: str,
        *,
        title: str | None = None,
        summary: str | None = None,
        source: Source | None = None,
        updated_at: str = "",
    ) -> SessionMeta:
        """Change what the session is called and where it comes from; None leaves a field. Raises NotFound."""
        return self._loop.run(
            self._inner.update(handle, title=title, summary=summary, source=source, updated_at=updated_at)
        )

    def set_active(self, handle: str, inactive: Collection[str]) -> int:
        """Mark the entries with these ids as off the active branch, all others as on it; how many changed."""
        return self._loop.run(self._inner.set_active(handle, inactive))

    def load(self, handle: str) -> Loaded | None:
        """The session as its next run needs it, or None if there is no such session."""
        return self._loop.run(self._inner.load(handle))

    def messages(self, handle: str, start: int = 0, stop: int | None = None) -> list[HistoryEntry]:
        """The recorded entries at positions ``start <= position < stop``, as they were appended."""
        return self._loop.run(self._inner.messages(handle, start, stop))

    def events(self, handle: str, start: int = 0, stop: int | None = None) -> list[EventLine | OtherEvent]:
        """The trace at positions ``start <= position < stop``."""
        return self._loop.run(self._inner.events(handle, start, stop))

    def entry_position(self, handle: str, entry_id: str) -> int | None:
        """Where the entry with this id stands, or None."""
        return self._loop.run(self._inner.entry_position(handle, entry_id))

    def search(
        self,
        query: str,
        limit: int | None = None,
        where: SessionFilter | None = None,
        *,
        before: int | None = None,
        after: int | None = None,
    ) -> SessionAnswer:
        """The best sessions for any string, each with its best message and what stands around it."""
        return self._loop.run(self._inner.search(query, limit, where, before=before, after=after))

    def truncate_messages(self, handle: str, keep: int) -> int:
        """Keep the first `keep` messages and remove the rest, from the end; how many went. Raises NotFound."""
        return self._loop.run(self._inner.truncate_messages(handle, keep))

    def delete(self, handle: str) -> bool:
        """Remove a session with everything that points at it; whether it was there."""
        return self._loop.run(self._inner.delete(handle))

    def forget(self, handle: str) -> bool:
        """`delete`, and never import it again; whether it was there."""
        return self._loop.run(self._inner.forget(handle))

    def find_source(self, tool: str, original_id: str) -> SourceRow | None:
        """Which session this original id became, or None."""
        return self._loop.run(self._inner.find_source(tool, original_id))

    def set_source(self, tool: str, original_id: str, handle: str, cursor: dict[str, Json]) -> None:
        """Record which session an original id is, and how far its file was read."""
        self._loop.run(self._inner.set_source(tool, original_id, handle, cursor))

    def forgotten(self, tool: str, original_id: str) -> bool:
        """Whether this original id must not be imported again."""
        return self._loop.run(self._inner.forgotten(tool, original_id))

    def reindex(self, handle: str) -> None:
        """Build every index entry of one session anew from its content. Raises NotFound."""
        self._loop.run(self._inner.reindex(handle))


class SyncMemory:
    """`crabstore.store.memory.Memory` without the awaits."""

    def __init__(self, loop: _Loop, inner: Memory) -> None:
        self._loop = loop
        self._inner = inner

    def put(self, entry: MemoryEntry) -> None:
        """Remember `entry`, replacing what has its name. Raises InvalidArgument for a bad name."""
        self._loop.run(self._inner.put(entry))

    def get(self, name: str) -> MemoryEntry | None:
        """The entry with this name, or None."""
        return self._loop.run(self._inner.get(name))

    def delete(self, name: str) -> bool:
        """Forget an entry; whether it was there."""
        return self._loop.run(self._inner.delete(name))

    def names(self) -> list[str]:
        """Every entry's name, ascending. Reads no entry."""
        return self._loop.run(self._inner.names())

    def entries(self, kind: Kind | None = None) -> list[MemoryEntry]:
        """Every entry, or those of one kind, in the order of their names."""
        return self._loop.run(self._inner.entries(kind))

    def search(self, query: str, limit: int = 20, kind: Kind | None = None) -> list[MemoryHit]:
        """The best `limit` entries for any string, best first."""
        return self._loop.run(self._inner.search(query, limit, kind))

    def reindex(self) -> None:
        """Put every entry into the text index anew."""
        self._loop.run(self._inner.reindex())


class SyncSkills:
    """`crabstore.store.skills.Skills` without the awaits."""

    def __init__(self, loop: _Loop, inner: Skills) -> None:
        self._loop = loop
        self._inner = inner

    def put(self, body: str) -> SkillSummary:
        """Store a SKILL.md under the name in its front matter, replacing that skill. Raises InvalidSkill."""
        return self._loop.run(self._inner.put(body))

    def get(self, name: str) -> str | None:
        """The SKILL.md of this name, or None."""
        return self._loop.run(self._inner.get(name))

    def summaries(self, names: Sequence[str] | None = None) -> list[SkillSummary]:
        """Every skill's name and description, in the order of their names; or those of `names`, in their order."""
        return self._loop.run(self._inner.summaries(names))

    def delete(self, name: str) -> bool:
        """Remove a skill; whether it was there."""
        return self._loop.run(self._inner.delete(name))


class SyncHarnesses:
    """`crabstore.store.harnesses.Harnesses` without the awaits."""

    def __init__(self, loop: _Loop, inner: Harnesses) -> None:
        self._loop = loop
        self._inner = inner

    def put(self, image: bytes, name: str | None = None) -> str:
        """Store an image, and let `name` point at it; its digest (sha256, lower-case hex)."""
        return self._loop.run(self._inner.put(image, name))

    def get(self, digest: str) -> bytes | None:
        """The image with this digest, or None."""
        return self._loop.run(self._inner.get(digest))

    def set_name(self, name: str, digest: str) -> None:
        """Let `name` point at a stored image. Raises NotFound if no image has this digest."""
        self._loop.run(self._inner.set_name(name, digest))

    def resolve(self, name: str) -> str | None:
        """The digest that `name` points at, or None."""
        return self._loop.run(self._inner.resolve(name))

    def names(self) -> dict[str, str]:
        """Every name and its digest, in the order of the names. Reads no image."""
        return self._loop.run(self._inner.names())

    def digests(self) -> list[str]:
        """Every stored image's digest, ascending. Reads no image."""
        return self._loop.run(self._inner.digests())

    def delete(self, digest: str) -> bool:
        """Remove an image and every name that points at it; whether it was there."""
        return self._loop.run(self._inner.delete(digest))


class SyncTextSearch:
    """`crabstore.store.text.TextSearch` without the awaits."""

    def __init__(self, loop: _Loop, inner: TextSearch) -> None:
        self._loop = loop
        self._inner = inner

    def bm25(self) -> Bm25:
        """The scorer's numbers."""
        return self._inner.bm25()

    def analysis(self) -> Analysis:
        """How a query reads."""
        return self._inner.analysis()

    def spans(self, query: str, text: str) -> list[tuple[int, int]]:
        """Where the words of `text` stand that `query` matches: (start, end) in characters, ascending."""
        return self._inner.spans(query, text)

    def search(self, ix: str, query: str, limit: int, where: Where | None = None) -> Hits:
        """The `limit` best documents for any string; `where` is applied before the cut."""
        return self._loop.run(self._inner.search(ix, query, limit, where))

    def rank(self, query: str, scales: Sequence[Scale], limit: int, where: Where | None = None) -> GroupHits:
        """The `limit` best groups for any string, by what several indexes hold of them."""
        return self._loop.run(self._inner.rank(query, scales, limit, where))


class SyncStore:
    """A store without the awaits; see `crabstore.store.backend.Backend`."""

    def __init__(self, loop: _Loop, store: Backend) -> None:
        self._loop = loop
        self._inner = store
        self.agents = SyncAgents(loop, store.agents)
        self.sessions = SyncSessions(loop, store.sessions)
        self.memory = SyncMemory(loop, store.memory)
        self.skills = SyncSkills(loop, store.skills)
        self.harnesses = SyncHarnesses(loop, store.harnesses)
        self.text = SyncTextSearch(loop, store.text)

    def __enter__(self) -> SyncStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and end its thread; closing again does nothing."""
        if self._loop.closed():
            return
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.stop()

    def reindex(self) -> None:
        """Every index built anew from content; see `crabstore.store.reindex`."""
        self._loop.run(_reindex.reindex(self._inner))

    def get(self, col: Column, key: bytes) -> bytes | None:
        """The value under `key`, or None."""
        return self._loop.run(self._inner.get(col, key))

    def put(self, col: Column, key: bytes, value: bytes) -> None:
        """Write `value` under `key`, replacing what was there."""
        self._loop.run(self._inner.put(col, key, value))

    def delete(self, col: Column, key: bytes) -> bool:
        """Remove `key`; whether it was there."""
        return self._loop.run(self._inner.delete(col, key))

    def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        """Every key that starts with `prefix`, ascending as bytes. Reads no value."""
        return self._loop.run(self._inner.scan_keys(col, prefix))

    def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Every key that starts with `prefix` with its value, ascending as bytes."""
        return self._loop.run(self._inner.scan(col, prefix))

    def realm(self) -> str:
        """What every key of this store opens with."""
        return self._inner.realm()

    def key(self, *parts: str) -> bytes:
        """The key of these parts in this realm (see `keys.quote` for what is encoded)."""
        return self._inner.key(*parts)

    def prefix(self, *parts: str) -> bytes:
        """What every key below these parts starts with; it ends in ``/``, so no part is another's prefix."""
        return self._inner.prefix(*parts)

    def parts(self, key: bytes) -> list[str]:
        """The parts of which `key` makes a key, the realm left out."""
        return self._inner.parts(key)

    def get_json(self, col: Column, key: bytes, cls: type[R]) -> R | None:
        """The record under `key`, or None. Raises BadRecord if it is no `cls`."""
        return self._loop.run(self._inner.get_json(col, key, cls))

    def put_json(self, col: Column, key: bytes, record: Record) -> None:
        """Write `record` under `key`."""
        self._loop.run(self._inner.put_json(col, key, record))

    def get_many(self, col: Column, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values under `keys`, in their order, None where there is none."""
        return self._loop.run(self._inner.get_many(col, keys))

    def page_keys(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """At most `limit` keys under `prefix`, in byte order or `reverse`, from `after` on, itself excluded."""
        return self._loop.run(self._inner.page_keys(col, prefix, after=after, limit=limit, reverse=reverse))

    def page(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """As `page_keys`, with the values."""
        return self._loop.run(self._inner.page(col, prefix, after=after, limit=limit, reverse=reverse))

    def sync(self) -> None:
        """What was written before this call survives a power loss afterwards. Nothing to do by default."""
        self._loop.run(self._inner.sync())

    def checkpoint(self) -> None:
        """`sync`, and whatever makes the next opening fast. Nothing to do by default."""
        self._loop.run(self._inner.checkpoint())

    def delete_prefix(self, col: Column, prefix: bytes) -> None:
        """Remove every key under `prefix`, in commits of bounded size."""
        self._loop.run(self._inner.delete_prefix(col, prefix))


def open_sync(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    bm25: Bm25 | None = None,
    analysis: Analysis | None = None,
    weights: Weights | None = None,
    redact: Redact | None = None,
) -> SyncStore:
    """The store at `url`, for code without an event loop; see `crabstore.open`."""

    async def connect() -> Backend:
        return await opening.open(
            url,
            create=create,
            read_only=read_only,
            bm25=bm25,
            analysis=analysis,
            weights=weights,
            redact=redact,
        )

    loop = _Loop()
    try:
        return SyncStore(loop, loop.run(connect()))
    except BaseException:
        loop.stop()
        raise
