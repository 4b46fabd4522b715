"""A store of which any byte is flipped, or which is cut anywhere: the right contents, an earlier state, or a
typed error; never a wrong value, never more memory than the file has bytes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.crabdb.model import Contents, contents, crash

from crabdb import Corrupted, CrabDB, CrabDBError, NotCrabDB, Options, Unsupported
from crabdb.files import MemoryFile, MemoryFiles
from crabdb.format import BODY_LIMIT, encode_bare_header, encode_header, encode_put
from crabdb.recovery import BIRTH_SIZE

PATH = Path("/store")


class Frugal(MemoryFile):
    """A file in memory that nobody may ask for many more bytes than it has."""

    def read(self, length: int, offset: int) -> bytes:
        assert length <= len(self.data) + (1 << 20)
        return super().read(length, offset)


def files_with(data: bytes | bytearray) -> MemoryFiles:
    """A file system that holds one store."""
    files = MemoryFiles()
    files.table[PATH] = Frugal(1, bytes(data))
    return files


def steps(db: CrabDB) -> Iterator[None]:
    """A small history; yields after every commit."""
    db.put(0, b"a", b"first")
    yield
    db.put(7, b"b/1", b"")
    yield
    with db.batch() as batch:
        batch.put(7, b"b/2", b"two")
        batch.put(7, b"b/3", b"three")
        batch.delete(0, b"a")
    yield
    db.put(0, b"a", b"second")
    yield
    db.delete(7, b"b/2")
    yield
    db.put(7, b"b/1", b"\0\xff\1\0\0\0f$\0\0\0" + bytes(36))
    yield


def without_snapshot(db: CrabDB) -> Iterator[None]:
    """Nothing is synced but the birth."""
    yield from steps(db)


def with_snapshot(db: CrabDB) -> Iterator[None]:
    """A snapshot in the middle, and commits behind it."""
    yield from steps(db)
    db.checkpoint()
    db.put(1, b"behind", b"the snapshot")
    yield
    db.delete(7, b"b/3")
    yield


def synced_without_snapshot(db: CrabDB) -> Iterator[None]:
    """Everything but the last commit is known to be on the medium."""
    yield from steps(db)
    db.sync()
    db.put(0, b"z", b"last")
    yield


def compacted(db: CrabDB) -> Iterator[None]:
    """What a compaction leaves."""
    yield from steps(db)
    db.compact()
    db.put(0, b"z", b"last")
    yield


History = tuple[bytes, list[Contents], list[int]]


def history(build: Callable[[CrabDB], Iterator[None]]) -> History:
    """The bytes of a store, its contents after every commit, and how long the file then was."""
    files = MemoryFiles()
    db = CrabDB.open(PATH, files=files)
    states, sizes = [contents(db)], [db.stats().size]
    for _ in build(db):
        states.append(contents(db))
        sizes.append(db.stats().size)
    crash(db)
    return bytes(files.table[PATH].data), states, sizes


BUILDS = [without_snapshot, with_snapshot, synced_without_snapshot, compacted]


def check_outcome(data: bytes, states: list[Contents]) -> str:
    """Open damaged bytes both ways; what happened to the writer."""
    check_reader(data, states)
    files = files_with(data)
    try:
        db = CrabDB.open(PATH, files=files)
    except CrabDBError as error:
        assert bytes(files.table[PATH].data) == data
        return type(error).__name__
    try:
        found = contents(db)
    except Corrupted:
        crash(db)
        return "damaged record"
    assert found in states
    db.put(3, b"more", b"still works")
    crash(db)
    with CrabDB.open(PATH, files=files) as db:
        assert contents(db) == {**found, (3, b"more"): b"still works"}
    return "opened"


def check_reader(data: bytes, states: list[Contents]) -> None:
    """Read-only, whatever is shown was written there once."""
    try:
        db = CrabDB.open(PATH, files=files_with(data), read_only=True)
    except CrabDBError:
        return
    for col in (0, 1, 7):
        for key in db.scan_keys(col):
            try:
                value = db.get(col, key)
            except Corrupted:
                continue
            assert any(state.get((col, key)) == value for state in states)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_no_flipped_byte_makes_a_wrong_value(build: Callable[[CrabDB], Iterator[None]], mask: int) -> None:
    data, states, _ = history(build)
    outcomes = set()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= mask
        outcomes.add(check_outcome(bytes(damaged), states))
    assert outcomes >= {"opened", "NotCrabDB", "Corrupted"}


@pytest.mark.parametrize("build", BUILDS)
def test_no_cut_makes_a_wrong_value(build: Callable[[CrabDB], Iterator[None]]) -> None:
    data, states, _ = history(build)
    for length in range(1, len(data)):
        check_outcome(data[:length], states)


def test_a_tail_that_was_not_synced_is_cut_back_to_the_last_whole_commit() -> None:
    data, states, sizes = history(without_snapshot)
    for length in range(BIRTH_SIZE, len(data)):
        with CrabDB.open(PATH, files=files_with(data[:length])) as db:
            whole = max(number for number, size in enumerate(sizes) if size <= length)
            assert contents(db) == states[whole]
            assert db.stats().torn == length - sizes[whole]


@pytest.mark.parametrize(
    "junk", [bytes(3), bytes(5000), b"\0", b"Z" * 40, b"\0\xff\1\0\0\0f$\0\0\0" + b"?" * 90]
)
@pytest.mark.parametrize("build", BUILDS)
def test_junk_behind_the_log_is_cut_off(build: Callable[[CrabDB], Iterator[None]], junk: bytes) -> None:
    data, states, _ = history(build)
    files = files_with(data + junk)
    with CrabDB.open(PATH, files=files) as db:
        assert contents(db) == states[-1]
        assert db.stats().torn == len(junk)
        assert (db.stats().torn_saved is not None) == any(junk)


def test_a_commit_lost_from_the_middle_is_damage_only_where_it_was_durable() -> None:
    for build, error in ((without_snapshot, None), (synced_without_snapshot, Corrupted)):
        data, states, sizes = history(build)
        damaged = bytearray(data)
        damaged[sizes[2] : sizes[3]] = bytes(sizes[3] - sizes[2])
        if error is None:
            with CrabDB.open(PATH, files=files_with(damaged)) as db:
                assert contents(db) == states[2]
        else:
            with pytest.raises(error) as caught:
                CrabDB.open(PATH, files=files_with(damaged))
            assert caught.value.offset == sizes[2]


def test_read_only_shows_what_is_intact_on_both_sides_of_damage() -> None:
    data, _, sizes = history(synced_without_snapshot)
    damaged = bytearray(data)
    damaged[sizes[2] + 60] ^= 4
    db = CrabDB.open(PATH, files=files_with(damaged), read_only=True)
    assert db.stats().damage == (sizes[2],)
    assert contents(db)[0, b"z"] == b"last"
    assert not db.verify().ok


def test_flipped_value_under_a_snapshot_is_reported_when_it_is_read() -> None:
    data, states, _ = history(with_snapshot)
    place = data.rindex(b"second")
    damaged = bytearray(data)
    damaged[place] ^= 0x20
    with CrabDB.open(PATH, files=files_with(damaged)) as db:
        with pytest.raises(Corrupted) as caught:
            db.get(0, b"a")
        assert caught.value.offset < place
        with pytest.raises(Corrupted):
            db.scan(0)
        with pytest.raises(Corrupted):
            db.compact()
        assert db.get(1, b"behind") == states[-1][1, b"behind"]
        assert not db.verify().ok


def test_missing_end_that_the_header_promises_is_damage() -> None:
    data, _, _ = history(with_snapshot)
    with pytest.raises(Corrupted):
        CrabDB.open(PATH, files=files_with(data[:400]))


def test_zeros_before_the_end_that_the_header_promises_are_damage() -> None:
    data, _, sizes = history(with_snapshot)
    for start in (18, 32, BIRTH_SIZE, sizes[1], sizes[3]):
        zeroed = data[:start] + bytes(len(data) - start)
        files = files_with(zeroed)
        with pytest.raises(Corrupted):
            CrabDB.open(PATH, files=files)
        assert files.table[PATH].data == zeroed


def test_newer_version_flag_or_feature_is_refused() -> None:
    data, _, _ = history(without_snapshot)
    for place in (6, 10, BIRTH_SIZE - 47 - 4):
        newer = bytearray(data)
        newer[place] ^= 2
        files = files_with(newer)
        for read_only in (True, False):
            with pytest.raises(Unsupported):
                CrabDB.open(PATH, files=files, read_only=read_only)
        assert files.table[PATH].data == newer


def test_torn_tail_is_saved_up_to_a_bound() -> None:
    data, states, _ = history(without_snapshot)
    files = files_with(data + b"#" * 5000)
    with CrabDB.open(PATH, files=files, options=Options(torn_limit=1000)) as db:
        saved = db.stats().torn_saved
        assert saved is not None
        assert files.table[saved].data == b"#" * 1000
        assert contents(db) == states[-1]


def test_saved_tails_are_at_most_eight() -> None:
    data, _, _ = history(without_snapshot)
    files = files_with(data)
    for number in range(12):
        files.table[PATH].data += b"#%d" % number
        CrabDB.open(PATH, files=files).close()
    saved = sorted(path.name for path in files.table if "torn" in path.name)
    assert saved == [f"store.torn-{number}" for number in range(1, 9)]
    assert files.table[PATH.with_name(saved[-1])].data == b"#11"


def test_a_value_larger_than_any_batch_survives_replay(path: Path) -> None:
    value = b"0123456789abcdef" * (BODY_LIMIT // 16 + 1)
    db = CrabDB.open(path)
    db.put(0, b"large", value)
    db.put(0, b"after", b"it")
    crash(db)
    with CrabDB.open(path) as db:
        assert db.get(0, b"large") == value
        assert db.get(0, b"after") == b"it"


def test_values_that_look_like_frames_are_values(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"v")
    whole = path.read_bytes()
    db = CrabDB.open(path)
    db.put(0, b"copy of the file", whole)
    db.put(0, b"its end", whole[-300:])
    crash(db)
    path.write_bytes(path.read_bytes()[:-1])
    with CrabDB.open(path) as db:
        assert contents(db) == {(0, b"k"): b"v", (0, b"copy of the file"): whole}


@pytest.mark.parametrize("content", [b"#!/bin/sh\necho hello\n" * 9, b"PK\3\4" + bytes(600), b"CRMEM" * 40])
def test_foreign_file_is_refused_and_left_alone(content: bytes) -> None:
    files = files_with(content)
    for read_only in (True, False):
        with pytest.raises(NotCrabDB):
            CrabDB.open(PATH, files=files, read_only=read_only)
    assert files.table == {PATH: files.table[PATH]}
    assert files.table[PATH].data == content


def test_value_behind_a_lost_page_is_no_record_however_it_looks() -> None:
    files = files_with(b"")
    db = CrabDB.open(PATH, files=files)
    db.put(0, b"k", encode_put(1, b"ghost", b"never written") * 400)
    crash(db)
    data = bytearray(files.table[PATH].data)
    for page in (1024, 4096):
        for shift in range(page - BIRTH_SIZE, page - BIRTH_SIZE + 28):
            torn = bytes(data[:BIRTH_SIZE]) + bytes(shift) + bytes(data[page:])
            with CrabDB.open(PATH, files=files_with(torn)) as db:
                assert contents(db) == {}


def test_long_zeros_in_an_empty_store_are_cut_off_at_once() -> None:
    files = files_with(b"")
    CrabDB.open(PATH, files=files, options=Options(torn_limit=0)).close()
    files.table[PATH].data.extend(bytes(64 << 20))
    with CrabDB.open(PATH, files=files) as db:
        assert contents(db) == {}
        assert db.stats().torn == 64 << 20


def test_snapshot_that_a_crash_cut_short_is_cut_off() -> None:
    files = files_with(b"")
    db = CrabDB.open(PATH, files=files)
    db.put(0, b"k", b"v")
    end = db.stats().size
    db.checkpoint()
    crash(db)
    for header in (encode_header(), encode_bare_header()):
        data = header + files.table[PATH].data[32 : end + 60] + bytes(len(files.table[PATH].data) - end - 60)
        with CrabDB.open(PATH, files=files_with(data)) as db:
            assert contents(db) == {(0, b"k"): b"v"}
            assert db.stats().torn == len(data) - end
            assert db.stats().spoiled_snapshots == 0
            assert db.verify().ok
