"""The crabdb backend keeps the contract, and what it promises beyond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crabdb
import crabstore
from crabstore.backends.crabdb import CrabBackend
from crabstore.store.backend import Backend
from crabstore.store.batch import Column
from crabstore.store.errors import InvalidArgument, SchemaMismatch
from crabstore.store.messages import HistoryEntry
from crabstore.store.records import encode
from crabstore.store.schema import Schema
from crabstore.store.testing import BackendContract, contents


class TestCrabDB(BackendContract):
    @pytest.fixture(autouse=True)
    def _names(self, tmp_path: Path) -> Iterator[None]:
        self.path = tmp_path / "store.crmem"
        yield

    async def open_store(self) -> Backend:
        return await CrabBackend.open(self.path)


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "s.crmem"

    async def write() -> object:
        async with crabstore.open(path) as store:
            await store.sessions.open("h", agent="A", created_by="me", title="crabs")
            await store.sessions.append_messages("h", [HistoryEntry.user("hello crab", id="1")])
            return await contents(store)

    async def read() -> object:
        async with crabstore.open(path, read_only=True) as store:
            assert len((await store.sessions.search("crab")).hits) == 1
            return await contents(store)

    assert asyncio.run(write()) == asyncio.run(read())


def test_a_batch_that_the_engine_refuses_writes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with crabstore.open(tmp_path / "s.crmem") as store:
            batch = store.batch()
            for number in range(70):
                batch.put(Column.TEXT, store.key(str(number)), bytes(1 << 20))
            with pytest.raises(Exception, match="bytes"):
                await store.commit(batch)
            assert await store.scan_keys(Column.TEXT, store.prefix()) == []

    asyncio.run(run())


def test_a_store_of_a_newer_keyspace_is_refused_before_any_write(tmp_path: Path) -> None:
    path = tmp_path / "s.crmem"

    async def run() -> None:
        async with crabstore.open(path) as store:
            await store.put(Column.CONFIG, store.key("schema"), encode(Schema(text="keyed-1", keyspace=99)))
        before = path.read_bytes()
        with pytest.raises(SchemaMismatch, match="upgrade"):
            await crabstore.open(path)
        assert path.read_bytes() == before
        async with crabstore.open(":memory:") as other:
            assert await contents(other)

    asyncio.run(run())


@pytest.mark.parametrize(
    "url", [lambda path: path, str, lambda path: f"crabdb:{path}", lambda path: f"crabdb://{path}"]
)
def test_a_path_and_a_crabdb_url_mean_the_same_file(
    tmp_path: Path, url: Callable[[Path], str | Path]
) -> None:
    async def run() -> None:
        async with crabstore.open(url(tmp_path / "s.crmem")) as store:
            assert isinstance(store, CrabBackend)

    asyncio.run(run())
    assert (tmp_path / "s.crmem").exists()


def test_an_unknown_scheme_names_the_known_ones() -> None:
    async def run() -> None:
        with pytest.raises(InvalidArgument, match="crabdb"):
            await crabstore.open("redis://localhost")

    asyncio.run(run())


def test_a_missing_store_is_not_made_unless_asked(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(crabdb.NotFound, match=r"s\.crmem"):
            await crabstore.open(tmp_path / "s.crmem", create=False)
        with pytest.raises(crabdb.NotFound, match=r"s\.crmem"):
            await crabstore.open(tmp_path / "s.crmem", read_only=True)

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_a_reader_shows_one_moment_until_it_is_told_to_refresh(tmp_path: Path) -> None:
    path = tmp_path / "s.crmem"

    async def run() -> None:
        async with crabstore.open(path) as writer, crabstore.open(path, read_only=True) as reader:
            assert isinstance(writer, CrabBackend) and isinstance(reader, CrabBackend)
            await writer.sessions.open("h", agent="A", created_by="me", title="crabs")
            await writer.sessions.append_messages("h", [HistoryEntry.user("hello crab", id="1")])
            assert (await reader.sessions.search("crab")).hits == []
            assert await reader.refresh()
            assert len((await reader.sessions.search("crab")).hits) == 1
            assert not await reader.refresh()
            assert not await writer.refresh()

    asyncio.run(run())


def test_erasing_leaves_no_word_of_a_forgotten_session_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.crmem"

    async def run() -> None:
        async with crabstore.open(path) as store:
            assert isinstance(store, CrabBackend)
            for handle, text in (("kept", "a plain crab"), ("gone", "the hunter2 crab")):
                await store.sessions.open(handle, agent="A", created_by="me", title=text)
                await store.sessions.append_messages(handle, [HistoryEntry.user(text)])
            await store.text.purge()  # both are in one segment now
            await store.sessions.forget("gone")
            await store.erase()
            assert len((await store.sessions.search("crab")).hits) == 1
        assert b"hunter2" not in path.read_bytes()
        assert b"crab" in path.read_bytes()

    asyncio.run(run())
