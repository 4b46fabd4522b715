"""Reindexing goes through whatever an interrupted engine left, and tells how far it is."""

from __future__ import annotations

import asyncio

import crabstore
from crabstore.store.batch import Column


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
