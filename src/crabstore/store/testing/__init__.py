"""The contract that every backend must pass, importable by anyone who writes one.

    from crabstore.store.testing import BackendContract

    class TestMine(BackendContract):
        async def open_store(self) -> Backend:
            return MyBackend(...)

Each case opens a fresh, empty store and closes it afterwards. Nothing here depends on a test framework: a
failure is an AssertionError.
"""

from __future__ import annotations

from .cases import contents
from .entities import EntityContract
from .primitive import PrimitiveContract
from .sessions import SessionContract
from .text import TextContract

__all__ = ["BackendContract", "contents"]


class BackendContract(PrimitiveContract, EntityContract, TextContract, SessionContract):
    """All cases. Subclass it and say how a fresh store is opened."""
