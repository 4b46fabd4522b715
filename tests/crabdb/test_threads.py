"""Any method from any thread, also while the store compacts and checkpoints."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from tests.crabdb.model import contents

from crabdb import CrabDB, StoreFailed
from crabdb.compaction import copy_live


def run_all(*jobs: Callable[[], None]) -> None:
    """Run jobs in threads of their own; raise what any of them raised."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()


def test_writers_readers_and_maintenance_do_not_disturb_each_other(path: Path) -> None:
    done = Event()
    with CrabDB.open(path) as db:

        def write(col: int) -> None:
            for number in range(1500):
                db.put(col, b"%05d" % number, b"%d" % number)
                if number % 3 == 2:
                    db.delete(col, b"%05d" % (number - 1))
                with db.batch() as batch:
                    batch.put(9, b"left %d" % col, b"%d" % number)
                    batch.put(9, b"right %d" % col, b"%d" % number)

        def read() -> None:
            while not done.is_set():
                for key, value in db.scan(1, b"", limit=50, reverse=True):
                    assert key == b"%05d" % int(value)
                pairs = dict(db.scan(9))
                for col in (1, 2):
                    assert pairs.get(b"left %d" % col) == pairs.get(b"right %d" % col)
                assert db.get(1, b"00000") in (None, b"0")

        def maintain() -> None:
            while not done.is_set():
                db.checkpoint()
                db.compact()
                db.sync()
                assert db.verify().ok

        def write_both() -> None:
            try:
                run_all(lambda: write(1), lambda: write(2))
            finally:
                done.set()

        run_all(write_both, read, maintain)
        expected = {
            (col, b"%05d" % number): b"%d" % number
            for col in (1, 2)
            for number in range(1500)
            if number % 3 != 1
        }
        found = contents(db)
        assert {place: value for place, value in found.items() if place[0] != 9} == expected
        assert db.verify().ok
    with CrabDB.open(path) as db:
        assert contents(db) == found


def test_changes_made_while_a_compaction_copies_are_in_the_new_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CrabDB.open(path) as db:
        for number in range(9999):
            db.put(0, b"%04d" % number, b"old")
        expected = contents(db)

        def copy_slowly(*arguments: object) -> Iterator[None]:
            for step, _ in enumerate(copy_live(*arguments)):  # type: ignore[arg-type]
                db.put(0, b"%04d" % step, b"overwritten")
                db.put(1, b"%04d" % step, b"new")
                db.delete(0, b"%04d" % (9998 - step))
                db.put(1, b"short-lived", b"")
                db.delete(1, b"short-lived")
                expected[0, b"%04d" % step] = b"overwritten"
                expected[1, b"%04d" % step] = b"new"
                expected.pop((0, b"%04d" % (9998 - step)))
                yield

        monkeypatch.setattr("crabdb.db.copy_live", copy_slowly)
        before = db.generation
        db.compact()
        assert db.generation > before
        assert contents(db) == expected
        assert db.verify().ok
    with CrabDB.open(path) as db:
        assert contents(db) == expected


def test_commits_of_other_threads_while_a_compaction_catches_up_are_kept(path: Path) -> None:
    done = Event()
    with CrabDB.open(path) as db:
        for number in range(2000):
            db.put(0, b"%04d" % number, b"old")

        def write() -> None:
            for number in range(6000):
                db.put(number % 2, b"%04d" % (number % 2000), b"%d" % number)
            done.set()

        def compact() -> None:
            while not done.is_set():
                db.compact()

        run_all(write, compact)
        expected = {(0, b"%04d" % number): b"old" for number in range(2000)}
        for number in range(6000):
            expected[number % 2, b"%04d" % (number % 2000)] = b"%d" % number
        assert contents(db) == expected
        assert db.verify().ok
    with CrabDB.open(path) as db:
        assert contents(db) == expected


def test_interrupted_compaction_leaves_the_old_file_and_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"v")

        def interrupted(*_: object) -> Iterator[None]:
            yield
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("crabdb.db.copy_live", interrupted)
            db.compact()
        assert {file.name for file in path.parent.iterdir()} == {"store.crmem", "store.crmem.lock"}
        db.put(0, b"k", b"w")
        db.compact()
        assert contents(db) == {(0, b"k"): b"w"}


def test_interrupt_between_rename_and_swap_forbids_to_write_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = CrabDB.open(path)
    db.put(0, b"k", b"v")
    real = type(db._files).replace

    def interrupted(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(db._files), "replace", interrupted)
        db.compact()
    with pytest.raises(StoreFailed):
        db.put(0, b"k", b"lost")
    assert db.get(0, b"k") == b"v"
    db.close()
    with CrabDB.open(path) as again:
        assert contents(again) == {(0, b"k"): b"v"}


def test_reader_goes_on_with_the_file_it_holds(path: Path) -> None:
    with CrabDB.open(path) as db:
        for number in range(100):
            db.put(0, b"%d" % number, b"%d" % number)
        log = db._log
        with CrabDB.open(path, read_only=True) as beside:
            expected = contents(db)
            db.compact()
            for number in range(100):
                db.put(0, b"%d" % number, b"changed")
            assert contents(beside) == expected
        assert log is not None
        assert log is not db._log


def test_interrupted_ordering_of_keys_loses_none_of_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with CrabDB.open(path) as db:
        db.put(0, b"%02d" % 0, b"")
        assert db.scan_keys(0) == [b"00"]
        for number in range(1, 30):
            db.put(0, b"%02d" % number, b"")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("crabdb.index.SortedKeys.reconcile", interrupted)
            db.scan_keys(0)
        assert db.scan_keys(0) == [b"%02d" % number for number in range(30)]
        db.compact()
        assert len(db) == 30
