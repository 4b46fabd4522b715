"""CrabBackend: the five methods over a CrabDB, and the four that it does better.

A call takes microseconds, a hop to a thread seventy: so calls run inside the coroutine, and only what waits
for the disk or moves megabytes goes to a thread. Long work runs in steps between other tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from crabdb import CrabDB, Options

from ...store.backend import Backend
from ...store.batch import Batch, Column, Slot
from ...store.errors import Conflict
from .pacing import SharedSync, take_steps
from .packed import PackedText

__all__ = ["CrabBackend"]

_LARGE = 1 << 20
"""Bytes of a value from which on writing it goes to a thread: about a millisecond."""


class CrabBackend(Backend):
    """A store in one file. Commits are all or nothing."""

    def __init__(self, db: CrabDB) -> None:
        self.db = db
        """The file underneath, for what only it knows: statistics, verification, compaction."""
        self._waits = db.options.sync == "always"
        self._maintains = db.options.maintenance == "caller"
        self._maintenance: asyncio.Task[None] | None = None
        self._syncing = SharedSync(db.sync)
        self._packed: PackedText | None = None

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        options: Options | None = None,
    ) -> CrabBackend:
        """Open the file at `path`. Whatever `options.maintenance` says, a task takes the steps of a compaction
        that is due. Raises what `CrabDB.open` raises.
        """
        chosen = replace(options or Options(), maintenance="caller")
        return cls(
            await asyncio.to_thread(CrabDB.open, path, options=chosen, create=create, read_only=read_only)
        )

    @cached_property
    def text(self) -> PackedText:
        """Text search over packed postings."""
        self._packed = PackedText(self, self.db, self.bm25, self.analysis)
        return self._packed

    async def get(self, col: Column, key: bytes) -> bytes | None:
        return self.db.get(col, key)

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        if len(value) >= _LARGE:
            await asyncio.to_thread(self.db.put, col, key, value, wait=False)
        else:
            self.db.put(col, key, value, wait=False)
        await self._after_commit({(col, key): value})

    async def delete(self, col: Column, key: bytes) -> bool:
        found = self.db.delete(col, key, wait=False)
        await self._after_commit({(col, key): None})
        return found

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
            self.db.commit([(col, key, value) for (col, key), value in writes.items()], wait=False)
            await self._after_commit(writes)

    async def _after_commit(self, writes: Mapping[Slot, bytes | None]) -> None:
        if self._packed is not None:
            self._packed.note(writes)
            await self._packed.keep_up()
        if self._maintains and self.db.maintenance_due:
            self._maintain()
        if self._waits:
            await self._syncing.wait()

    def _maintain(self) -> None:
        """Have a task take the steps of a compaction that is due, unless one does; `db.stats()` tells of it."""
        task = self._maintenance
        if task is not None and task.done():
            # What can happen to a disk is noted by the store; anything else is raised here.
            task.result()
        if task is None or task.done():
            self._maintenance = asyncio.create_task(take_steps(self.db.maintenance()))

    async def refresh(self) -> bool:
        """Show what another process has committed since this store was opened read-only, or last refreshed;
        whether anything may have changed. Nothing refreshes by itself, so that what one piece of work reads is
        of one moment. Raises what `CrabDB.refresh` raises.
        """
        return await self.text.refreshed(self.db.refresh)

    async def erase(self) -> tuple[Path, ...]:
        """Leave nothing on the medium of what was deleted, in the text index, the file and what recovery set
        aside; the files beside it that were removed for it. Raises what `CrabDB.erase` raises.
        """
        await self.text.purge()
        return await asyncio.to_thread(self.db.erase)

    async def sync(self) -> None:
        await self._syncing.wait()

    async def checkpoint(self) -> None:
        await take_steps(self.db.checkpoint_steps())

    async def close(self) -> None:
        """As `CrabDB.close`, which also takes the last steps of a compaction that has begun."""
        task, self._maintenance = self._maintenance, None
        if task is not None:
            task.cancel()
        if self._packed is not None:
            await self._packed.stop()
        await asyncio.to_thread(self.db.close)
        if task is not None:
            with suppress(asyncio.CancelledError):
                await task
