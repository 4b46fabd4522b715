"""What callers may pass and what they get for it; scans, batches, numbers, the end of a handle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.crabdb.model import contents, crash, live_bytes

import crabdb
from crabdb import Closed, CrabDB, InvalidArgument, Options, ReadOnly
from crabdb.format import BODY_LIMIT

BAD_KEYS: list[tuple[Any, Any, str]] = [
    (255, b"k", "col"),
    (-1, b"k", "col"),
    (256, b"k", "col"),
    ("0", b"k", "col"),
    (1.0, b"k", "col"),
    (None, b"k", "col"),
    (0, b"", "key"),
    (0, "text", "key"),
    (0, bytearray(b"k"), "key"),
    (0, None, "key"),
    (0, 5, "key"),
]


@pytest.mark.parametrize(("col", "key", "argument"), BAD_KEYS)
def test_bad_column_or_key_is_refused_everywhere(db: CrabDB, col: Any, key: Any, argument: str) -> None:
    before = db.stats()
    calls: list[Callable[[], object]] = [
        lambda: db.get(col, key),
        lambda: db.get_many(col, [b"fine", key]),
        lambda: db.put(col, key, b"v"),
        lambda: db.delete(col, key),
        lambda: batch_of(db, lambda batch: batch.put(col, key, b"v")),
        lambda: batch_of(db, lambda batch: batch.delete(col, key)),
        lambda: db.commit([(0, b"good", b"v"), (col, key, b"v")]),
        lambda: db.commit([(0, b"good", b"v"), (col, key, None)]),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert caught.value.argument == argument
    assert db.stats() == before


def batch_of(db: CrabDB, stage: Callable[[crabdb.Batch], None]) -> None:
    """A batch of a good put and of whatever `stage` does."""
    with db.batch() as batch:
        batch.put(0, b"good", b"value")
        stage(batch)


@pytest.mark.parametrize("value", ["text", None, 7, bytearray(b"v"), memoryview(b"v")])
def test_value_that_is_not_bytes_is_refused(db: CrabDB, value: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: db.put(0, b"k", value),
        lambda: batch_of(db, lambda batch: batch.put(0, b"k", value)),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert caught.value.argument == "value"
    assert len(db) == 0


class Huge(bytes):
    """Bytes that claim to be longer than any length field can say."""

    def __len__(self) -> int:
        return 1 << 32


def test_lengths_beyond_32_bits_are_refused_before_anything_is_written(db: CrabDB) -> None:
    size = db.stats().size
    with pytest.raises(InvalidArgument) as caught:
        db.put(0, b"k", Huge(b"v"))
    assert caught.value.argument == "value"
    with pytest.raises(InvalidArgument) as caught:
        db.put(0, Huge(b"k"), b"v")
    assert caught.value.argument == "key"
    with pytest.raises(InvalidArgument) as caught:
        db.commit([(0, b"k", Huge(b"v"))])
    assert caught.value.argument == "value"
    assert db.stats().size == size


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"col": 255}, "col"),
        ({"col": "x"}, "col"),
        ({"prefix": "text"}, "prefix"),
        ({"after": "text"}, "after"),
        ({"limit": -1}, "limit"),
        ({"limit": 1.5}, "limit"),
    ],
)
def test_bad_bounds_of_a_scan_are_refused(db: CrabDB, arguments: dict[str, Any], argument: str) -> None:
    given = {"col": 0, "prefix": b"", **arguments}
    for scan in (db.scan, db.scan_keys):
        with pytest.raises(InvalidArgument) as caught:
            scan(**given)
        assert caught.value.argument == argument


@pytest.mark.parametrize(
    "options",
    [
        {"compact_at": 0.0},
        {"compact_at": -1.0},
        {"compact_at": 1.5},
        {"compact_at": float("nan")},
        {"snapshot_at": -0.1},
        {"snapshot_at": float("nan")},
        {"snapshot_at": float("inf")},
        {"compact_min": -1},
        {"torn_limit": -1},
        {"sync": True},
    ],
)
def test_option_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Options(**options)
    assert caught.value.argument in options


@pytest.mark.parametrize("path", [5, None, "a\0b", "", "/"])
def test_path_that_names_no_file_is_refused(path: Any) -> None:
    for read_only in (True, False):
        with pytest.raises(InvalidArgument) as caught:
            CrabDB.open(path, read_only=read_only)
        assert caught.value.argument == "path"


def test_empty_values_and_awkward_keys_are_fine(db: CrabDB) -> None:
    keys = [b"\0", b"\0\0", b"\xff", b"\xff\xff", b"a\0", b"a/", b"a\xff", b"b" * 70000]
    for key in keys:
        db.put(254, key, b"")
    assert db.scan(254) == [(key, b"") for key in sorted(keys)]
    assert db.get(254, b"\xff") == b""
    assert db.get(254, b"missing") is None


def test_columns_are_partitions(db: CrabDB) -> None:
    for col in (0, 1, 254):
        db.put(col, b"key", b"%d" % col)
    assert [db.get(col, b"key") for col in (0, 1, 2, 254)] == [b"0", b"1", None, b"254"]
    assert db.columns() == {col: (1, 10 + 3 + len(b"%d" % col)) for col in (0, 1, 254)}


def test_bounds_of_a_page(db: CrabDB) -> None:
    for key in (b"a", b"p", b"p/1", b"p/2", b"p/3", b"p0", b"\xff", b"\xff\xff1"):
        db.put(0, key, key)
    assert db.scan_keys(0, b"p/") == [b"p/1", b"p/2", b"p/3"]
    assert db.scan_keys(0, b"p/", reverse=True, limit=1) == [b"p/3"]
    assert db.scan_keys(0, b"p/", after=b"p/1", limit=1) == [b"p/2"]
    assert db.scan_keys(0, b"p/", after=b"p/3") == []
    assert db.scan_keys(0, b"p/", after=b"p/3", reverse=True) == [b"p/2", b"p/1"]
    assert db.scan_keys(0, b"p/", after=b"a") == [b"p/1", b"p/2", b"p/3"]
    assert db.scan_keys(0, b"p/", after=b"z", reverse=True) == [b"p/3", b"p/2", b"p/1"]
    assert db.scan_keys(0, b"p/", after=b"z") == []
    assert db.scan_keys(0, b"p/", limit=0) == []
    assert db.scan_keys(0, b"\xff") == [b"\xff", b"\xff\xff1"]
    assert db.scan_keys(0, b"\xff\xff") == [b"\xff\xff1"]
    assert db.scan_keys(0, reverse=True, limit=2) == [b"\xff\xff1", b"\xff"]
    assert db.scan_keys(3) == []


def test_batch_is_committed_as_one_frame(db: CrabDB) -> None:
    before = db.stats().size
    with db.batch() as batch:
        for number in range(10):
            batch.put(0, b"%d" % number, b"v")
        assert len(batch) == 10
        assert len(db) == 0
    assert len(db) == 10
    assert db.stats().size - before == 47 + 10 * 12


def test_commit_is_a_batch_in_one_call(db: CrabDB) -> None:
    db.put(0, b"gone", b"v")
    before = db.stats().size
    db.commit([(0, b"a", b"1"), (3, b"b", b""), (0, b"gone", None)])
    assert contents(db) == {(0, b"a"): b"1", (3, b"b"): b""}
    assert db.stats().size - before == 47 + 12 + 11 + 14
    db.commit([])
    assert db.stats().size - before == 47 + 12 + 11 + 14


def test_empty_batch_and_delete_of_nothing_write_nothing(db: CrabDB) -> None:
    before = db.stats()
    with db.batch():
        pass
    assert not db.delete(0, b"missing")
    assert db.stats() == before


def test_later_change_in_a_batch_wins(db: CrabDB) -> None:
    with db.batch() as batch:
        batch.put(0, b"k", b"1")
        batch.delete(0, b"k")
        batch.put(0, b"k", b"2")
        batch.put(0, b"gone", b"1")
        batch.delete(0, b"gone")
    assert contents(db) == {(0, b"k"): b"2"}
    assert db.stats().live == live_bytes(contents(db))


def test_batch_that_outgrows_a_frame_is_refused(db: CrabDB) -> None:
    half = bytes(BODY_LIMIT // 2)
    with pytest.raises(InvalidArgument) as caught, db.batch() as batch:
        batch.put(0, b"1", half)
        batch.put(0, b"2", half)
    assert caught.value.argument == "batch"
    with pytest.raises(InvalidArgument):
        db.commit([(0, b"1", half), (0, b"2", half)])
    assert len(db) == 0


def test_generation_grows_with_every_change_and_with_nothing_else(db: CrabDB) -> None:
    seen = [db.generation]
    db.put(0, b"k", b"v")
    seen.append(db.generation)
    db.get(0, b"k")
    db.scan(0)
    assert db.generation == seen[-1]
    db.delete(0, b"k")
    seen.append(db.generation)
    db.compact()
    seen.append(db.generation)
    db.put(0, b"k", b"v")
    seen.append(db.generation)
    assert seen == sorted(set(seen))


def test_read_only_handle_refuses_every_write(path: Path) -> None:
    CrabDB.open(path).close()
    before = path.read_bytes()
    with CrabDB.open(path, read_only=True) as db:
        calls: list[Callable[[], object]] = [
            lambda: db.put(0, b"k", b"v"),
            lambda: db.delete(0, b"k"),
            lambda: batch_of(db, lambda batch: None),
            db.sync,
            db.checkpoint,
            db.compact,
        ]
        for call in calls:
            with pytest.raises(ReadOnly):
                call()
        assert db.read_only
        assert db.verify().ok
    assert path.read_bytes() == before


def test_closed_handle_refuses_everything_but_closing(path: Path) -> None:
    db = CrabDB.open(path)
    db.close()
    db.close()
    calls: list[Callable[[], object]] = [
        lambda: db.get(0, b"k"),
        lambda: db.get_many(0, [b"k"]),
        lambda: db.scan(0),
        lambda: db.scan_keys(0),
        lambda: db.put(0, b"k", b"v"),
        lambda: db.delete(0, b"k"),
        lambda: batch_of(db, lambda batch: None),
        lambda: len(db),
        db.sync,
        db.checkpoint,
        db.compact,
        db.verify,
        db.stats,
        db.columns,
        lambda: db.generation,
    ]
    for call in calls:
        with pytest.raises(Closed) as caught:
            call()
        assert path.name in str(caught.value)


def test_batch_over_a_store_that_closes_meanwhile_is_refused(path: Path) -> None:
    db = CrabDB.open(path)
    with pytest.raises(Closed), db.batch() as batch:
        batch.put(0, b"k", b"v")
        db.close()


def test_sync_option_makes_every_commit_durable(path: Path) -> None:
    with CrabDB.open(path, options=Options(sync="always")) as db:
        db.put(0, b"k", b"v")
        assert db.stats().durable == db.stats().size
        db.delete(0, b"k")
        assert db.stats().durable == db.stats().size


def test_checkpoint_writes_a_snapshot_only_after_a_quarter_of_the_last(path: Path) -> None:
    with CrabDB.open(path) as db:
        for number in range(400):
            db.put(0, b"%06d" % number, b"v" * 20)
        db.checkpoint()
        size, snapshot = db.stats().size, db.stats().snapshot
        assert snapshot
        db.put(0, b"one more", b"v")
        db.checkpoint()
        assert db.stats().size < size + 200
        for number in range(100):
            db.put(0, b"%06d" % number, b"w" * 20)
        db.checkpoint()
        assert db.stats().size > size + snapshot
        assert db.stats().tail == 0


def test_overwritten_store_compacts_itself_and_stays_small(path: Path) -> None:
    options = Options(compact_min=20_000)
    with CrabDB.open(path, options=options) as db:
        for number in range(3000):
            db.put(0, b"%d" % (number % 10), b"v" * 100)
        stats = db.stats()
        assert 3 <= stats.compactions <= 30
        assert stats.size < 60_000
        assert len(db) == 10


def test_tiny_values_do_not_make_a_store_compact_for_nothing(path: Path) -> None:
    options = Options(compact_min=30_000)
    with CrabDB.open(path, options=options) as db:
        for number in range(3000):
            db.put(0, b"%08d" % number, b"")
        assert db.stats().dead > 130_000  # Frames, whose room the snapshot of a compacted file would take.
        assert db.stats().compactions == 0


def test_sessions_that_overwrite_and_checkpoint_do_not_grow_the_file(path: Path) -> None:
    options = Options(compact_min=10_000)
    sizes = []
    for session in range(20):
        with CrabDB.open(path, options=options) as db:
            for number in range(100):
                db.put(0, b"%d" % number, b"%d" % session * 50)
            sizes.append(db.stats().size)
    assert max(sizes) < 3 * sizes[0]


def test_accounting_after_a_crash_is_that_of_before(path: Path) -> None:
    db = CrabDB.open(path)
    for number in range(50):
        db.put(number % 3, b"%d" % (number % 20), b"v" * number)
    db.checkpoint()
    db.delete(0, b"0")
    with db.batch() as batch:
        batch.put(1, b"1", b"new")
        batch.delete(2, b"2")
    before, expected = db.stats(), contents(db)
    crash(db)
    with CrabDB.open(path) as db:
        after = db.stats()
        assert contents(db) == expected
        for name in ("size", "keys", "live", "dead", "tail", "snapshot"):
            assert getattr(after, name) == getattr(before, name)
        assert after.live == live_bytes(expected)


def test_every_public_name_exists() -> None:
    assert all(hasattr(crabdb, name) for name in crabdb.__all__)
    assert sorted(crabdb.__all__) == crabdb.__all__


def test_after_a_clean_close_a_reader_knows_that_everything_is_on_the_medium(path: Path) -> None:
    with CrabDB.open(path) as db:
        for number in range(100):
            db.put(0, b"key %d" % number, b"value")
    with CrabDB.open(path, read_only=True) as reader:
        assert reader.stats().durable == reader.stats().size
