"""With `Options.sync="always"` a commit returns when it is on the medium; commits that wait share one fsync."""

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Condition

import pytest
from tests.crabdb.faults import Fault, FaultyFiles
from tests.crabdb.model import contents

from crabdb import CrabDB, Options, StoreFailed
from crabdb.files import MemoryFiles

PATH = Path("/store")
ALWAYS = Options(sync="always")
WRITERS = 8


class Gate(Fault):
    """Holds every fsync back while it is shut, and tells how many calls were begun."""

    def __init__(self) -> None:
        super().__init__(10**9)
        self.shut = False
        self.begun = {"write": 0, "sync": 0}
        self._changed = Condition()

    def check(self, name: str) -> None:
        with self._changed:
            if name in self.begun:
                self.begun[name] += 1
            self._changed.notify_all()
            if name == "sync":
                assert self._changed.wait_for(lambda: not self.shut, 60)
        super().check(name)

    def await_calls(self, name: str, count: int) -> None:
        """Return when so many of these calls were begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.begun[name] >= count, 60)

    def open(self) -> None:
        """Let what is held back go on."""
        with self._changed:
            self.shut = False
            self._changed.notify_all()


@contextmanager
def waiting_writers(
    put: Callable[[CrabDB, int], object] = lambda db, number: db.put(0, b"%d" % number, b"v"),
) -> Iterator[tuple[CrabDB, Gate, list[Future[object]]]]:
    """A store on whose medium nothing arrives, and threads all of which have appended and wait for it."""
    gate = Gate()
    db = CrabDB.open(PATH, files=FaultyFiles(MemoryFiles(), gate), options=ALWAYS)
    gate.begun = {"write": 0, "sync": 0}
    gate.shut = True
    with ThreadPoolExecutor(WRITERS) as pool:
        try:
            writers: list[Future[object]] = [pool.submit(put, db, number) for number in range(WRITERS)]
            gate.await_calls("write", WRITERS)
            gate.await_calls("sync", 1)
            yield db, gate, writers
        finally:
            gate.open()


def test_writers_that_wait_share_one_fsync() -> None:
    with waiting_writers() as (db, gate, writers):
        gate.open()
        for writer in writers:
            writer.result()
        assert gate.begun["sync"] == 2  # The first writer's own, and one for all who appended meanwhile.
        assert db.stats().durable == db.stats().size
        assert len(db) == WRITERS


def test_nothing_is_acknowledged_before_its_fsync_has_returned() -> None:
    with waiting_writers() as (db, gate, writers):
        assert len(db) == WRITERS
        assert not any(writer.done() for writer in writers)
        assert gate.begun["sync"] == 1


def test_appends_go_on_while_an_fsync_runs() -> None:
    with waiting_writers() as (db, gate, _):
        db.put(1, b"not waiting", b"v", wait=False)
        db.commit([(1, b"neither", b"v")], wait=False)
        assert db.delete(1, b"neither", wait=False)
        assert db.get(1, b"not waiting") == b"v"
        assert gate.begun["sync"] == 1


def test_failed_fsync_reaches_everybody_who_waits() -> None:
    with waiting_writers() as (db, gate, writers):
        gate.errno = errno.EIO
        gate.number = len(gate.calls)
        calls = len(gate.calls)
        gate.open()
        for writer in writers:
            with pytest.raises(StoreFailed):
                writer.result()
        assert gate.calls[calls:].count("sync") == 1
        with pytest.raises(StoreFailed):
            db.put(0, b"k", b"v")


def test_every_kind_of_commit_waits() -> None:
    def change(db: CrabDB, number: int) -> None:
        if number % 2:
            db.commit([(0, b"%d" % number, b"v"), (1, b"%d" % number, b"w")])
        else:
            with db.batch() as batch:
                batch.put(0, b"%d" % number, b"v")

    with waiting_writers(change) as (db, gate, writers):
        assert not any(writer.done() for writer in writers)
        gate.open()
        for writer in writers:
            writer.result()
        assert db.stats().durable == db.stats().size


def test_commit_whose_file_is_compacted_while_it_waits_is_on_the_medium_when_it_returns(path: Path) -> None:
    with CrabDB.open(path, options=ALWAYS) as db, ThreadPoolExecutor(2) as pool:

        def write(col: int) -> None:
            for number in range(300):
                db.put(col, b"%d" % (number % 20), b"%d" % number)

        writers = [pool.submit(write, col) for col in range(2)]
        while not all(writer.done() for writer in writers):
            db.compact()
        for writer in writers:
            writer.result()
        assert db.stats().durable == db.stats().size
        assert len(contents(db)) == 40


def test_failed_swap_of_a_compaction_reaches_those_who_wait() -> None:
    gate = Gate()
    db = CrabDB.open(PATH, files=FaultyFiles(MemoryFiles(), gate), options=ALWAYS)
    db.put(0, b"k", b"v")
    gate.only, gate.number, gate.calls = "sync_directory", 0, []
    with pytest.raises(StoreFailed):
        db.compact()
    with pytest.raises(StoreFailed):
        db.put(0, b"k", b"w")
    assert db.get(0, b"k") == b"v"
