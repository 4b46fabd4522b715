"""Read-only handles that follow a live writer: always some state that it had, never an earlier one again."""

import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.crabdb.faults import Fault, FaultyFile, FaultyFiles
from tests.crabdb.model import Contents, contents, crash, live_bytes
from tests.crabdb.version1 import Version1

from crabdb import CrabDB, DiskFull, NotCrabDB, NotFound, Options
from crabdb.files import File, Files, MemoryFiles
from crabdb.index import Entry, Index

PATH = Path("/store")
SMALL = Options(compact_min=1 << 30)


class WatchedFile(FaultyFile):
    """A file that is looked at before, after and in the middle of every write."""

    def __init__(self, inner: File, fault: Fault, look: Callable[[], None]) -> None:
        super().__init__(inner, fault)
        self.look = look

    def write(self, data: bytes, offset: int) -> None:
        appended = self.inner.size() <= offset
        for share in (1, 20, 47, 60, len(data) - 1):
            if appended and 0 < share < len(data):
                self.inner.write(data[:share], offset)
                self.look()
        super().write(data, offset)
        self.look()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.look()


class WatchedFiles(FaultyFiles):
    """A file system that is looked at during everything that is done to it."""

    def __init__(self, inner: Files, fault: Fault, look: Callable[[], None]) -> None:
        super().__init__(inner, fault)
        self.look = look

    def open(self, path: Path, *, write: bool) -> File:
        return WatchedFile(self.inner.open(path, write=write), self.fault, self.look)

    def create(self, path: Path) -> File:
        return WatchedFile(self.inner.create(path), self.fault, self.look)

    def replace(self, source: Path, target: Path) -> None:
        self.look()
        super().replace(source, target)
        self.look()


KEYS = st.sampled_from([b"a", b"ab", b"b", b"\xff", b"a/1"])
VALUES = st.binary(max_size=30) | st.just(bytes(64)) | st.just(b"\0\xff\1\0\0\0f$\0\0\0" * 6)
CHANGES = st.lists(st.tuples(st.sampled_from([0, 1]), KEYS, st.none() | VALUES), min_size=1, max_size=5)


class FollowersBesideAWriter(RuleBasedStateMachine):
    """At every step of the writer's file operations a follower shows the last commit, or the one being made."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.fault = Fault(-1, errno=errno.ENOSPC)
        self.followers: list[CrabDB] = []
        self.now: Contents = {}
        self.coming: Contents | None = None
        self.db = self.open_writer()
        self.followers = [CrabDB.open(PATH, files=self.disk, read_only=True) for _ in range(2)]

    def open_writer(self) -> CrabDB:
        return CrabDB.open(PATH, files=WatchedFiles(self.disk, self.fault, self.look), options=SMALL)

    def look(self) -> None:
        """The first follower follows everything, the second one only what the rules tell it to."""
        for follower in self.followers[:1]:
            before = contents(follower)
            changed = follower.refresh()
            after = contents(follower)
            assert after == self.now or (self.coming is not None and after == self.coming)
            assert changed or before == after
            assert follower.stats().live == live_bytes(after)

    @rule(changes=CHANGES)
    def commit(self, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        self.coming = self.changed(changes)
        self.db.commit(changes)
        self.now, self.coming = self.coming, None

    def changed(self, changes: list[tuple[int, bytes, bytes | None]]) -> Contents:
        after = dict(self.now)
        for col, key, value in changes:
            if value is None:
                after.pop((col, key), None)
            else:
                after[col, key] = value
        return after

    @rule(changes=CHANGES, written=st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    def commit_that_is_taken_back(
        self, changes: list[tuple[int, bytes, bytes | None]], written: float
    ) -> None:
        self.coming = self.changed(changes)
        self.fault.written = written
        self.fault.next()
        with pytest.raises(DiskFull):
            self.db.commit(changes)
        self.coming = None

    @rule()
    def checkpoint(self) -> None:
        self.db.checkpoint()

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule(tail=st.binary(min_size=1, max_size=100) | st.integers(1, 200).map(bytes))
    def crash_with_a_torn_tail(self, tail: bytes) -> None:
        crash(self.db)
        self.disk.table[PATH].data += tail
        self.look()
        self.look()
        self.db = self.open_writer()

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = self.open_writer()

    @rule()
    def second_follower_refreshes(self) -> None:
        generation = self.followers[1].generation
        before = contents(self.followers[1])
        changed = self.followers[1].refresh()
        assert contents(self.followers[1]) == self.now
        assert changed == (self.followers[1].generation > generation)
        assert changed or before == self.now
        assert not self.followers[1].refresh()

    @invariant()
    def first_follower_shows_the_last_commit(self) -> None:
        self.look()
        assert contents(self.followers[0]) == self.now

    def teardown(self) -> None:
        self.db.close()
        for follower in self.followers:
            follower.refresh()
            assert contents(follower) == self.now
            assert follower.verify().ok


TestFollowersBesideAWriter = FollowersBesideAWriter.TestCase
TestFollowersBesideAWriter.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def pair(path: Path) -> tuple[CrabDB, CrabDB]:
    """A writer, and a follower of it."""
    return CrabDB.open(path), CrabDB.open(path, read_only=True)


class CountingFiles(MemoryFiles):
    """Counts how often files are opened."""

    opened = 0

    def open(self, path: Path, *, write: bool) -> File:
        self.opened += 1
        return super().open(path, write=write)


def test_appended_commits_are_followed_without_opening_the_file_again() -> None:
    files = CountingFiles()
    db = CrabDB.open(PATH, files=files)
    follower = CrabDB.open(PATH, files=files, read_only=True)
    opened = files.opened
    for number in range(20):
        db.put(0, b"%d" % number, b"v")
        db.checkpoint()
        assert follower.refresh()
        assert len(follower) == number + 1
    assert files.opened == opened
    assert follower.stats().tail == db.stats().tail
    db.compact()
    assert follower.refresh()
    assert files.opened == opened + 1


def test_lasting_torn_tail_does_not_make_every_refresh_open_the_file() -> None:
    files = CountingFiles()
    CrabDB.open(PATH, files=files).close()
    follower = CrabDB.open(PATH, files=files, read_only=True)
    files.table[PATH].data += b"#" * 100
    assert follower.refresh()
    opened = files.opened
    assert not any(follower.refresh() for _ in range(3))
    assert files.opened == opened
    assert follower.stats().torn == 100


def test_scan_begun_before_a_compaction_reads_the_file_it_began_with(path: Path) -> None:
    db, follower = pair(path)
    db.put(0, b"k", b"v")
    follower.refresh()
    log = follower._log
    db.compact()
    follower.refresh()
    assert log is not None and follower._log is not log
    assert log.file.size() > 0
    db.close()


def test_value_too_large_to_look_at_in_one_piece_is_followed(path: Path) -> None:
    db, follower = pair(path)
    value = bytes(range(256)) * (1 << 18) + b"more than a batch may hold"
    db.put(0, b"large", value)
    db.put(0, b"after", b"it")
    assert follower.refresh()
    assert follower.get(0, b"large") == value
    assert follower.get(0, b"after") == b"it"
    db.close()


def test_records_of_another_writer_are_followed(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(1, b"ours", b"1")
    follower = CrabDB.open(path, read_only=True)
    other = Version1.of(path)
    other.put(1, b"theirs", b"2")
    path.write_bytes(other.data)
    assert follower.refresh()
    assert contents(follower) == {(1, b"ours"): b"1", (1, b"theirs"): b"2"}
    with CrabDB.open(path) as db:
        db.delete(1, b"ours")
        assert follower.refresh()
        assert contents(follower) == {(1, b"theirs"): b"2"}


def test_store_that_is_gone_is_reported_and_still_readable(path: Path) -> None:
    db, follower = pair(path)
    db.put(0, b"k", b"v")
    follower.refresh()
    path.unlink()
    with pytest.raises(NotFound):
        follower.refresh()
    assert follower.get(0, b"k") == b"v"
    crash(db)


def test_writer_has_nothing_to_refresh(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"v")
        assert db.refresh() is False


def test_threads_may_read_while_another_one_refreshes(path: Path) -> None:
    db, follower = pair(path)
    wrong: list[Contents] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = dict(follower.scan(1))
            if len(set(found.values())) > 1:
                wrong.append({(1, key): value for key, value in found.items()})

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        db.commit([(1, b"%d" % key, b"%d" % number) for key in range(5)])
        if number % 50 == 7:
            db.compact()
        follower.refresh()
    done.set()
    reader.join()
    db.close()
    assert wrong == []


def test_interrupted_refresh_shows_no_half_batch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db, follower = pair(path)
    db.commit([(1, b"a", b"1"), (1, b"b", b"1")])
    follower.refresh()
    db.commit([(1, b"a", b"2"), (1, b"b", None), (1, b"c", b"2")])
    before = contents(follower), follower.stats().live
    take_in = Index.take_in
    for count in range(3):

        def interrupted(
            index: Index, entries: Sequence[Entry], olds: list[bytes | None], count: int = count
        ) -> None:
            take_in(index, entries[:count], olds)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Index, "take_in", interrupted)
            follower.refresh()
        assert (contents(follower), follower.stats().live) == before
    assert follower.refresh()
    assert contents(follower) == contents(db)
    db.close()


def test_soak_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crabdb.soak", "--seconds", "0.2"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert "never went back" in done.stdout


def test_store_replaced_by_something_else_is_reported_and_still_readable(path: Path) -> None:
    db, follower = pair(path)
    db.put(0, b"k", b"v")
    follower.refresh()
    for content in (b"", b"a text"):
        path.unlink()
        path.write_bytes(content)
        with pytest.raises(NotCrabDB):
            follower.refresh()
        assert follower.get(0, b"k") == b"v"
    crash(db)


def test_store_restored_from_a_backup_is_followed(path: Path, tmp_path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"old")
        db.backup(tmp_path / "copy")
        db.put(0, b"k", b"new")
        follower = CrabDB.open(path, read_only=True)
    (tmp_path / "copy").rename(path)
    generation = follower.generation
    assert follower.refresh()
    assert follower.get(0, b"k") == b"old"
    assert follower.generation > generation
