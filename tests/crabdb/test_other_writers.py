"""Files of other version-1 writers open here, and ours open in other version-1 readers, back and forth."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crabdb.model import contents, crash
from tests.crabdb.version1 import Contents, Version1, record

from crabdb import Corrupted, CrabDB, NotCrabDB


def log() -> Version1:
    """Puts over several columns, overwrites, deletes, an empty value, a key of awkward bytes."""
    file = Version1()
    for number in range(40):
        file.put(number % 7, b"local/k/%03d" % number, b"value %d" % number * (number % 5))
    for number in range(0, 20, 3):
        file.put(number % 7, b"local/k/%03d" % number, b"new %d" % number)
    for number in range(1, 20, 5):
        file.delete(number % 7, b"local/k/%03d" % number)
    file.put(4, b"\0\xff/\n", bytes(33))
    file.put(4, b"local/empty", b"")
    return file


def checkpoint() -> Version1:
    """A log with an index at its end."""
    file = log()
    file.checkpoint()
    return file


def tail() -> Version1:
    """Records behind the index."""
    file = checkpoint()
    for number in range(12):
        file.put(2, b"tail/%d" % number, b"%d" % number)
    file.delete(2, b"tail/3")
    return file


def twice() -> Version1:
    """An old index in the middle of the log."""
    file = tail()
    file.checkpoint()
    return file


def interrupted() -> Version1:
    """An index whose header was never written, with records behind it."""
    file = tail()
    file.checkpoint(header=False)
    file.put(0, b"later", b"on")
    return file


def compacted() -> Version1:
    """Records in order of their keys, then an index."""
    file = twice()
    file.compact()
    return file


def empty_index() -> Version1:
    """Four zero bytes: an index over nothing, twice, then records."""
    file = Version1()
    file.checkpoint()
    file.checkpoint()
    file.put(0, b"first", b"value")
    file.put(1, b"second", b"value")
    return file


def indexes_that_look_like_records() -> Version1:
    """Indexes of 1 and of 256 keys, whose first bytes read as a put or a delete."""
    file = Version1()
    file.put(3, b"only", b"one")
    file.checkpoint()
    for number in range(255):
        file.put(0, b"%d" % number, b"")
    file.checkpoint()
    file.put(9, b"last", b"after both")
    return file


SHAPES = [log, checkpoint, tail, twice, interrupted, compacted, empty_index, indexes_that_look_like_records]


@pytest.mark.parametrize("shape", SHAPES)
def test_foreign_file_shows_exactly_its_contents(shape: Callable[[], Version1], path: Path) -> None:
    file = shape()
    path.write_bytes(file.data)
    with CrabDB.open(path, read_only=True) as db:
        assert contents(db) == file.contents()
    assert path.read_bytes() == file.data
    with CrabDB.open(path, create=False) as db:
        assert contents(db) == file.contents()
        assert db.verify().ok


@pytest.mark.parametrize("shape", SHAPES)
def test_foreign_file_goes_on_working(shape: Callable[[], Version1], path: Path) -> None:
    file = shape()
    path.write_bytes(file.data)
    expected = file.contents()
    for step in (CrabDB.sync, CrabDB.checkpoint, CrabDB.compact, CrabDB.checkpoint):
        with CrabDB.open(path, create=False) as db:
            assert contents(db) == expected
            name = step.__name__.encode() + b"%d" % len(expected)
            db.put(8, name, b"ours")
            expected[8, name] = b"ours"
            step(db)
            assert contents(db) == expected
            before = db.stats()
            assert db.verify().ok
        with CrabDB.open(path, create=False) as db:
            after = db.stats()
            assert (after.live, after.keys) == (before.live, before.keys)
        assert Version1.of(path).contents() == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_torn_record_of_another_writer_is_cut_off_and_saved(
    shape: Callable[[], Version1], path: Path
) -> None:
    file = shape()
    path.write_bytes(file.data + record(0, 1, b"torn", b"value")[:9])
    with CrabDB.open(path, create=False) as db:
        assert contents(db) == file.contents()
        saved = db.stats().torn_saved
        assert db.stats().torn == 9
        assert saved is not None
        assert saved.read_bytes() == record(0, 1, b"torn", b"value")[:9]


@pytest.mark.parametrize("shape", SHAPES)
def test_zeros_behind_a_foreign_log_are_no_records(shape: Callable[[], Version1], path: Path) -> None:
    file = shape()
    path.write_bytes(file.data + bytes(4096))
    with CrabDB.open(path, create=False) as db:
        assert contents(db) == file.contents()
        assert db.stats().torn_saved is None


def test_records_that_another_writer_appends_to_ours_are_vouched_for_once(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(1, b"ours", b"1")
    file = Version1.of(path)
    file.put(1, b"theirs", b"2")
    file.delete(1, b"ours")
    path.write_bytes(file.data)
    sizes = []
    for _ in range(2):
        with CrabDB.open(path) as db:
            assert contents(db) == {(1, b"theirs"): b"2"}
            sizes.append(db.stats().size)
            assert db.verify().ok
    assert (
        sizes[1] - sizes[0] < 300
    )  # The first close wrote a snapshot; no second frame vouches for the same.


def test_flip_in_vouched_records_is_noticed(path: Path) -> None:
    file = log()
    path.write_bytes(file.data)
    db = CrabDB.open(path)
    db.put(0, b"k", b"v")
    crash(db)
    data = bytearray(path.read_bytes())
    data[data.index(b"new 9")] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupted) as caught:
        CrabDB.open(path)
    assert caught.value.offset == 32
    with CrabDB.open(path, read_only=True) as db:
        assert contents(db) == {(0, b"k"): b"v"}


def test_flip_in_records_vouched_for_at_the_last_opening_is_noticed(path: Path) -> None:
    path.write_bytes(log().data)
    crash(CrabDB.open(path))
    data = bytearray(path.read_bytes())
    data[data.index(b"new 9")] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupted):
        CrabDB.open(path)
    assert path.read_bytes() == data


def test_damaged_length_that_reaches_over_our_commits_is_noticed(path: Path) -> None:
    with CrabDB.open(path) as db:
        db.put(1, b"ours", b"1")
    file = Version1.of(path)
    file.put(1, b"theirs", b"2")
    path.write_bytes(file.data)
    db = CrabDB.open(path)
    db.put(1, b"last", b"3")
    crash(db)
    data = path.read_bytes()
    length_at = len(file.data) - 5
    for value_end in (len(data), len(data) - 20):
        wrong = (value_end - length_at - 4).to_bytes(4, "little")
        path.write_bytes(data[:length_at] + wrong + data[length_at + 4 :])
        with pytest.raises(Corrupted):
            CrabDB.open(path)
        with CrabDB.open(path, read_only=True) as db:
            assert contents(db) == {(1, b"ours"): b"1", (1, b"last"): b"3"}


def test_damage_before_a_foreign_checkpoint_is_refused(path: Path) -> None:
    data = checkpoint().data
    data[32 + 3] = 0xFF  # A key length, now beyond the end of the file.
    path.write_bytes(data + record(0, 0, b"k", b"v"))
    before = path.read_bytes()
    with pytest.raises(Corrupted):
        CrabDB.open(path)
    assert path.read_bytes() == before


def test_older_layout_with_the_same_magic_is_refused_and_left_alone(path: Path) -> None:
    entries = b"\1\0\0\0\0\0\0\0name\5\0\0\0hello" * 4
    content = b"CRMEM\0\1\0\0\0\0\0" + (2).to_bytes(8, "little") + (28).to_bytes(8, "little") + entries
    path.write_bytes(content)
    with pytest.raises(NotCrabDB):
        CrabDB.open(path)
    assert path.read_bytes() == content


COLUMNS = st.sampled_from([0, 5])
KEYS = st.sampled_from([b"a", b"b", b"c\0", b"local/x/1"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "checkpoint", "unpointed", "compact", "switch"]), COLUMNS, KEYS
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_two_programs_take_turns_on_one_file(steps: list[tuple[str, int, bytes]]) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        path.write_bytes(Version1().data)
        expected: Contents = {}
        for number, (step, col, key) in enumerate(steps):
            take_turn(path, step, col, key, theirs=number % 2 == 0, expected=expected)
            assert Version1.of(path).contents() == expected
        with CrabDB.open(path) as db:
            assert contents(db) == expected
            assert db.verify().ok


def take_turn(path: Path, step: str, col: int, key: bytes, *, theirs: bool, expected: Contents) -> None:
    """Let one of the two programs open the file, do something and close it."""
    value = b"value of %s" % key
    if theirs:
        file = Version1.of(path)
        turn_of_theirs(file, step, col, key, value)
        path.write_bytes(file.data)
    else:
        with CrabDB.open(path) as db:
            assert contents(db) == expected
            turn_of_ours(db, step, col, key, value)
    if step == "put":
        expected[col, key] = value
    elif step == "delete":
        expected.pop((col, key), None)


def turn_of_theirs(file: Version1, step: str, col: int, key: bytes, value: bytes) -> None:
    """One step of the other program."""
    if step == "put":
        file.put(col, key, value)
    elif step == "delete" and (col, key) in file.places:
        file.delete(col, key)
    elif step == "checkpoint":
        file.checkpoint()
    elif step == "compact":
        file.compact()


def turn_of_ours(db: CrabDB, step: str, col: int, key: bytes, value: bytes) -> None:
    """One step of ours."""
    if step == "put":
        db.put(col, key, value)
    elif step == "delete":
        db.delete(col, key)
    elif step == "checkpoint":
        db.checkpoint()
    elif step == "compact":
        db.compact()
