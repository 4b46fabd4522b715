"""Five defects of an earlier implementation of this format."""

from pathlib import Path

import pytest

from crabdb import CrabDB, Locked, NotCrabDB
from crabdb.format import encode_put


def test_short_write_over_a_torn_tail_leaves_no_ghost_key(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(1, b"kept", b"value")
    ghost = encode_put(1, b"ghost", b"never written")
    with path.open("ab") as file:
        file.write(encode_put(1, b"torn", b"-" * 64 + ghost + b"." * 500)[:300])
    with CrabDB.open(path) as db:
        assert db.stats().torn == 300
        db.put(1, b"k", b"v")
    with CrabDB.open(path) as db:
        assert db.scan(1) == [(b"k", b"v"), (b"kept", b"value")]
        assert db.verify().ok


def test_damaged_snapshot_falls_back_to_replay(path: Path) -> None:
    with CrabDB.open(path) as db:
        for number in range(50):
            db.put(2, b"%d" % number, b"value %d" % number)
        before = db.scan(2)
        db.checkpoint()
        size = db.stats().snapshot
    data = bytearray(path.read_bytes())
    data[-size // 2] ^= 0x10
    path.write_bytes(data)
    with CrabDB.open(path) as db:
        assert db.scan(2) == before
        assert db.stats().spoiled_snapshots == 1
        db.put(2, b"more", b"")
    with CrabDB.open(path) as db:
        assert len(db) == 51


def test_idle_checkpoints_do_not_grow_the_file(path: Path) -> None:
    with CrabDB.open(path) as db:
        for number in range(100):
            db.put(0, b"%d" % number, b"value")
        db.checkpoint()
        size = path.stat().st_size
        for _ in range(100):
            db.checkpoint()
    for _ in range(3):
        with CrabDB.open(path) as db:
            db.checkpoint()
    assert path.stat().st_size == size


@pytest.mark.parametrize(
    "content", [b"a", b"nineteen bytes text", b"CRMEM\0", b"CRMEM\0\1\0\0\0" + bytes(18)]
)
def test_short_foreign_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(NotCrabDB) as caught:
            CrabDB.open(path, read_only=read_only)
        assert caught.value.path == path
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_second_opener_is_locked_out(path: Path) -> None:
    with CrabDB.open(path) as db:
        with pytest.raises(Locked) as caught:
            CrabDB.open(path)
        assert "process" in caught.value.holder
        db.put(0, b"k", b"v")
    with CrabDB.open(path) as db:
        assert db.get(0, b"k") == b"v"
