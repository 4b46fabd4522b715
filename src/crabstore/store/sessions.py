"""Sessions: conversations as they are recorded, found by handle, by identity, by time and by search.

    Session  session/{handle}/meta                   SessionMeta
             session/{handle}/archive                memory entry name
             session/{handle}/msg/{idx:012}          HistoryEntry
             session/{handle}/evt/{idx:012}          EventLine
             session/{handle}/id/{hash of entry id}  position; believed only if the entry agrees
             idx/sess/{agent}/{by}/{created_at}/{h}  handle
             idx/recent/{updated_at}/{handle}        Card
             idx/source/{tool}/{original id}         SourceRow
    Config   forgotten/{tool}/{original id}          tombstone against re-import

Writes are appends, and an append costs the same however long the session and however many there are. Nothing
removes a part of a history but `truncate_messages`; nothing disappears unless somebody asks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import count

from .batch import Batch, Column
from .errors import InvalidArgument, NotFound
from .keys import position
from .kv import KVStorage
from .memory import Memory, MemoryEntry
from .messages import HistoryEntry, repair
from .records import Json, canonical_time, checked, decode, encode, evolve, utc_now
from .session_index import SLICE, Progress, Redact, SessionIndex
from .session_records import (
    Appended,
    EventBase,
    EventLine,
    Loaded,
    OtherEvent,
    Recent,
    SessionMeta,
    Source,
    SourceRow,
    decode_event,
)
from .session_rows import SessionRows
from .session_search import SessionAnswer, SessionFilter, SessionSearch
from .text import TextSearch
from .weights import Weights

__all__ = ["Redact", "Sessions"]

_MAX_HANDLE = 512


class Sessions:
    """The sessions of a store."""

    def __init__(
        self,
        kv: KVStorage,
        text: TextSearch,
        memory: Memory,
        weights: Weights | None = None,
        redact: Redact | None = None,
    ) -> None:
        self._kv = kv
        self._text = text
        self._memory = memory
        self._weights = weights or Weights()
        self._rows = SessionRows(kv)
        self._index = SessionIndex(kv, self._rows, text, self._weights, redact)
        self._search = SessionSearch(kv, self._rows, text, self._weights)

    def config(self) -> Weights:
        """The judgement numbers of the search."""
        return self._weights

    # -- opening and finding ------------------------------------------------------------------------------

    async def open(
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
        """The session with this handle, or from this source; a new one if there is none.

        Without a handle a random one is made, which encodes nothing. Raises InvalidArgument for a handle that
        is empty or longer than 512 characters.
        """
        name = _new_handle() if handle is None else _require_handle(handle)
        at = canonical_time(created_at) if created_at else utc_now()
        meta = SessionMeta(
            handle=name,
            agent=agent,
            created_by=created_by,
            created_at=at,
            updated_at=at,
            title=title,
            root=root,
            source=source or Source(),
        )
        checked(meta, SessionMeta)
        return await self._kv.transact(lambda batch: self._stage_open(batch, meta))

    async def meta(self, handle: str) -> SessionMeta | None:
        """What the session is, or None if there is no such session."""
        return await self._kv.get_json(Column.SESSION, self._rows.meta_key(handle), SessionMeta)

    async def find_latest(self, agent: str, created_by: str) -> SessionMeta | None:
        """The session of this identity that was created last, or None."""
        prefix = self._kv.prefix("idx", "sess", agent, created_by)
        rows = await self._kv.page(Column.SESSION, prefix, limit=1, reverse=True)
        return await self.meta(rows[0][1].decode()) if rows else None

    async def handles(self, agent: str | None = None, created_by: str | None = None) -> list[str]:
        """All handles, an agent's, or an identity's; within an identity the newest comes last.

        Reads no session.
        """
        if agent is None and created_by is not None:
            raise InvalidArgument(
                "created_by", created_by, "needs an agent: sessions are indexed by agent first"
            )
        identity = [part for part in (agent, created_by) if part is not None]
        rows = await self._kv.scan(Column.SESSION, self._kv.prefix("idx", "sess", *identity))
        return [handle.decode() for _, handle in rows]

    async def starting_with(self, start: str, limit: int = 20) -> list[str]:
        """The first handles that begin with `start`, ascending."""
        return await self._rows.stored(start, limit)

    async def recent(self, limit: int = 20, after: Recent | None = None) -> list[Recent]:
        """A page of sessions, the one that changed last first; `after` is the last row of the page before.

        Reads the index alone: the cost does not depend on how many sessions there are, or how long.
        """
        prefix = self._kv.prefix("idx", "recent")
        start = self._rows.recent_key(after.updated_at, after.handle) if after else None
        rows = await self._kv.page(Column.SESSION, prefix, after=start, limit=limit, reverse=True)
        return [self._rows.recent(key, row) for key, row in rows]

    # -- appending ----------------------------------------------------------------------------------------

    async def append_messages(
        self, handle: str, entries: Iterable[HistoryEntry], *, at: str = ""
    ) -> Appended:
        """Append to the history; index what may be found. All or nothing. Raises NotFound.

        An entry whose id is there already is not added again; one whose content changed is replaced where it
        stands. An entry that the runtime injected for one run is not persisted. `at` is the time of entries
        that carry none; the present time by default.
        """
        moment, history = canonical_time(at) if at else utc_now(), list(entries)
        for entry in history:
            if not isinstance(entry, HistoryEntry):
                raise InvalidArgument("entry", type(entry).__name__, "must be a HistoryEntry")
        return await self._kv.transact(lambda batch: self._stage_append(batch, handle, history, moment))

    async def append_events(self, handle: str, events: Iterable[EventLine]) -> None:
        """Append to the trace. Raises NotFound."""
        lines = list(events)
        await self._kv.transact(lambda batch: self._stage_events(batch, handle, lines))

    async def append_compact(self, handle: str, summary: str, *, boundary: int | None = None) -> str:
        """Record that the history before `boundary` (default: all of it) is now represented by `summary`.

        The summary becomes a memory entry, whose name is returned; the originals stay addressable and
        searchable. Raises NotFound, or InvalidArgument for a boundary that is not a position.
        """
        return await self._kv.transact(lambda batch: self._stage_compact(batch, handle, summary, boundary))

    async def update(
        self,
        handle: str,
        *,
        title: str | None = None,
        summary: str | None = None,
        source: Source | None = None,
        updated_at: str = "",
    ) -> SessionMeta:
        """Change what the session is called and where it comes from; None leaves a field. Raises NotFound."""
        changed_at = canonical_time(updated_at) if updated_at else ""
        given = {"title": title, "summary": summary, "source": source}
        changes = {name: value for name, value in given.items() if value is not None}
        before, after = await self._kv.transact(
            lambda batch: self._stage_update(batch, handle, changes, changed_at)
        )
        if self._index.attrs(before) != self._index.attrs(after):
            await self.reindex(handle)
        return after

    async def set_active(self, handle: str, inactive: Collection[str]) -> int:
        """Mark the entries with these ids as off the active branch, all others as on it; how many changed."""
        off = frozenset(inactive)
        changed = 0
        for start in range(0, await self._rows.next(self._rows.messages(handle)), SLICE):
            stage = partial(self._stage_active, handle=handle, start=start, inactive=off)
            changed += await self._kv.transact(stage)
        return changed

    # -- reading ------------------------------------------------------------------------------------------

    async def load(self, handle: str) -> Loaded | None:
        """The session as its next run needs it, or None if there is no such session.

        The entries from the compaction boundary on, on the active branch, made valid for their provider; what
        was repaired is marked and never written back.
        """
        meta = await self.meta(handle)
        if meta is None:
            return None
        archive = await self._kv.get(Column.SESSION, self._rows.archive_key(handle))
        entries = await self.messages(handle, meta.compacted_at)
        active = repair(entry for entry in entries if entry.active)
        return Loaded(meta, archive.decode() if archive else None, active)

    async def messages(self, handle: str, start: int = 0, stop: int | None = None) -> list[HistoryEntry]:
        """The recorded entries at positions ``start <= position < stop``, as they were appended."""
        rows = await self._rows.range(self._rows.messages(handle), start, stop)
        return [decode(HistoryEntry, row, key) for key, row in rows]

    async def events(
        self, handle: str, start: int = 0, stop: int | None = None
    ) -> list[EventLine | OtherEvent]:
        """The trace at positions ``start <= position < stop``."""
        rows = await self._rows.range(self._rows.events(handle), start, stop)
        return [decode_event(row, key) for key, row in rows]

    async def entry_position(self, handle: str, entry_id: str) -> int | None:
        """Where the entry with this id stands, or None."""
        known = await self._rows.known(handle, [entry_id])
        return known[entry_id][0] if entry_id in known else None

    async def search(
        self,
        query: str,
        limit: int | None = None,
        where: SessionFilter | None = None,
        *,
        before: int | None = None,
        after: int | None = None,
    ) -> SessionAnswer:
        """The best sessions for any string, each with its best message and what stands around it."""
        return await self._search.search(query, limit, where or SessionFilter(), before=before, after=after)

    # -- removing -----------------------------------------------------------------------------------------

    async def truncate_messages(self, handle: str, keep: int) -> int:
        """Keep the first `keep` messages and remove the rest, from the end; how many went. Raises NotFound.

        A compaction boundary behind `keep` is withdrawn, since what it summarised is no longer whole.
        """
        if not isinstance(keep, int) or keep < 0:
            raise InvalidArgument("keep", keep, "must be a whole number, not negative")
        removed = 0
        while gone := await self._kv.transact(lambda batch: self._stage_truncate(batch, handle, keep)):
            removed += gone
            await asyncio.sleep(0)
        return removed

    async def delete(self, handle: str) -> bool:
        """Remove a session with everything that points at it; whether it was there.

        Memory entries that its compactions wrote stay. A crash in the middle leaves a shorter session, which
        can be deleted again.
        """
        while await self.meta(handle) is not None:
            await self.truncate_messages(handle, 0)
            if await self._kv.transact(lambda batch: self._stage_delete(batch, handle)):
                return True
        return False

    async def forget(self, handle: str) -> bool:
        """`delete`, and never import it again; whether it was there."""
        meta = await self.meta(handle)
        if meta is not None and meta.source:
            key = self._kv.key("forgotten", meta.source.tool, meta.source.original_id)
            await self._kv.put(Column.CONFIG, key, utc_now().encode())
        return await self.delete(handle)

    # -- where imports come from --------------------------------------------------------------------------

    async def find_source(self, tool: str, original_id: str) -> SourceRow | None:
        """Which session this original id became, or None."""
        return await self._kv.get_json(Column.SESSION, self._rows.source_key(tool, original_id), SourceRow)

    async def set_source(self, tool: str, original_id: str, handle: str, cursor: dict[str, Json]) -> None:
        """Record which session an original id is, and how far its file was read."""
        key = self._rows.source_key(tool, original_id)
        await self._kv.put_json(Column.SESSION, key, SourceRow(handle=handle, cursor=cursor))

    async def forgotten(self, tool: str, original_id: str) -> bool:
        """Whether this original id must not be imported again."""
        return await self._kv.get(Column.CONFIG, self._kv.key("forgotten", tool, original_id)) is not None

    # -- indexes ------------------------------------------------------------------------------------------

    async def reindex(self, handle: str) -> None:
        """Build every index entry of one session anew from its content. Raises NotFound."""
        await self._index.reindex(handle)

    async def rebuild(self, progress: Progress | None = None) -> None:
        """Build every index of every session anew from content. How far files were read is forgotten."""
        await self._index.rebuild(progress)

    # -- staging ------------------------------------------------------------------------------------------

    async def _stage_open(self, batch: Batch, meta: SessionMeta) -> SessionMeta:
        found = await self._find(batch, meta)
        if found is not None:
            return found
        batch.expect(Column.SESSION, self._rows.meta_key(meta.handle), None)
        await self._index.put_meta(batch, None, meta)
        return meta

    async def _find(self, batch: Batch, meta: SessionMeta) -> SessionMeta | None:
        """The session that `meta` would be a second record of."""
        handle = meta.handle
        if meta.source:
            key = self._rows.source_key(meta.source.tool, meta.source.original_id)
            row = await batch.get(Column.SESSION, key)
            batch.expect(Column.SESSION, key, row)
            handle = decode(SourceRow, row, key).handle if row else handle
        return await self.meta(handle)

    async def _stage_append(
        self, batch: Batch, handle: str, entries: Sequence[HistoryEntry], at: str
    ) -> Appended:
        meta = await self._index.expect_meta(batch, handle)
        known = await self._rows.known(handle, [entry.id for entry in entries if entry.id])
        start = end = await self._rows.end(meta)
        replaced = 0
        latest = meta.updated_at
        for entry in entries:
            if entry.auto_injected:
                continue
            place, old = known.get(entry.id, (end, None))
            new = _settled(entry, old, at)
            if old is not None and encode(new) == encode(old):
                continue
            key = self._rows.message_key(handle, place)
            # That it is free needs no look: an append in between would have changed the meta row.
            end += old is None
            replaced += old is not None and place < start
            latest = max(latest, new.ts)
            if new.id:
                known[new.id] = (place, new)
            batch.put(Column.SESSION, key, checked(new, HistoryEntry))
            await self._index.put_message(batch, meta, key, new, new=old is None)
        added = end - start
        if added or replaced:
            await self._index.put_meta(batch, meta, evolve(meta, message_count=end, updated_at=latest))
        return Appended(added, replaced, len(entries) - added - replaced)

    async def _stage_events(self, batch: Batch, handle: str, events: Sequence[EventLine]) -> None:
        if await self.meta(handle) is None:
            raise NotFound("session", handle)
        prefix = self._rows.events(handle)
        for place, event in enumerate(events, await self._rows.next(prefix)):
            key = prefix + position(place).encode()
            batch.expect(Column.SESSION, key, None)
            checked(event, EventBase)
            batch.put(Column.SESSION, key, encode(evolve(event, ts=canonical_time(event.ts))))

    async def _stage_compact(self, batch: Batch, handle: str, summary: str, boundary: int | None) -> str:
        meta = await self._index.expect_meta(batch, handle)
        at = meta.message_count if boundary is None else boundary
        if not isinstance(at, int) or not meta.compacted_at <= at <= meta.message_count:
            raise InvalidArgument(
                "boundary", at, f"must be from {meta.compacted_at} to {meta.message_count} in this session"
            )
        name = await self._archive_name(batch, handle)
        await self._memory.stage(batch, MemoryEntry(name=name, kind="archive", content=summary))
        batch.put(Column.SESSION, self._rows.archive_key(handle), name.encode())
        await self._index.put_meta(batch, meta, evolve(meta, compacted_at=at))
        return name

    async def _archive_name(self, batch: Batch, handle: str) -> str:
        """A name that no archive of this session has: an earlier one may outlive its pointer."""
        for number in count(1):
            name = f"archive-{handle}-{number}"
            key = self._kv.key("memory", name)
            if await batch.get(Column.MEMORY, key) is None:
                batch.expect(Column.MEMORY, key, None)
                return name
        raise AssertionError("count() does not end")

    async def _stage_update(
        self, batch: Batch, handle: str, changes: dict[str, str | Source], updated_at: str
    ) -> tuple[SessionMeta, SessionMeta]:
        old = await self._index.expect_meta(batch, handle)
        new = evolve(old, **changes, updated_at=max(old.updated_at, updated_at))
        if checked(new, SessionMeta) != encode(old):
            await self._index.put_meta(batch, old, new)
        return old, new

    async def _stage_active(self, batch: Batch, handle: str, start: int, inactive: frozenset[str]) -> int:
        for key, row in await self._rows.range(self._rows.messages(handle), start, start + SLICE):
            entry = decode(HistoryEntry, row, key)
            active = not entry.id or entry.id not in inactive
            if entry.active != active:
                batch.expect(Column.SESSION, key, row)
                batch.put(Column.SESSION, key, encode(evolve(entry, active=active)))
        return len(batch.writes)

    async def _stage_truncate(self, batch: Batch, handle: str, keep: int) -> int:
        meta = await self._index.expect_meta(batch, handle)
        prefix = self._rows.messages(handle)
        count = await self._rows.next(prefix)
        first = max(keep, count - SLICE)
        if first >= count:
            return 0
        changes: dict[str, int] = {"message_count": first}
        if meta.compacted_at > first:
            changes["compacted_at"] = 0
            batch.delete(Column.SESSION, self._rows.archive_key(handle))
        await self._index.put_meta(batch, meta, evolve(meta, **changes))
        for key, row in reversed(await self._rows.range(prefix, first, None)):
            await self._text.drop(batch, "msg", key)
            entry = decode(HistoryEntry, row, key)
            if entry.id:
                batch.delete(Column.SESSION, self._rows.id_key(handle, entry.id))
            batch.delete(Column.SESSION, key)
        return count - first

    async def _stage_delete(self, batch: Batch, handle: str) -> bool:
        meta = await self._index.expect_meta(batch, handle)
        if await self._rows.next(self._rows.messages(handle)):
            return False  # somebody appended in between
        await self._text.drop_prefix(batch, "meta", self._kv.prefix("session", handle))
        batch.delete(Column.SESSION, self._rows.recent_key(meta.updated_at, handle))
        batch.delete(Column.SESSION, self._rows.sess_key(meta))
        if meta.source:
            batch.delete(Column.SESSION, self._rows.source_key(meta.source.tool, meta.source.original_id))
        for key in reversed(await self._kv.scan_keys(Column.SESSION, self._kv.prefix("session", handle))):
            batch.delete(Column.SESSION, key)
        return True


def _settled(entry: HistoryEntry, old: HistoryEntry | None, at: str) -> HistoryEntry:
    """`entry` as it is stored: it has a time, and one that replaces another keeps its branch and time."""
    ts = canonical_time(entry.ts) if entry.ts else (old.ts if old else at)
    active = old.active if old else entry.active
    return entry if (ts, active) == (entry.ts, entry.active) else evolve(entry, ts=ts, active=active)


def _new_handle() -> str:
    return secrets.token_hex(10)


def _require_handle(handle: str) -> str:
    if not isinstance(handle, str) or not 1 <= len(handle) <= _MAX_HANDLE:
        raise InvalidArgument("session handle", handle, f"must be 1 to {_MAX_HANDLE} characters")
    return handle
