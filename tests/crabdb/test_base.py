"""The index over a snapshot that is read in place, against a dict."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crabdb.model import Contents, contents, crash, live_bytes, page

from crabdb import Corrupted, CrabDB, ReadFailed, base
from crabdb.base import Base, Cache, Run
from crabdb.files import File, MemoryFile, MemoryFiles
from crabdb.format import FRAME_SIZE, HEADER_SIZE, decode_header

PATH = Path("/store")
Changes = list[tuple[int, bytes, bytes | None]]
COLUMNS = st.sampled_from([0, 3, 254])
KEYS = st.binary(min_size=1, max_size=2) | st.sampled_from(
    [b"a/b/1", b"a\xff", b"\xff\xff", b"\0\5\0\0\0a/b/1"]
)
CHANGES = st.lists(st.tuples(COLUMNS, KEYS, st.none() | st.binary(max_size=8)), max_size=120)


class CountingFile(MemoryFile):
    """A file in memory that notes what was read of it, and fails to read on command."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        super().__init__(number, data)
        self.reads: list[tuple[int, int]] = []
        self.broken = False

    def read(self, length: int, offset: int) -> bytes:
        if self.broken:
            raise OSError(5, "injected")
        self.reads.append((offset, length))
        return super().read(length, offset)


class CountingFiles(MemoryFiles):
    """A file system of such files."""

    def create(self, path: Path) -> File:
        super().create(path)
        self.table[path] = CountingFile(self._numbers)
        return self.table[path]


def commit(db: CrabDB, model: Contents, changes: Changes) -> None:
    """Change a store and a dict alike."""
    db.commit(changes)
    for col, key, value in changes:
        if value is None:
            model.pop((col, key), None)
        else:
            model[col, key] = value


def check(db: CrabDB, model: Contents) -> None:
    """Every question about a store has the answer that the dict gives."""
    assert contents(db) == model
    assert db.stats().live == live_bytes(model)
    assert len(db) == len(model)
    for col in (0, 3, 254):
        keys = [key for c, key in model if c == col]
        assert db.columns().get(col, (0, 0)) == (
            len(keys),
            sum(10 + len(key) + len(model[col, key]) for key in keys),
        )
        assert db.get_many(col, keys) == [model[col, key] for key in keys]


def filled(count: int, files: MemoryFiles | None = None) -> tuple[CrabDB, MemoryFiles, Contents]:
    """A store that was checkpointed and opened again."""
    files = files or CountingFiles()
    model: Contents = {}
    with CrabDB.open(PATH, files=files) as db:
        commit(db, model, [(3, b"key %05d" % n, b"value %d" % n) for n in range(count)])
    return CrabDB.open(PATH, files=files), files, model


def file_of(files: MemoryFiles) -> CountingFile:
    """The store's file."""
    file = files.table[PATH]
    assert isinstance(file, CountingFile)
    return file


def base_of(db: CrabDB) -> Base:
    """What lies under a store's index."""
    assert db._log is not None
    assert db._log.index.base is not None
    return db._log.index.base


def overlay_of(db: CrabDB) -> int:
    """How many keys a store has in memory."""
    assert db._log is not None
    return sum(map(len, db._log.index.maps))


@settings(max_examples=80, deadline=None)
@given(CHANGES, CHANGES, CHANGES, st.booleans())
def test_base_and_overlay_together_are_a_dict(
    below: Changes,
    above: Changes,
    tail: Changes,
    reopening: bool,
) -> None:
    files = MemoryFiles()
    model: Contents = {}
    db = CrabDB.open(PATH, files=files)
    commit(db, model, below)
    db.checkpoint()
    commit(db, model, above)
    check(db, model)
    if reopening:
        crash(db)
        db = CrabDB.open(PATH, files=files)
        check(db, model)
    for col, key, value in tail:
        commit(db, model, [(col, key, value)])
        assert db.get(col, key) == value
    check(db, model)
    assert db.verify().ok
    crash(db)


@settings(max_examples=80, deadline=None)
@given(CHANGES, CHANGES, st.tuples(COLUMNS, KEYS | st.just(b"")), st.none() | KEYS, st.data())
def test_ranges_over_base_and_overlay_are_those_of_a_dict(
    below: Changes, above: Changes, start: tuple[int, bytes], after: bytes | None, data: st.DataObject
) -> None:
    limit = data.draw(st.none() | st.integers(0, 40))
    model: Contents = {}
    db = CrabDB.open(PATH, files=MemoryFiles())
    commit(db, model, below)
    db.checkpoint()
    commit(db, model, above)
    for reverse in (False, True):
        expected = page(model, *start, after=after, limit=limit, reverse=reverse)
        assert db.scan(*start, after=after, limit=limit, reverse=reverse) == expected
        keys = db.scan_keys(*start, after=after, limit=limit, reverse=reverse)
        assert keys == [key for key, _ in expected]
    crash(db)


def test_opening_over_a_snapshot_reads_no_record_and_keeps_no_key() -> None:
    db, files, model = filled(5000)
    reads = [(at, length) for at, length in file_of(files).reads if at >= HEADER_SIZE]
    header = decode_header(bytes(file_of(files).data))
    before = header.index_at - FRAME_SIZE - 15
    crash(db)
    file_of(files).reads.clear()
    db = CrabDB.open(PATH, files=files)
    reads = [(at, length) for at, length in file_of(files).reads if at >= 200]
    assert min(at for at, _ in reads) >= before
    assert sum(length for _, length in reads) < len(file_of(files).data) // 10
    assert overlay_of(db) == 0
    check(db, model)
    crash(db)


def test_a_checkpoint_moves_every_key_from_memory_into_the_snapshot() -> None:
    db, _, model = filled(100)
    commit(db, model, [(3, b"key %05d" % n, b"new") for n in range(50, 150)])
    commit(db, model, [(3, b"key %05d" % n, None) for n in range(30)])
    assert overlay_of(db) == 100
    db.checkpoint()
    assert overlay_of(db) == 0
    check(db, model)
    crash(db)


def test_a_look_up_under_the_snapshot_reads_a_block_and_a_value() -> None:
    db, files, _ = filled(5000)
    file = file_of(files)
    db.get(3, b"key 00000")
    file.reads.clear()
    assert db.get(3, b"key 02000") == b"value 2000"
    assert len(file.reads) == 2
    file.reads.clear()
    assert db.get(3, b"key 02001") == b"value 2001"
    assert len(file.reads) == 1
    file.reads.clear()
    assert db.get(3, b"key 02001x") is None
    assert db.get(2, b"key") is None
    assert file.reads == []
    crash(db)


def test_a_page_under_the_snapshot_reads_only_its_blocks() -> None:
    db, files, model = filled(5000)
    file = file_of(files)
    db.get(3, b"key 00000")
    for reverse in (False, True):
        file.reads.clear()
        expected = page(model, 3, b"", after=b"key 02500", limit=10, reverse=reverse)
        assert db.scan_keys(3, after=b"key 02500", limit=10, reverse=reverse) == [key for key, _ in expected]
        assert len(file.reads) <= 2
    crash(db)


def test_a_page_of_keys_that_were_all_overwritten_walks_no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    db, _, _ = filled(5000)
    for n in range(5000):
        db.put(3, b"key %05d" % n, b"new")
    db.scan_keys(3, b"", limit=1)
    parts: list[int] = []
    part = Base.part

    def counted(base: Base, number: int, col: int, low: bytes, high: bytes | None) -> Run:
        parts.append(number)
        return part(base, number, col, low, high)

    monkeypatch.setattr(Base, "part", counted)
    for reverse in (False, True):
        parts.clear()
        assert len(db.scan_keys(3, b"key", limit=5, reverse=reverse)) == 5
        assert len(db.scan(3, b"key", limit=5, reverse=reverse)) == 5
        assert len(parts) <= 4
    crash(db)


def test_blocks_that_were_read_are_kept_up_to_a_bound() -> None:
    kept: Cache[str] = Cache(100)
    for number in range(1000):
        kept.put(number, str(number), 10)
        assert kept.get(number) == str(number)
    assert 5 <= sum(kept.get(number) is not None for number in range(1000)) <= 10


def test_what_is_used_stays_among_the_blocks_that_are_kept() -> None:
    kept: Cache[str] = Cache(100)
    kept.put(-1, "used", 10)
    for number in range(1000):
        kept.put(number, "", 10)
        assert kept.get(-1) == "used"


def test_an_entry_within_a_key_is_not_found() -> None:
    inner = b"\3\3\0\0\0abc" + bytes(8)
    model: Contents = {}
    with CrabDB.open(PATH, files=MemoryFiles()) as db:
        commit(db, model, [(3, b"k" + inner, b"outer"), (3, inner * 3, b"more"), (3, b"l", b"v")])
        db.checkpoint()
        assert db.get(3, b"abc") is None
        check(db, model)
        commit(db, model, [(3, b"abc", b"itself")])
        db.compact()
        assert db.get(3, b"abc") == b"itself"
        check(db, model)


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_no_damage_to_a_snapshot_of_many_blocks_makes_a_wrong_answer(mask: int) -> None:
    db, files, model = filled(150)
    commit(db, model, [(3, b"key 00010", b"new"), (3, b"key 00020", None), (0, b"more", b"")])
    crash(db)
    data = bytes(file_of(files).data)
    header = decode_header(data)
    for place in range(header.index_at, header.index_at + header.index_len, 19):
        damaged = bytearray(data)
        damaged[place] ^= mask
        files.table[PATH] = CountingFile(1, bytes(damaged))
        db = CrabDB.open(PATH, files=files)
        check(db, model)
        assert db.stats().spoiled_snapshots == 1
        crash(db)


def test_a_damaged_block_is_told_again_from_the_log_and_the_next_checkpoint_replaces_it() -> None:
    db, files, model = filled(500)
    commit(db, model, [(3, b"key 00010", b"new"), (3, b"key 00020", None)])
    header = decode_header(bytes(file_of(files).data))
    file_of(files).data[header.index_at + 4000] ^= 1
    check(db, model)
    assert base_of(db).spoiled
    db.checkpoint()
    assert not base_of(db).spoiled
    check(db, model)
    crash(db)
    db = CrabDB.open(PATH, files=files)
    assert db.stats().spoiled_snapshots == 0
    check(db, model)
    crash(db)


def test_damage_in_snapshot_and_log_is_corrupted_where_it_is_and_nowhere_else() -> None:
    db, files, model = filled(500)
    header = decode_header(bytes(file_of(files).data))
    file_of(files).data[header.index_at + 4000] ^= 1
    file_of(files).data[200] ^= 1
    for _ in range(2):
        with pytest.raises(Corrupted) as caught:
            db.scan(3)
        assert caught.value.offset == header.index_at
    assert db.get(3, b"key 00499") == model[3, b"key 00499"]
    with pytest.raises(Corrupted):
        db.put(3, b"key 00160", b"v")
    assert len(db) == 500
    crash(db)


def test_a_block_that_cannot_be_read_leaves_the_store_as_it_was() -> None:
    db, files, model = filled(500)
    file_of(files).broken = True
    for work in (
        lambda: db.get(3, b"key 00001"),
        lambda: db.scan(3),
        lambda: db.put(3, b"key 00001", b"v"),
        lambda: db.commit([(3, b"key 00002", b"v"), (3, b"key 00003", None)]),
        lambda: db.delete(3, b"key 00001"),
    ):
        with pytest.raises(ReadFailed):
            work()
    file_of(files).broken = False
    check(db, model)
    commit(db, model, [(3, b"key 00001", b"now")])
    check(db, model)
    crash(db)


def test_whoever_holds_an_index_goes_on_with_it_while_others_checkpoint_and_compact() -> None:
    db, _, model = filled(200)
    for work in (db.checkpoint, db.compact):
        commit(db, model, [(3, b"key %05d" % n, None) for n in range(100)])
        commit(db, model, [(3, b"new %05d" % n, bytes(100)) for n in range(100)])
        assert db._log is not None
        index, held = db._log.index, [key for _, key in sorted(model)]
        work()
        assert db._log.index is not index
        commit(db, model, [(3, b"key %05d" % n, None) for n in range(150)])
        assert [key for piece in index.pages(50) for _, key, _ in piece] == held
        check(db, model)
    crash(db)


def test_small_caches_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCKS_KEPT", 2000)
    monkeypatch.setattr(base, "ROWS_KEPT", 2000)
    monkeypatch.setattr(base, "ROWS_TOGETHER", 2)
    db, _, model = filled(1000)
    commit(db, model, [(3, b"key %05d" % n, None) for n in range(0, 1000, 7)])
    check(db, model)
    crash(db)
