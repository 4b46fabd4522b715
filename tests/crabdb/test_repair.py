"""Repairing: nothing is brought back that is known to be gone, everything missing or doubtful is named, and the
damaged file stays what it was.
"""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crabdb.faults import Fault, FaultyFiles
from tests.crabdb.model import Contents, contents, crash
from tests.crabdb.test_damage import BUILDS, PATH, files_with, history, with_snapshot, without_snapshot

from crabdb import (
    Corrupted,
    CrabDB,
    CrabDBError,
    Exists,
    InvalidArgument,
    Locked,
    NotCrabDB,
    NotFound,
    Repaired,
    Unsupported,
    repair,
)
from crabdb.files import Files, MemoryFile, MemoryFiles
from crabdb.recovery import BIRTH_SIZE, salt_of_frames

NEW = Path("/new")


def repaired(data: bytes | bytearray) -> tuple[Repaired, Contents]:
    """What a repair of these bytes says, and the contents of what it makes."""
    files = files_with(data)
    found = repair(PATH, NEW, files=files)
    assert bytes(files.table[PATH].data) == data
    with CrabDB.open(NEW, files=files, create=False) as db:
        assert db.verify().ok
        return found, contents(db)


def flipped(data: bytes, *places: int, mask: int = 4) -> bytearray:
    """These bytes with some of them damaged."""
    damaged = bytearray(data)
    for place in places:
        damaged[place] ^= mask
    return damaged


def synced(db: CrabDB) -> Iterator[None]:
    """Five commits, all of them known to be on the medium, and no snapshot."""
    db.put(0, b"old", b"first")
    yield
    db.put(0, b"stays", b"1")
    yield
    db.delete(0, b"old")
    yield
    db.put(0, b"new", b"2")
    yield
    db.sync()
    db.put(0, b"last", b"3")
    yield


@pytest.mark.parametrize("build", BUILDS)
def test_sound_store_is_kept_whole(build: Callable[[CrabDB], Iterator[None]]) -> None:
    data, states, _ = history(build)
    found, kept = repaired(data)
    assert kept == states[-1]
    assert not found.damaged
    assert (found.lost, found.dropped, found.suspect) == ((), (), ())
    assert found.keys == len(kept)


def test_key_deleted_in_a_damaged_stretch_is_suspect_and_the_stretch_is_named() -> None:
    data, states, sizes = history(synced)
    found, kept = repaired(flipped(data, sizes[2] + 50))
    assert kept == {**states[-1], (0, b"old"): b"first"}
    assert [(lost.offset, lost.length, lost.torn) for lost in found.lost] == [
        (sizes[2], sizes[3] - sizes[2], False)
    ]
    assert {key.key for key in found.suspect} == {b"old", b"stays"}
    assert found.damaged and found.dropped == ()


def test_records_behind_a_damaged_stretch_are_saved_and_not_suspect() -> None:
    data, states, sizes = history(synced)
    found, kept = repaired(flipped(data, sizes[0] + 3, sizes[1] + 50))
    assert kept == {key: value for key, value in states[-1].items() if key[1] != b"stays"}
    assert found.suspect == ()
    assert found.lost[0].offset == sizes[0]


def test_value_that_is_known_to_be_replaced_is_not_brought_back() -> None:
    files = MemoryFiles()
    with CrabDB.open(PATH, files=files) as db:
        db.put(0, b"k", b"an old value")
        db.put(0, b"k", b"the new value")
        db.put(0, b"other", b"")
    data = bytes(files.table[PATH].data)
    found, kept = repaired(flipped(data, data.index(b"the new value")))
    assert kept == {(0, b"other"): b""}
    assert [(key.col, key.key) for key in found.dropped] == [(0, b"k")]
    (key,) = found.dropped
    assert data[key.offset : key.offset + key.length].endswith(b"the new value")
    assert found.suspect == ()


def test_torn_tail_is_named_and_is_no_damage() -> None:
    data, states, _ = history(without_snapshot)
    found, kept = repaired(data + b"#" * 99)
    assert kept == states[-1]
    assert [(lost.offset, lost.length, lost.torn) for lost in found.lost] == [(len(data), 99, True)]
    assert not found.damaged and found.suspect == ()


def test_missing_end_makes_everything_before_it_suspect() -> None:
    data, _, _ = history(with_snapshot)
    found, kept = repaired(data[:400])
    assert found.damaged
    assert {(key.col, key.key) for key in found.suspect} == set(kept)
    assert max(lost.offset + lost.length for lost in found.lost) == 400
    assert any(lost.length for lost in found.lost)


def test_foreign_file_and_newer_one_are_refused() -> None:
    data, _, _ = history(without_snapshot)
    for content, error in (
        (b"#!/bin/sh\n" * 90, NotCrabDB),
        (b"x", NotCrabDB),
        (flipped(data, 6), Unsupported),
    ):
        files = files_with(content)
        with pytest.raises(error):
            repair(PATH, NEW, files=files)
        assert set(files.table) == {PATH}
    with pytest.raises(NotFound):
        repair("/missing", NEW, files=files)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("length", [6, 32, 50, 68, 100, BIRTH_SIZE])
def test_lost_beginning_is_derived_from_the_frames(
    build: Callable[[CrabDB], Iterator[None]], length: int
) -> None:
    data, states, _ = history(build)
    damaged = bytes(length) + data[length:]
    found, kept = repaired(damaged)
    assert kept == states[-1]
    assert found.damaged
    assert found.lost[0].offset == 0


@pytest.mark.parametrize("build", BUILDS)
def test_damaged_identity_is_refused_for_writing_and_costs_no_key(
    build: Callable[[CrabDB], Iterator[None]],
) -> None:
    data, states, _ = history(build)
    features = BIRTH_SIZE - 51
    for place in {*range(32, BIRTH_SIZE)} - {*range(features, features + 4)}:
        damaged = flipped(data, place)
        _, kept = repaired(damaged)
        assert kept == states[-1]
        assert contents(CrabDB.open(PATH, files=files_with(damaged), read_only=True)) == states[-1]


def test_store_whose_header_and_identity_were_zeroed_is_not_taken_for_that_of_another_writer() -> None:
    data, states, _ = history(without_snapshot)
    damaged = data[:7] + bytes(27) + data[34:]
    files = files_with(damaged)
    with pytest.raises(Corrupted) as caught:
        CrabDB.open(PATH, files=files)
    assert caught.value.offset == 32
    assert set(files.table) == {PATH} and files.table[PATH].data == damaged
    found, kept = repaired(damaged)
    assert kept == states[-1] and found.damaged


@pytest.mark.parametrize("build", BUILDS)
def test_no_flipped_byte_makes_a_repair_invent_or_hide_anything(
    build: Callable[[CrabDB], Iterator[None]],
) -> None:
    data, states, _ = history(build)
    for place in range(len(data)):
        check_honest(flipped(data, place, mask=0xFF), states)


@given(
    build=st.sampled_from(BUILDS),
    damage=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 300), st.booleans()), max_size=4),
    cut=st.integers(0, 400),
)
@settings(max_examples=200, deadline=None)
def test_no_wider_damage_makes_a_repair_invent_or_hide_anything(
    build: Callable[[CrabDB], Iterator[None]], damage: list[tuple[int, int, bool]], cut: int
) -> None:
    data, states, _ = history(build)
    damaged = bytearray(data)
    for start, length, zeros in damage:
        for place in range(start % len(data), min(start % len(data) + length, len(data))):
            damaged[place] = 0 if zeros else damaged[place] ^ 0x5A
    check_honest(damaged[: len(damaged) - cut], states, cut=cut > 0)


def check_honest(damaged: bytearray, states: list[Contents], *, cut: bool = False) -> None:
    """Every value in the repaired store was written once; every difference to the last state is announced, unless
    the file was cut between two commits that were not yet synced, which nobody can tell from a shorter history.

    Bytes among which not two frames are left may be the records of another writer, which nothing vouches for.
    """
    if salt_of_frames(MemoryFile(1, bytes(damaged)), len(damaged)) is None:
        return
    try:
        found, kept = repaired(damaged)
    except (NotCrabDB, Unsupported):
        return
    for place, value in kept.items():
        # A last frame that is damaged in its first bytes and in its sum may pass for a record of another writer.
        assert any(state.get(place) == value for state in states) or place[1] == b"f"
    now = states[-1]
    torn = cut or any(lost.torn for lost in found.lost)
    if not found.damaged:
        assert torn or kept == now
    suspect = {(key.col, key.key) for key in found.suspect}
    if not torn:
        assert {place for place, value in kept.items() if now.get(place) != value} <= suspect


def test_dry_run_says_the_same_and_writes_nothing() -> None:
    data, _, sizes = history(synced)
    files = files_with(flipped(data, sizes[1] + 60))
    told = repair(PATH, files=files)
    assert set(files.table) == {PATH}
    done = repair(PATH, NEW, files=files)
    assert told.target is None and done.target == NEW
    assert (told.lost, told.dropped, told.suspect) == (done.lost, done.dropped, done.suspect)
    assert (told.keys, told.size) == (done.keys, done.size)


def test_swap_keeps_the_original_under_another_name(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"precious")
        db.put(0, b"other", b"value")
    path.chmod(0o640)
    damaged = flipped(path.read_bytes(), path.read_bytes().index(b"precious"))
    path.write_bytes(damaged)
    for number in (1, 2):
        found = repair(path, swap=True)
        original = path.with_name(f"store.crmem.damaged-{number}")
        assert (found.target, found.original) == (path, original)
        if number == 1:
            assert found.damaged and original.read_bytes() == damaged
        assert path.stat().st_mode & 0o777 == 0o640
    with CrabDB.open(path, create=False) as db:
        assert contents(db) == {(0, b"other"): b"value"}
    names = {file.name for file in path.parent.iterdir()}
    assert names == {path.name, f"{path.name}.lock", f"{path.name}.damaged-1", f"{path.name}.damaged-2"}


def test_store_that_is_being_written_is_not_swapped(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(0, b"k", b"v")
        with pytest.raises(Locked):
            repair(path, swap=True)
        repair(path, path.with_name("new"))
    with CrabDB.open(path.with_name("new"), create=False) as new:
        assert contents(new) == {(0, b"k"): b"v"}


def test_existing_file_is_not_written_over(path: Path) -> None:
    CrabDB.open(path).close()
    other = path.with_name("other")
    other.write_bytes(b"precious")
    for target in (other, path):
        with pytest.raises(Exists):
            repair(path, target)
    with pytest.raises(InvalidArgument):
        repair(path, other, swap=True)
    assert other.read_bytes() == b"precious"


class BadBlock(MemoryFile):
    """A file with an unreadable block."""

    def __init__(self, number: int, data: bytes, bad: int) -> None:
        super().__init__(number, data)
        self.bad = bad

    def read(self, length: int, offset: int) -> bytes:
        if offset < self.bad + 512 and offset + length > self.bad:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(length, offset)


def test_unreadable_block_costs_what_is_in_it() -> None:
    inner = MemoryFiles()
    with CrabDB.open(PATH, files=inner) as db:
        for number in range(60):
            db.put(0, b"%02d" % number, bytes([number]) * 100)
    files = MemoryFiles()
    files.table[PATH] = BadBlock(1, bytes(inner.table[PATH].data), 4096)
    with pytest.raises(CrabDBError):
        CrabDB.open(PATH, files=files).verify()
    found = repair(PATH, NEW, files=files)
    assert found.refused == (4096,)
    assert {key.key for key in found.dropped} == {b"%02d" % n for n in range(60) if touches_block(found, n)}
    with CrabDB.open(NEW, files=files) as db:
        assert len(db) == found.keys == 60 - len(found.dropped)


def touches_block(found: Repaired, number: int) -> bool:
    """Whether the record of a key was reported to lie in the unreadable block."""
    return any(
        key.key == b"%02d" % number and key.offset < 4608 and key.offset + key.length > 4096
        for key in found.dropped
    )


def damaged_store() -> MemoryFiles:
    """A store of which one record is damaged."""
    data, _, sizes = history(synced)
    return files_with(flipped(data, sizes[1] + 60))


def calls(files: Files, fault: Fault) -> Files:
    """These files, with a fault."""
    return FaultyFiles(files, fault)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_failing_call_leaves_the_original_or_the_repaired_store(swap: bool, number: int) -> None:
    place = 0
    while True:
        files = damaged_store()
        original = bytes(files.table[PATH].data)
        fault = Fault(place, errno=number)
        try:
            repair(PATH, None if swap else NEW, swap=swap, files=calls(files, fault))
        except CrabDBError:
            assert original in {bytes(file.data) for file in files.table.values()}
            assert not any(".new-" in name.name for name in files.table)
            if bytes(files.table[PATH].data) != original:
                CrabDB.open(PATH, files=files).close()
            place += 1
            continue
        break
    assert place > 4


def test_reader_of_the_damaged_file_follows_the_swap(path: Path) -> None:
    db = CrabDB.open(path)
    for number in range(4):
        db.put(0, b"%d" % number, b"value %d" % number)
    db.sync()
    db.put(0, b"more", b"")
    crash(db)
    path.write_bytes(flipped(path.read_bytes(), path.read_bytes().index(b"value 2")))
    reader = CrabDB.open(path, read_only=True)
    assert reader.stats().damage
    repair(path, swap=True)
    assert reader.refresh()
    assert not reader.stats().damage
    assert reader.verify().ok
    assert b"2" not in reader.scan_keys(0)
