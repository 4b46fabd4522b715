"""Copies of a live store: as of one moment, whole or not there, and never over anything."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crabdb.faults import Fault, FaultyFiles, ForgetfulFiles
from tests.crabdb.model import contents, crash

from crabdb import Corrupted, CrabDB, CrabDBError, Exists, InvalidArgument, NotFound
from crabdb.files import MemoryFile, MemoryFiles

PATH, COPY = Path("/store"), Path("/copy")


def fill(db: CrabDB, count: int = 50) -> None:
    """Some keys, written and overwritten."""
    for number in range(count):
        db.put(number % 3, b"key %d" % (number % 20), b"value %d" % number)
    db.delete(0, b"key 0")


def test_copy_opens_by_itself_with_the_same_contents(path: Path, tmp_path: Path) -> None:
    with CrabDB.open(path) as db:
        fill(db)
        size = db.backup(tmp_path / "copy")
        expected = contents(db)
    with CrabDB.open(tmp_path / "copy", create=False) as copy:
        assert contents(copy) == expected
        assert copy.verify().ok
        copy.put(0, b"own", b"life")
    assert size <= path.stat().st_size
    with CrabDB.open(path, create=False) as db:
        assert contents(db) == expected


@given(st.lists(st.sampled_from(["put", "delete", "batch", "checkpoint", "compact"]), max_size=12))
@settings(max_examples=60, deadline=None)
def test_copy_holds_the_moment_it_was_begun_at_whatever_happens_meanwhile(meanwhile: list[str]) -> None:
    files = MemoryFiles()
    db = CrabDB.open(PATH, files=files)
    fill(db)
    if len(meanwhile) % 2:
        db.checkpoint()
        db.put(1, b"behind", b"the snapshot")
    moment, steps = contents(db), db.backup_steps(COPY)
    for number, what in enumerate(meanwhile):
        if what == "put":
            db.put(0, b"later", bytes(number))
        elif what == "delete":
            db.delete(1, b"key 1")
        elif what == "batch":
            db.commit([(2, b"x", b"y"), (2, b"key 2", None)])
        elif what == "checkpoint":
            db.checkpoint()
        else:
            db.compact()
        next(steps, None)
    for _ in steps:
        pass
    with CrabDB.open(COPY, files=files, create=False) as copy:
        assert contents(copy) == moment
        assert copy.verify().ok
        assert copy.stats().torn == 0


def test_copy_of_a_follower_is_what_the_follower_shows(path: Path, tmp_path: Path) -> None:
    with CrabDB.open(path) as db:
        fill(db)
        db.checkpoint()
        follower = CrabDB.open(path, read_only=True)
        shown = contents(follower)
        db.put(0, b"later", b"")
        fill(db, 400)
        db.checkpoint()
        follower.backup(tmp_path / "copy")
    with CrabDB.open(tmp_path / "copy", create=False) as copy:
        assert contents(copy) == shown


def test_copy_never_takes_the_name_of_a_file_that_is_there(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    with CrabDB.open(path) as db:
        for target in (other, path):
            with pytest.raises(Exists) as caught:
                db.backup(target)
            assert caught.value.path == target
        with pytest.raises(NotFound):
            db.backup(tmp_path / "missing" / "copy")
        with pytest.raises(InvalidArgument):
            db.backup("")
    assert other.read_bytes() == b"precious"
    assert {file.name for file in tmp_path.iterdir()} == {"other", "store.crmem", "store.crmem.lock"}


def test_file_that_takes_the_name_during_the_copy_is_left_alone(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy"
    with CrabDB.open(path) as db:
        steps = db.backup_steps(other)
        next(steps)
        other.write_bytes(b"precious")
        with pytest.raises(Exists):
            list(steps)
    assert other.read_bytes() == b"precious"
    assert {file.name for file in tmp_path.iterdir()} == {"copy", "store.crmem", "store.crmem.lock"}


def test_copy_has_the_mode_of_the_store(path: Path, tmp_path: Path) -> None:
    with CrabDB.open(path) as db:
        db.backup(tmp_path / "private")
        path.chmod(0o640)
        db.backup(tmp_path / "shared")
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o640


def test_damaged_store_is_not_copied(path: Path, tmp_path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"precious")
    data = bytearray(path.read_bytes())
    data[data.index(b"precious")] ^= 1
    path.write_bytes(data)
    with CrabDB.open(path, read_only=True) as db:
        with pytest.raises(Corrupted) as caught:
            db.backup(tmp_path / "copy")
        assert caught.value.path == path
    assert not (tmp_path / "copy").exists()


def test_abandoned_copy_leaves_nothing() -> None:
    files = MemoryFiles()
    with CrabDB.open(PATH, files=files) as db:
        fill(db)
        steps = db.backup_steps(COPY)
        next(steps)
        del steps
        assert set(files.table) == {PATH}


@pytest.mark.parametrize("for_ever", [False, True])
def test_every_failing_call_leaves_no_copy_or_a_whole_one(for_ever: bool) -> None:
    number = 0
    while True:
        inner = MemoryFiles()
        with CrabDB.open(PATH, files=inner) as db:
            fill(db)
            expected = contents(db)
        fault = Fault(number, for_ever=for_ever)
        reader = CrabDB.open(PATH, files=FaultyFiles(inner, fault), read_only=True)
        try:
            reader.backup(COPY)
        except CrabDBError:
            number += 1
            with CrabDB.open(PATH, files=inner) as db:
                assert contents(db) == expected
            assert {name for name in inner.table if not name.name.startswith("copy.new-")} <= {PATH, COPY}
            if COPY not in inner.table:
                continue
        with CrabDB.open(COPY, files=inner, create=False) as copy:
            assert contents(copy) == expected
        if number == len(fault.calls):
            break
    assert number > 3


def test_copy_that_was_reported_done_survives_loss_of_power() -> None:
    files = ForgetfulFiles()
    db = CrabDB.open(PATH, files=files)
    fill(db)
    db.backup(COPY)
    expected = contents(db)
    crash(db)
    with CrabDB.open(COPY, files=files.after_power_loss(kept=0), create=False) as copy:
        assert contents(copy) == expected


class OneNameFiles(MemoryFiles):
    """A file system whose files have only one name, as FAT."""

    def link(self, source: Path, target: Path) -> None:
        super(MemoryFiles, self).link(source, target)


def test_copy_works_where_files_have_only_one_name() -> None:
    files = OneNameFiles()
    with CrabDB.open(PATH, files=files) as db:
        fill(db)
        db.backup(COPY)
        with pytest.raises(Exists):
            db.backup(COPY)
        expected = contents(db)
    assert isinstance(files.table[COPY], MemoryFile)
    with CrabDB.open(COPY, files=files, create=False) as copy:
        assert contents(copy) == expected


@pytest.mark.parametrize("kind", ["checkpoint_steps", "compaction_steps"])
def test_copy_and_followers_are_right_at_every_step_of_long_work(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("snapshot", "compaction"):
        monkeypatch.setattr(f"crabdb.{module}.PIECE", 200)
        monkeypatch.setattr(f"crabdb.{module}.PIECE_KEYS", 5)
    files = MemoryFiles()
    with CrabDB.open(PATH, files=files) as db:
        fill(db)
        follower = CrabDB.open(PATH, files=files, read_only=True)
        steps: Iterator[object] = getattr(db, kind)()
        for number, _ in enumerate(steps):
            db.put(5, b"during", b"step %d" % number)
            follower.refresh()
            assert contents(follower) == contents(db)
            with CrabDB.open(PATH, files=files, read_only=True) as fresh:
                assert contents(fresh) == contents(db)
                assert fresh.verify().ok
            db.backup(COPY)
            with CrabDB.open(COPY, files=files, create=False) as copy:
                assert contents(copy) == contents(db)
                verification = copy.verify()
                assert verification.ok, verification.problems
            del files.table[COPY]
        assert number > 5
        follower.refresh()
        assert follower.verify().ok
