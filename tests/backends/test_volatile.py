"""The volatile backend keeps the contract."""

from __future__ import annotations

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.backend import Backend
from crabstore.store.testing import BackendContract


class TestVolatile(BackendContract):
    async def open_store(self) -> Backend:
        return VolatileBackend()
