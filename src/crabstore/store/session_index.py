"""The index entries of sessions: everything that follows from a session's content, written beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from .batch import Batch, Column
from .errors import NotFound
from .kv import KVStorage
from .messages import HistoryEntry
from .records import decode, encode
from .session_records import Card, SessionMeta, SourceRow
from .session_rows import SESSION_PARTS, SessionRows, place_of
from .text import TextSearch
from .weights import Weights

__all__ = ["SLICE", "Progress", "Redact", "SessionIndex"]

Redact = Callable[[str], str]
"""What runs over every text before it is indexed or exported, e.g. to take credentials out."""

Progress = Callable[[int, int], None]
"""What hears how far long work is: so many sessions done, of so many."""

_NAMES = "january february march april may june july august september october november december"
_MONTHS = {f"{number:02}": name for number, name in enumerate(_NAMES.split(), 1)}

SLICE = 256
"""Messages handled in one commit of long work: it bounds the batch, and how long the event loop is kept."""


class SessionIndex:
    """The indexes over one store's sessions."""

    def __init__(
        self, kv: KVStorage, rows: SessionRows, text: TextSearch, weights: Weights, redact: Redact | None
    ) -> None:
        self._kv = kv
        self._rows = rows
        self._text = text
        self._weights = weights
        self._redact = redact

    async def put_meta(self, batch: Batch, old: SessionMeta | None, new: SessionMeta) -> None:
        """The meta row and every index entry that follows from it; without `old`, all of them."""
        batch.put(Column.SESSION, self._rows.meta_key(new.handle), encode(new))
        if old is None:
            batch.put(Column.SESSION, self._rows.sess_key(new), new.handle.encode())
        await self._put_card(batch, old, new)
        await self._put_source(batch, old, new)
        for part, weight in (("title", self._weights.title), ("summary", self._weights.summary)):
            words: str = getattr(new, part)
            if words != (getattr(old, part) if old else ""):
                key = self._kv.key("session", new.handle, "meta", part)
                attrs = self.attrs(new) | {"ts": new.created_at}
                text = self._redacted(words)
                await self._text.index(
                    batch, "meta", key, text, weight=weight, attrs=attrs, group=SESSION_PARTS
                )

    async def reindex(self, handle: str) -> None:
        """Build every index entry of one session anew from its content. Raises NotFound."""
        await self._kv.transact(partial(self._stage_meta, handle=handle))
        for start in range(0, await self._rows.next(self._rows.messages(handle)), SLICE):
            await self._kv.transact(partial(self._stage_slice, handle=handle, start=start))
            await asyncio.sleep(0)

    async def expect_meta(self, batch: Batch, handle: str) -> SessionMeta:
        """The session's meta, which the batch then expects unchanged: writers of one session take turns.

        Raises NotFound.
        """
        key = self._rows.meta_key(handle)
        row = await batch.get(Column.SESSION, key)
        if row is None:
            raise NotFound("session", handle)
        batch.expect(Column.SESSION, key, row)
        return decode(SessionMeta, row, key)

    async def _stage_meta(self, batch: Batch, handle: str) -> None:
        await self.put_meta(batch, None, await self.expect_meta(batch, handle))

    async def _stage_slice(self, batch: Batch, handle: str, start: int) -> None:
        meta = await self.expect_meta(batch, handle)
        for key, row in await self._rows.range(self._rows.messages(handle), start, start + SLICE):
            await self.put_message(batch, meta, key, decode(HistoryEntry, row, key))

    async def rebuild(self, progress: Progress | None = None) -> None:
        """Build every index of every session anew from content. How far files were read is forgotten."""
        for index in ("sess", "recent", "source"):
            await self._kv.delete_prefix(Column.SESSION, self._kv.prefix("idx", index))
        handles = await self._rows.stored()
        for done, handle in enumerate(handles, 1):
            await self._kv.delete_prefix(Column.SESSION, self._kv.prefix("session", handle, "id"))
            # Where an engine stopped in the middle of a delete, rows are left that belong to no session.
            with suppress(NotFound):
                await self.reindex(handle)
            if progress:
                progress(done, len(handles))

    async def put_message(
        self, batch: Batch, meta: SessionMeta, key: bytes, entry: HistoryEntry, *, new: bool = False
    ) -> None:
        """Every index entry of the message under `key`; a `new` one was never indexed before."""
        if entry.id:
            place = str(place_of(key)).encode()
            batch.put(Column.SESSION, self._rows.id_key(meta.handle, entry.id), place)
        text = entry.indexable()
        if not text and new:
            return
        attrs = self.attrs(meta) | {"role": entry.role, "ts": entry.ts}
        if entry.agent:
            attrs["agent"] = entry.agent
        if text:
            text = self._redacted("\n".join((text, *self._beside(entry))))
        weight = self._weights.of(entry)
        await self._text.index(batch, "msg", key, text, weight=weight, attrs=attrs, group=SESSION_PARTS)

    def _beside(self, entry: HistoryEntry) -> list[str]:
        """The words under which a message is found that it does not say itself: who spoke, and when.

        Not who opened the session: a name that is on every message tells nothing apart, and would drown the word.
        """
        name = entry.message.get("name")
        speaker = name if isinstance(name, str) else entry.agent
        month = f"{_MONTHS.get(entry.ts[5:7], '')} {entry.ts[:4]}"
        return [speaker] * self._weights.speakers + [month] * self._weights.dates

    async def _put_source(self, batch: Batch, old: SessionMeta | None, new: SessionMeta) -> None:
        was, now = (self._source_key(meta) if meta else None for meta in (old, new))
        if was is not None and was != now:
            batch.delete(Column.SESSION, was)
        if now is not None and was != now:
            row = await batch.get(Column.SESSION, now)
            # A row that is there already keeps its cursor: the session is only being indexed anew.
            if row is None or decode(SourceRow, row, now).handle != new.handle:
                batch.put(Column.SESSION, now, encode(SourceRow(handle=new.handle)))

    def _source_key(self, meta: SessionMeta) -> bytes | None:
        return self._rows.source_key(meta.source.tool, meta.source.original_id) if meta.source else None

    async def _put_card(self, batch: Batch, old: SessionMeta | None, new: SessionMeta) -> None:
        card = _card(new)
        if old is not None:
            if old.updated_at == new.updated_at and _card(old) == card:
                return
            batch.delete(Column.SESSION, self._rows.recent_key(old.updated_at, old.handle))
        batch.put(Column.SESSION, self._rows.recent_key(new.updated_at, new.handle), encode(card))

    def attrs(self, meta: SessionMeta) -> dict[str, str]:
        """What every document of a session may be filtered by."""
        attrs = {
            "agent": meta.agent,
            "sender": meta.created_by,
            "project": meta.project,
            "source": meta.source.tool,
        }
        return {name: value for name, value in attrs.items() if value}

    def _redacted(self, text: str) -> str:
        return self._redact(text) if self._redact and text else text


def _card(meta: SessionMeta) -> Card:
    return Card(
        title=meta.title,
        agent=meta.agent,
        created_by=meta.created_by,
        tool=meta.source.tool,
        project=meta.project,
    )
