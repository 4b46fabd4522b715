"""CrabBackend: the five methods over a CrabDB, and the four that it does better.

A call takes microseconds, a hop to a thread seventy: so calls run inside the coroutine, and only what waits
for the disk or moves megabytes goes to a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from os import PathLike

from crabdb import CrabDB, Options

from ...store.backend import Backend
from ...store.batch import Batch, Column
from ...store.errors import Conflict

__all__ = ["CrabBackend"]

_LARGE = 1 << 20
"""Bytes of a value from which on writing it goes to a thread: about a millisecond."""


class CrabBackend(Backend):
    """A store in one file. Commits are all or nothing."""

    def __init__(self, db: CrabDB) -> None:
        self.db = db
        """The file underneath, for what only it knows: statistics, verification, compaction."""

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        options: Options | None = None,
    ) -> CrabBackend:
        """Open the file at `path`. Raises what `CrabDB.open` raises."""
        return cls(
            await asyncio.to_thread(
                CrabDB.open, path, options=options or Options(), create=create, read_only=read_only
            )
        )

    async def get(self, col: Column, key: bytes) -> bytes | None:
        return self.db.get(col, key)

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        if len(value) >= _LARGE:
            await asyncio.to_thread(self.db.put, col, key, value)
        else:
            self.db.put(col, key, value)

    async def delete(self, col: Column, key: bytes) -> bool:
        return self.db.delete(col, key)

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        return self.db.scan_keys(col, prefix)

    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return self.db.scan(col, prefix)

    async def get_many(self, col: Column, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.db.get_many(col, keys)

    async def page_keys(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        return self.db.scan_keys(col, prefix, after=after, limit=limit, reverse=reverse)

    async def page(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        return self.db.scan(col, prefix, after=after, limit=limit, reverse=reverse)

    async def commit(self, batch: Batch) -> None:
        # Nothing awaits between the first check and the write: on its event loop, a commit is one step.
        get = self.db.get
        for (col, key), old in batch.expected.items():
            found = get(col, key)
            if found != old:
                raise Conflict(col, key, old, found)
        writes = batch.resolved({slot: get(*slot) for slot in batch.added})
        if writes:
            self.db.commit([(col, key, value) for (col, key), value in writes.items()])

    async def refresh(self) -> bool:
        """Show what another process has committed since this store was opened read-only, or last refreshed;
        whether anything may have changed. Nothing refreshes by itself, so that what one piece of work reads is
        of one moment. Raises what `CrabDB.refresh` raises.
        """
        return await asyncio.to_thread(self.db.refresh)

    async def sync(self) -> None:
        await asyncio.to_thread(self.db.sync)

    async def checkpoint(self) -> None:
        await asyncio.to_thread(self.db.checkpoint)

    async def close(self) -> None:
        await asyncio.to_thread(self.db.close)
