"""A store that counts its calls: claims about cost are tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Batch, Column


class CountingBackend(VolatileBackend):
    """Counts keys read, keys listed and keys written; a get_many of ten reads ten."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[bytes] = Counter()
        self.listed = 0
        self.written: Counter[bytes] = Counter()
        self.bytes_written = 0

    def reset(self) -> None:
        self.read.clear()
        self.written.clear()
        self.listed = self.bytes_written = 0

    async def get(self, col: Column, key: bytes) -> bytes | None:
        self.read[key] += 1
        return await super().get(col, key)

    async def get_many(self, col: Column, keys: Sequence[bytes]) -> list[bytes | None]:
        self.read.update(keys)
        return await super().get_many(col, keys)

    async def page_keys(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        keys = await super().page_keys(col, prefix, after=after, limit=limit, reverse=reverse)
        self.listed += len(keys)
        return keys

    async def page(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        rows = await super().page(col, prefix, after=after, limit=limit, reverse=reverse)
        self.read.update(key for key, _ in rows)
        return rows

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        self.written[key] += 1
        await super().put(col, key, value)

    async def commit(self, batch: Batch) -> None:
        self.written.update(key for _, key in [*batch.writes, *batch.added])
        self.bytes_written += sum(len(key) + len(value or b"") for (_, key), value in batch.writes.items())
        await super().commit(batch)
