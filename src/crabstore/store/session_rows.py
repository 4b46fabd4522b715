"""Where the rows of sessions stand, and reading them: keys, positions, ranges. Writes nothing."""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial

from .batch import Column
from .keys import INDEX_WIDTH, position
from .kv import KVStorage
from .messages import HistoryEntry
from .records import decode
from .session_records import Card, Recent, SessionMeta

__all__ = ["SESSION_PARTS", "SessionRows", "place_of"]

SESSION_PARTS = 2
"""Documents whose keys share ``session/{handle}`` are one session's."""

_HOMES = 1024
"""Sessions whose prefix is kept: to quote and join the parts of a key costs more than all else that makes it."""


class SessionRows:
    """The rows of one store's sessions."""

    def __init__(self, kv: KVStorage) -> None:
        self._kv = kv
        self._prefix = partial(kv.prefix, "session")
        self._kept_prefix = lru_cache(_HOMES)(self._prefix)

    def meta_key(self, handle: str) -> bytes:
        return self._home(handle) + b"meta"

    def archive_key(self, handle: str) -> bytes:
        return self._home(handle) + b"archive"

    def messages(self, handle: str) -> bytes:
        return self._home(handle) + b"msg/"

    def events(self, handle: str) -> bytes:
        return self._home(handle) + b"evt/"

    def message_key(self, handle: str, place: int) -> bytes:
        return b"%bmsg/%0*d" % (self._home(handle), INDEX_WIDTH, place)

    def id_key(self, handle: str, entry_id: str) -> bytes:
        digest = hashlib.blake2b(entry_id.encode(errors="surrogatepass"), digest_size=8).hexdigest()
        return b"%bid/%b" % (self._home(handle), digest.encode())

    def sess_key(self, meta: SessionMeta) -> bytes:
        return self._kv.key("idx", "sess", meta.agent, meta.created_by, meta.created_at, meta.handle)

    def recent_key(self, updated_at: str, handle: str) -> bytes:
        return self._kv.key("idx", "recent", updated_at, handle)

    def source_key(self, tool: str, original_id: str) -> bytes:
        return self._kv.key("idx", "source", tool, original_id)

    def recent(self, key: bytes, row: bytes) -> Recent:
        _, _, updated_at, handle = self._kv.parts(key)
        return Recent(handle, updated_at, decode(Card, row, key))

    def _home(self, handle: str) -> bytes:
        try:
            return self._kept_prefix(handle)
        except TypeError:  # what cannot be hashed is no text, which the key itself says
            return self._prefix(handle)

    async def known(self, handle: str, ids: list[str]) -> dict[str, tuple[int, HistoryEntry | None]]:
        """Those of `ids` that the session holds, with position and entry."""
        if not ids:
            return {}
        rows = await self._kv.get_many(Column.SESSION, [self.id_key(handle, entry_id) for entry_id in ids])
        places = {entry_id: int(row) for entry_id, row in zip(ids, rows, strict=True) if row is not None}
        if not places:
            return {}
        keys = [self.message_key(handle, place) for place in places.values()]
        known: dict[str, tuple[int, HistoryEntry | None]] = {}
        entries = await self._kv.get_many(Column.SESSION, keys)
        for (entry_id, place), key, row in zip(places.items(), keys, entries, strict=True):
            if row is not None and (entry := decode(HistoryEntry, row, key)).id == entry_id:
                known[entry_id] = (place, entry)
        return known

    async def end(self, meta: SessionMeta) -> int:
        """One more than the position of the last message."""
        # Where an engine without transactions was stopped in the middle of a change, the count is behind.
        key = self.message_key(meta.handle, meta.message_count)
        behind = await self._kv.get(Column.SESSION, key) is not None
        return await self.next(self.messages(meta.handle)) if behind else meta.message_count

    async def next(self, prefix: bytes) -> int:
        """One more than the last position under `prefix`."""
        last = await self._kv.page_keys(Column.SESSION, prefix, limit=1, reverse=True)
        return place_of(last[0]) + 1 if last else 0

    async def range(self, prefix: bytes, start: int, stop: int | None) -> list[tuple[bytes, bytes]]:
        first = prefix + position(start - 1).encode() if start > 0 else None
        limit = None if stop is None else max(0, stop - max(start, 0))
        rows = await self._kv.page(Column.SESSION, prefix, after=first, limit=limit)
        return rows if stop is None else [row for row in rows if place_of(row[0]) < stop]

    async def stored(self, start: str = "", limit: int | None = None) -> list[str]:
        """The first `limit` handles that begin with `start`, from content."""
        handles: list[str] = []
        prefix = self._kv.key("session", start) if start else self._kv.prefix("session")
        after: bytes | None = None
        while limit is None or len(handles) < limit:
            keys = await self._kv.page_keys(Column.SESSION, prefix, after=after, limit=1)
            if not keys:
                break
            handles.append(self._kv.parts(keys[0])[1])
            after = self._kv.prefix("session", handles[-1]) + b"\xff"
        return handles


def place_of(key: bytes) -> int:
    """The position that a message's or an event's key ends in."""
    return int(key[-INDEX_WIDTH:])
