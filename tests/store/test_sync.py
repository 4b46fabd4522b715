"""The blocking store: the same store, also where an event loop is running already."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crabstore.store.batch import Column
from crabstore.store.errors import InvalidArgument, NotFound, StoreClosed
from crabstore.store.messages import HistoryEntry
from crabstore.sync import open_sync


def test_the_blocking_store_does_what_the_async_one_does() -> None:
    with open_sync(":memory:") as store:
        agent = store.agents.ensure("coder")
        session = store.sessions.open(agent=agent.id, created_by="me", title="crabs")
        store.sessions.append_messages(session.handle, [HistoryEntry.user("where do crabs live")])
        assert [hit.meta.handle for hit in store.sessions.search("crab").hits] == [session.handle]
        store.put(Column.CONFIG, store.key("k"), b"v")
        assert store.get(Column.CONFIG, store.key("k")) == b"v"
        store.reindex()
        assert store.sessions.search("crab").complete


def test_errors_come_through_as_they_are() -> None:
    with open_sync(":memory:") as store, pytest.raises(NotFound):
        store.sessions.append_messages("none", [HistoryEntry.user("x")])
    with pytest.raises(InvalidArgument):
        open_sync("nosuchscheme:x")


def test_it_works_inside_a_running_loop_and_from_many_threads() -> None:
    async def notebook() -> None:
        with open_sync(":memory:") as store:
            session = store.sessions.open(agent="A", created_by="me")

            def append() -> None:
                for number in range(10):
                    store.sessions.append_messages(session.handle, [HistoryEntry.user(str(number))])

            threads = [threading.Thread(target=append) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(store.sessions.messages(session.handle)) == 40

    asyncio.run(notebook())


def test_a_closed_store_says_so_and_its_thread_has_ended() -> None:
    store = open_sync(":memory:")
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.agents.ids()
    assert not [thread for thread in threading.enumerate() if thread.name == "crabstore"]
