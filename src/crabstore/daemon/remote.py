"""A store that a daemon holds, for another process that writes: it reads the file itself, as any follower may, and
hands its commits to the daemon.

Every compound operation of the store stages one batch and commits it, on Conflict it reads again and retries; so
nothing but `commit` has to cross, and whatever is written over a store works here, unchanged.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from types import TracebackType

import msgspec

from ..answers.upkeep import HeldStore, Rewritten
from ..backends.crabdb import CrabBackend
from ..backends.crabdb.packed import PackedText
from ..store.batch import Batch, Column
from ..store.errors import Conflict
from ..store.schema import require_keyspace
from ..store.session_index import Progress
from .client import Client, refused
from .commits import Commit

__all__ = ["DaemonStore"]


class DaemonStore(HeldStore):
    """The store in the file at `path`, held by the daemon behind `client`. Made by `reach`."""

    def __init__(self, file: CrabBackend, client: Client) -> None:
        self._file = file
        self._client = client

    @classmethod
    async def reach(cls, socket: Path, path: Path) -> DaemonStore | None:
        """The store, if a daemon serves it; None for a socket that a dead one left."""
        client = Client(socket)
        if not await client.reachable():
            return None
        store = cls(await CrabBackend.open(path, read_only=True), client)
        await require_keyspace(store)
        return store

    @cached_property
    def text(self) -> PackedText:
        """Text search over the file; what seals and merges is the daemon's."""
        return PackedText(self, self._file.db, self.bm25, self.analysis, holds=False)

    async def get(self, col: Column, key: bytes) -> bytes | None:
        return await self._file.get(col, key)

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        batch = self.batch()
        batch.put(col, key, value)
        await self.commit(batch)

    async def delete(self, col: Column, key: bytes) -> bool:
        return await self.transact(lambda batch: _stage_delete(batch, col, key))

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        return await self._file.scan_keys(col, prefix)

    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return await self._file.scan(col, prefix)

    async def get_many(self, col: Column, keys: Sequence[bytes]) -> list[bytes | None]:
        return await self._file.get_many(col, keys)

    async def page_keys(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        return await self._file.page_keys(col, prefix, after=after, limit=limit, reverse=reverse)

    async def page(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        return await self._file.page(col, prefix, after=after, limit=limit, reverse=reverse)

    async def commit(self, batch: Batch) -> None:
        if not batch and not batch.expected:
            return
        answer = await self._client.ask("POST", "/v1/store/commit", Commit.of(batch))
        await self.text.refreshed(self._file.db.refresh)
        if conflict := answer.get("conflict"):
            raise await self._conflict(batch, conflict)

    async def sync(self) -> None:
        await self._client.ask("POST", "/v1/store/sync")

    async def checkpoint(self) -> None:
        await self._client.ask("POST", "/v1/store/checkpoint")

    async def rewrite(self, *, erase: bool) -> Rewritten:
        answer = await self._client.ask("POST", "/v1/store/compact", {"erase": erase})
        return msgspec.convert(answer["compacted"], Rewritten)

    async def rebuild(self, progress: Progress) -> None:
        async with aclosing(self._client.stream("POST", "/v1/store/reindex")) as events:
            async for event in events:
                if event.kind == "error":
                    raise refused(event.data)
                if event.kind == "progress":
                    progress(*(msgspec.convert(event.data[name], int) for name in ("done", "total")))

    async def close(self) -> None:
        await self._file.close()

    async def __aenter__(self) -> DaemonStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _conflict(self, batch: Batch, told: object) -> Conflict:
        assert isinstance(told, dict)
        col, key = Column(told["col"]), base64.b64decode(told["key"])
        return Conflict(col, key, batch.expected.get((col, key)), await self._file.get(col, key))


async def _stage_delete(batch: Batch, col: Column, key: bytes) -> bool:
    old = await batch.get(col, key)
    batch.expect(col, key, old)
    batch.delete(col, key)
    return old is not None
