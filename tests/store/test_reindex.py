"""Reindexing goes through whatever an interrupted engine left, and tells how far it is."""

from __future__ import annotations

import asyncio

import crabstore
from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Column
from crabstore.store.reindex import reindex
from crabstore.store.testing import contents
from crabstore.store.testing.sessions import is_index, populate


def test_rows_that_belong_to_no_session_do_not_stop_a_reindex() -> None:
    async def run() -> None:
        async with crabstore.open(":memory:") as store:
            await store.sessions.open("h", agent="A", created_by="me", title="a sound session")
            orphan = store.key("session", "gone", "evt", "000000000000")
            await store.put(Column.SESSION, orphan, b"{}")
            told: list[tuple[int, int]] = []
            await crabstore.reindex(store, lambda done, total: told.append((done, total)))
            assert told == [(1, 2), (2, 2)]
            assert [hit.meta.handle for hit in (await store.sessions.search("sound")).hits] == ["h"]
            assert await store.get(Column.SESSION, orphan) == b"{}"

    asyncio.run(run())


def test_every_key_of_every_index_over_keys_is_rebuilt_as_it_was() -> None:
    async def run() -> None:
        store = VolatileBackend()
        await populate(store)
        before = await contents(store)
        for col, rows in before.items():
            for key, _ in rows:
                if is_index(store, col, key):
                    await store.delete(col, key)
        assert await contents(store) != before
        await reindex(store)
        assert await contents(store) == before

    asyncio.run(run())
