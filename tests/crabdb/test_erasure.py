"""What was deleted leaves every file that crabdb has made beside the store."""

from pathlib import Path

import pytest
from tests.crabdb.model import contents, crash

from crabdb import CrabDB, DiskFull, ReadOnly, repair
from crabdb.files import File, MemoryFiles

SECRET = b"the combination is 23-42-7"
KEY = b"who may not be found: eve"


def holding(directory: Path) -> list[str]:
    """The files of a directory in which the key or the value stands."""
    found = [file.name for file in directory.iterdir() if holds(file.read_bytes())]
    return sorted(found)


def holds(data: bytes) -> bool:
    """Whether the key or the value, or a recognisable piece of one, stands in these bytes."""
    return any(piece in data for piece in (SECRET, SECRET[4:20], KEY, KEY[10:]))


def confide(db: CrabDB) -> None:
    """Write the secret in every way there is, into snapshots too, and delete or replace it."""
    db.put(1, b"kept", b"value")
    db.put(1, KEY, SECRET)
    db.checkpoint()
    db.commit([(2, b"replaced", SECRET), (3, KEY, b"")])
    db.sync()
    db.checkpoint()
    db.put(2, b"replaced", b"by this")
    db.delete(1, KEY)
    db.delete(3, KEY)


def test_deleted_bytes_leave_the_file_with_a_compaction(path: Path) -> None:
    with CrabDB.open(path) as db:
        confide(db)
        assert holding(path.parent) == ["store.crmem"]
        db.compact()
        assert holding(path.parent) == []
        assert contents(db) == {(1, b"kept"): b"value", (2, b"replaced"): b"by this"}
    assert holding(path.parent) == []


def test_saved_torn_tails_and_kept_originals_go_when_erasing(path: Path) -> None:
    db = CrabDB.open(path)
    confide(db)
    db.sync()
    db.put(1, KEY, SECRET)
    crash(db)
    path.write_bytes(path.read_bytes()[:-1])
    with CrabDB.open(path) as db:
        db.compact()
    assert holding(path.parent) == ["store.crmem.torn-1"]
    with CrabDB.open(path) as db:
        confide(db)
    repair(path, swap=True)
    (path.parent / "store.crmem.torn-notes").write_bytes(b"mine")
    with CrabDB.open(path) as db:
        assert [file.name for file in db.erase()] == ["store.crmem.damaged-1", "store.crmem.torn-1"]
        assert db.erase() == ()
    assert holding(path.parent) == []
    assert (path.parent / "store.crmem.torn-notes").exists()


def test_leftover_of_a_killed_compaction_goes_at_the_next_opening(path: Path) -> None:
    with CrabDB.open(path) as db:
        confide(db)
    path.with_name("store.crmem.compact-1-0123456789abcdef").write_bytes(path.read_bytes())
    path.with_name("store.crmem.new-1-0123456789abcdef").write_bytes(path.read_bytes())
    with CrabDB.open(path) as db:
        db.compact()
    assert holding(path.parent) == []


def test_value_deleted_while_a_compaction_runs_is_gone_after_the_next_one() -> None:
    files = MemoryFiles()
    with CrabDB.open("/store", files=files) as db:
        confide(db)
        db.put(1, KEY, SECRET)
        db.compact()
        db.delete(1, KEY)
        db.compact()
        assert not any(holds(bytes(file.data)) for file in files.table.values())


def test_reader_cannot_erase(path: Path) -> None:
    CrabDB.open(path).close()
    with CrabDB.open(path, read_only=True) as db, pytest.raises(ReadOnly):
        db.erase()


class FullFiles(MemoryFiles):
    """A file system on which nothing new can be made."""

    full = False

    def create(self, path: Path) -> File:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().create(path)


def test_erasing_that_cannot_compact_removes_nothing() -> None:
    files = FullFiles()
    with CrabDB.open("/store", files=files) as db:
        db.put(0, b"k", b"v")
        saved = files.table[Path("/store.torn-1")] = files.table[Path("/store")]
        files.full = True
        with pytest.raises(DiskFull):
            db.erase()
        assert files.table[Path("/store.torn-1")] is saved
        files.full = False
        del files.table[Path("/store.torn-1")]
