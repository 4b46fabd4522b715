"""The volatile backend: a store in memory, for tests and for what need not outlive the process.

It never touches a disk. Commits are all or nothing, since nothing else runs while one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from sortedcontainers import SortedDict

from ..store.backend import Backend
from ..store.batch import Batch, Column
from ..store.errors import Conflict
from ..store.keys import prefix_end

__all__ = ["VolatileBackend"]


class VolatileBackend(Backend):
    """A store in memory."""

    def __init__(self) -> None:
        self._columns: dict[Column, SortedDict[bytes, bytes]] = {col: SortedDict() for col in Column}

    async def get(self, col: Column, key: bytes) -> bytes | None:
        value: bytes | None = self._columns[col].get(key)
        return value

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        self._columns[col][key] = value

    async def delete(self, col: Column, key: bytes) -> bool:
        return self._columns[col].pop(key, None) is not None

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        return list(self._under(col, prefix, None, reverse=False))

    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return await self.page(col, prefix)

    async def get_many(self, col: Column, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._columns[col].get(key) for key in keys]

    async def page_keys(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        return list(islice(self._under(col, prefix, after, reverse=reverse), limit))

    async def page(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        rows = self._columns[col]
        keys = await self.page_keys(col, prefix, after=after, limit=limit, reverse=reverse)
        return [(key, rows[key]) for key in keys]

    async def commit(self, batch: Batch) -> None:
        for (col, key), old in batch.expected.items():
            found = self._columns[col].get(key)
            if found != old:
                raise Conflict(col, key, old, found)
        # Counters are worked out before the first write: a bad one must leave everything as it was.
        writes = batch.resolved({slot: self._columns[slot[0]].get(slot[1]) for slot in batch.added})
        for (col, key), value in writes.items():
            if value is None:
                self._columns[col].pop(key, None)
            else:
                self._columns[col][key] = value

    def _under(self, col: Column, prefix: bytes, after: bytes | None, *, reverse: bool) -> Iterator[bytes]:
        low, high = prefix, prefix_end(prefix)
        if after is not None and reverse:
            high = after if high is None else min(high, after)
        elif after is not None and after >= low:
            low = after + b"\x00"  # the least key above `after`
        if high is not None and high <= low:
            return iter(())
        keys: Iterator[bytes] = self._columns[col].irange(low, high, (True, False), reverse=reverse)
        return keys
