"""Memory: what agents remember, by name and by ranked search.

Memory  memory/{name}    MemoryEntry
Text    index `mem`      content and aliases
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from .batch import Batch, Column
from .kv import KVStorage
from .names import require_name
from .records import Record, canonical_time, checked, decode, encode, evolve, utc_now
from .text import TextSearch

__all__ = ["Memory", "MemoryEntry", "MemoryHit"]

Kind = Literal["note", "archive"]
_IX = "mem"


class MemoryEntry(Record):
    """Something remembered. An `archive` is the summary of a session's compacted prefix."""

    name: str
    content: str
    kind: Kind = "note"
    aliases: list[str] = []
    """Further words under which it is found."""
    created_at: str = ""
    """UTC RFC 3339; filled in when it is stored."""


@dataclass(frozen=True)
class MemoryHit:
    """A memory entry that matches a search."""

    entry: MemoryEntry
    score: float


class Memory:
    """The memory of a store."""

    def __init__(self, kv: KVStorage, text: TextSearch) -> None:
        self._kv = kv
        self._text = text

    async def put(self, entry: MemoryEntry) -> None:
        """Remember `entry`, replacing what has its name. Raises InvalidArgument for a bad name."""
        await self._kv.transact(lambda batch: self.stage(batch, entry))

    async def get(self, name: str) -> MemoryEntry | None:
        """The entry with this name, or None."""
        return await self._kv.get_json(Column.MEMORY, self._kv.key("memory", name), MemoryEntry)

    async def delete(self, name: str) -> bool:
        """Forget an entry; whether it was there."""
        return await self._kv.transact(lambda batch: self._stage_delete(batch, name))

    async def names(self) -> list[str]:
        """Every entry's name, ascending. Reads no entry."""
        prefix = self._kv.prefix("memory")
        return [self._kv.parts(key)[-1] for key in await self._kv.scan_keys(Column.MEMORY, prefix)]

    async def entries(self, kind: Kind | None = None) -> list[MemoryEntry]:
        """Every entry, or those of one kind, in the order of their names."""
        rows = await self._kv.scan(Column.MEMORY, self._kv.prefix("memory"))
        entries = [decode(MemoryEntry, row, key) for key, row in rows]
        return [entry for entry in entries if kind is None or entry.kind == kind]

    async def search(self, query: str, limit: int = 20, kind: Kind | None = None) -> list[MemoryHit]:
        """The best `limit` entries for any string, best first."""
        found = await self._text.search(_IX, query, limit, {"kind": kind} if kind else None)
        rows = await self._kv.get_many(Column.MEMORY, [hit.key for hit in found.hits])
        pairs = zip(found.hits, rows, strict=True)
        return [
            MemoryHit(decode(MemoryEntry, row, hit.key), hit.score) for hit, row in pairs if row is not None
        ]

    async def stage(self, batch: Batch, entry: MemoryEntry) -> None:
        """`put` as a step of a larger batch."""
        checked(entry, MemoryEntry)
        key = self._kv.key("memory", require_name("memory", entry.name))
        created_at = canonical_time(entry.created_at) if entry.created_at else utc_now()
        entry = evolve(entry, created_at=created_at)
        batch.put(Column.MEMORY, key, encode(entry))
        await self._index(batch, key, entry)

    async def reindex(self) -> None:
        """Put every entry into the text index anew."""
        prefix = self._kv.prefix("memory")
        for key in await self._kv.scan_keys(Column.MEMORY, prefix):
            await self._kv.transact(partial(self._stage_index, key=key))

    async def _stage_index(self, batch: Batch, key: bytes) -> None:
        row = await batch.get(Column.MEMORY, key)
        if row is not None:
            batch.expect(Column.MEMORY, key, row)
            await self._index(batch, key, decode(MemoryEntry, row, key))

    async def _index(self, batch: Batch, key: bytes, entry: MemoryEntry) -> None:
        words = "\n".join([entry.content, *entry.aliases])
        await self._text.index(batch, _IX, key, words, attrs={"kind": entry.kind})

    async def _stage_delete(self, batch: Batch, name: str) -> bool:
        key = self._kv.key("memory", name)
        old = await batch.get(Column.MEMORY, key)
        if old is None:
            return False
        batch.expect(Column.MEMORY, key, old)
        await self._text.drop(batch, _IX, key)
        batch.delete(Column.MEMORY, key)
        return True
