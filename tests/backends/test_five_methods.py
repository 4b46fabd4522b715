"""A backend of five methods over a dict, without a commit of its own, keeps the whole contract."""

from __future__ import annotations

from crabstore.store.backend import Backend
from crabstore.store.kv import Column
from crabstore.store.testing import BackendContract


class DictBackend(Backend):
    def __init__(self) -> None:
        self.rows: dict[tuple[Column, bytes], bytes] = {}

    async def get(self, col: Column, key: bytes) -> bytes | None:
        return self.rows.get((col, key))

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        self.rows[col, key] = value

    async def delete(self, col: Column, key: bytes) -> bool:
        return self.rows.pop((col, key), None) is not None

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        return sorted(key for column, key in self.rows if column == col and key.startswith(prefix))

    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return [(key, self.rows[col, key]) for key in await self.scan_keys(col, prefix)]


class TestFiveMethods(BackendContract):
    async def open_store(self) -> Backend:
        return DictBackend()
