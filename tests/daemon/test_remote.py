"""A store that a daemon holds keeps the contract for whoever writes to it from another process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from crabstore.backends.crabdb import CrabBackend
from crabstore.daemon.api.app import LOCAL
from crabstore.daemon.api.operations import Ask
from crabstore.daemon.application import Daemon as Application
from crabstore.daemon.client import Client
from crabstore.daemon.home import Home
from crabstore.daemon.params import Nothing
from crabstore.daemon.remote import DaemonStore
from crabstore.store.backend import Backend
from crabstore.store.batch import Column
from crabstore.store.errors import Conflict
from crabstore.store.messages import HistoryEntry
from crabstore.store.reindex import reindex
from crabstore.store.testing import BackendContract

from .scene import configured, daemon, short_home

OPERATIONS = {(operation.method, operation.path): operation for operation in LOCAL.all}


class Direct(Client):
    """Asks an application without a socket between: what crosses is encoded and decoded all the same."""

    def __init__(self, application: Application) -> None:
        super().__init__(application.home.socket)
        self._application = application

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        operation = OPERATIONS[method, path]
        data = msgspec.msgpack.encode({} if body is None else body)
        taken = msgspec.msgpack.decode(data, type=operation.body)
        answer = await operation.handler(self._application, Ask({}, Nothing(), taken))
        return dict(msgspec.json.decode(msgspec.json.encode(answer)))


class Held(DaemonStore):
    """Ends what it asks when it is closed."""

    stack: AsyncExitStack

    async def close(self) -> None:
        await super().close()
        await self.stack.aclose()


class TestHeldStore(BackendContract):
    @pytest.fixture(autouse=True)
    def _homes(self) -> Iterator[None]:
        with short_home() as self.home:
            yield

    async def open_store(self) -> Backend:
        stack = AsyncExitStack()
        application = await stack.enter_async_context(Application.opened(self.home, {}))
        store = Held(await CrabBackend.open(self.home.store, read_only=True), Direct(application))
        store.stack = stack
        return store


def test_writers_on_both_sides_lose_nothing(home: Home) -> None:
    async def run() -> None:
        configured(home)
        async with daemon(home) as there:
            own = there.served.daemon.store
            agent = await own.agents.ensure("a")
            await own.sessions.open("h", agent=agent.id, created_by="me")
            store = await DaemonStore.reach(home.socket, home.store)
            assert store is not None
            async with store:

                async def append(sessions: Any, name: str) -> None:
                    for number in range(20):
                        await sessions.append_messages("h", [HistoryEntry.user(f"{name} {number}")])

                await asyncio.gather(append(own.sessions, "daemon"), append(store.sessions, "command"))
                said = [entry.text for entry in await own.sessions.messages("h")]
                assert len(said) == 40
                for name in ("daemon", "command"):
                    assert [text for text in said if text.startswith(name)] == [
                        f"{name} {n}" for n in range(20)
                    ]

    asyncio.run(run())


def test_a_conflict_says_what_was_expected_and_what_was_found(home: Home) -> None:
    async def run() -> None:
        configured(home)
        async with daemon(home) as there:
            store = await DaemonStore.reach(home.socket, home.store)
            assert store is not None
            async with store:
                key = store.key("x")
                await there.served.daemon.store.put(Column.CONFIG, key, b"now")
                batch = store.batch()
                batch.expect(Column.CONFIG, key, b"then")
                batch.put(Column.CONFIG, key, b"mine")
                with pytest.raises(Conflict) as caught:
                    await store.commit(batch)
                error = caught.value
                assert (error.key, error.expected, error.found) == (key, b"then", b"now")

    asyncio.run(run())


def test_an_index_that_another_process_built_anew_is_the_daemons_too(home: Home) -> None:
    async def run() -> None:
        configured(home)
        async with daemon(home) as there:
            own = there.served.daemon.store
            agent = await own.agents.ensure("a")
            for number in range(40):
                meta = await own.sessions.open(f"h{number}", agent=agent.id, created_by="me")
                said = [HistoryEntry.user(f"crab {number} {place}") for place in range(60)]
                await own.sessions.append_messages(meta.handle, said)
            before = await own.sessions.search("crab 7", 50)
            store = await DaemonStore.reach(home.socket, home.store)
            assert store is not None
            async with store:
                await reindex(store)
                after = await own.sessions.search("crab 7", 50)
                assert [hit.meta.handle for hit in after.hits] == [hit.meta.handle for hit in before.hits]
                await own.sessions.append_messages("h3", [HistoryEntry.user("bladderwrack")])
                for searcher in (own, store):
                    if searcher is store:
                        await store.put(
                            Column.CONFIG, store.key("x"), b""
                        )  # which shows it what came meanwhile
                    found = await searcher.sessions.search("bladderwrack")
                    assert [hit.meta.handle for hit in found.hits] == ["h3"]

    asyncio.run(run())


def test_whoever_holds_the_store_seals_what_others_hand_in(home: Home) -> None:
    async def run() -> None:
        configured(home)
        async with daemon(home) as there:
            store = await DaemonStore.reach(home.socket, home.store)
            assert store is not None
            async with store:
                agent = await store.agents.ensure("a")
                await store.sessions.open("h", agent=agent.id, created_by="me")
                for _ in range(20):
                    said = [HistoryEntry.user(f"crab {number}") for number in range(256)]
                    await store.sessions.append_messages("h", said)
                waiting = await store.scan_keys(Column.TEXT, store.prefix("idx", "text", "msg", "new"))
                assert len(waiting) < 20 * 256
                found = await there.served.daemon.store.sessions.search("crab 77")
                assert [hit.meta.handle for hit in found.hits] == ["h"]

    asyncio.run(run())
