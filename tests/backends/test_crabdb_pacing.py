"""Beside an event loop: tasks that wait for the medium share one fsync, and long work runs between other tasks."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from tests.crabdb.faults import Fault, FaultyFiles
from tests.crabdb.test_group_commit import PATH, WRITERS, Gate

from crabdb import CrabDB, DiskFull, Options, StoreFailed
from crabdb.files import MemoryFiles
from crabstore.backends.crabdb import CrabBackend
from crabstore.store.batch import Column

OVERWRITING = Options(compact_min=20_000)


def gated() -> tuple[CrabBackend, Gate]:
    gate = Gate()
    options = Options(sync="always", maintenance="caller")
    db = CrabDB.open(PATH, files=FaultyFiles(MemoryFiles(), gate), options=options)
    gate.begun = {"write": 0, "sync": 0}
    return CrabBackend(db), gate


def write_all(store: CrabBackend) -> list[asyncio.Task[None]]:
    """Tasks that commit in different ways."""

    async def write(number: int) -> None:
        key = store.key(str(number))
        if number % 2:
            await store.put(Column.MEMORY, key, b"v")
        else:
            batch = store.batch()
            batch.put(Column.MEMORY, key, b"v")
            await store.commit(batch)

    return [asyncio.create_task(write(number)) for number in range(WRITERS)]


def test_tasks_that_wait_share_one_fsync() -> None:
    async def run() -> None:
        store, gate = gated()
        await asyncio.gather(*write_all(store))
        assert gate.begun == {"write": WRITERS, "sync": 1}
        assert store.db.stats().durable == store.db.stats().size
        assert await store.delete(Column.MEMORY, store.key("1"))
        assert gate.begun == {"write": WRITERS + 1, "sync": 2}

    asyncio.run(run())


def test_no_task_goes_on_before_an_fsync_that_began_after_its_write() -> None:
    async def run() -> None:
        store, gate = gated()
        gate.shut = True
        first = write_all(store)
        await asyncio.to_thread(gate.await_calls, "sync", 1)
        second = write_all(store)
        await asyncio.sleep(0)
        assert gate.begun == {"write": 2 * WRITERS, "sync": 1}
        assert not any(task.done() for task in first + second)
        gate.open()
        await asyncio.gather(*first)
        await asyncio.gather(*second)
        assert gate.begun["sync"] == 2

    asyncio.run(run())


def test_failed_fsync_reaches_every_task_that_waits() -> None:
    async def run() -> None:
        store, gate = gated()
        gate.errno, gate.number, gate.calls, gate.only = errno.EIO, 0, [], "sync"
        errors = await asyncio.gather(*write_all(store), return_exceptions=True)
        assert [type(error) for error in errors] == [StoreFailed] * WRITERS
        assert gate.calls == ["sync"]
        with pytest.raises(StoreFailed):
            await store.sync()

    asyncio.run(run())


async def overwrite(store: CrabBackend, count: int) -> None:
    for number in range(count):
        await store.put(Column.MEMORY, store.key(str(number % 10)), b"%d" % number * 50)
        await asyncio.sleep(0)


def test_overwritten_store_is_compacted_by_a_task_and_stays_small(tmp_path: Path) -> None:
    async def run() -> None:
        store = await CrabBackend.open(tmp_path / "s", options=OVERWRITING)
        while not store.db.stats().compactions:
            await overwrite(store, 100)
        await overwrite(store, 1000)
        assert store.db.stats().compaction_error is None
        assert (await store.get(Column.MEMORY, store.key("9"))) == b"999" * 50
        assert store.db.verify().ok
        await store.close()

    asyncio.run(run())


def test_compaction_that_has_begun_is_finished_by_close(tmp_path: Path) -> None:
    async def run() -> None:
        store = await CrabBackend.open(tmp_path / "s", options=OVERWRITING)
        for number in range(300):
            await store.put(Column.MEMORY, store.key("k"), b"%d" % number * 100)
        assert store.db.maintenance_due
        assert not store.db.stats().compactions
        await asyncio.sleep(0)
        await store.close()
        assert (tmp_path / "s").stat().st_size < 20_000
        assert {path.name for path in tmp_path.iterdir()} == {"s", "s.lock"}

    asyncio.run(run())


def test_compaction_that_fails_is_noted_and_writers_go_on() -> None:
    async def run() -> None:
        fault = Fault(0, errno.ENOSPC, for_ever=True, only="create")
        files = MemoryFiles()
        CrabDB.open(PATH, files=files).close()
        options = Options(compact_min=20_000, maintenance="caller")
        store = CrabBackend(CrabDB.open(PATH, files=FaultyFiles(files, fault), options=options))
        await overwrite(store, 500)
        assert isinstance(store.db.stats().compaction_error, DiskFull)
        assert 1 <= len(fault.calls) <= 5
        await store.close()

    asyncio.run(run())


def test_other_tasks_run_between_the_steps_of_a_checkpoint(tmp_path: Path) -> None:
    async def run() -> None:
        store = await CrabBackend.open(tmp_path / "s")
        for start in range(0, 20_000, 1000):
            batch = store.batch()
            for number in range(start, start + 1000):
                batch.put(Column.MEMORY, store.key(str(number)), b"")
            await store.commit(batch)
        checkpoint = asyncio.create_task(store.checkpoint())
        written = 0
        while not checkpoint.done():
            await store.put(Column.MEMORY, store.key("beside", str(written)), b"")
            written += 1
            await asyncio.sleep(0)
        assert written > 20_000 // 256
        assert store.db.stats().snapshot
        await store.close()
        with CrabDB.open(tmp_path / "s", read_only=True) as db:
            assert len(db) == 20_000 + written
            assert db.verify().ok

    asyncio.run(run())
