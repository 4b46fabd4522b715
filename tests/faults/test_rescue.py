"""Copies, repairs, erasing: power is lost after every call. And followers, beside writers that are killed."""

from collections.abc import Callable
from pathlib import Path

from tests.crabdb.crashable import CrashableFiles
from tests.crabdb.model import Contents, contents, crash
from tests.crabdb.soak import soak
from tests.faults.ledger import PATH
from tests.faults.tally import EARLIER, EQUAL, FULL, Tally

from crabdb import CrabDB, repair
from crabdb.files import Files

COPY = PATH.with_name("copy")
PAGE = 128 if FULL else 256

State = dict[Path, bytes]


def store(files: Files, *, count: int = 6) -> Contents:
    """A small store, closed; its contents."""
    with CrabDB.open(PATH, files=files) as db:
        for number in range(count):
            db.put(number % 2, b"key %d" % (number % 4), b"value %d" % number)
        return contents(db)


def held(state: State, path: Path) -> Contents:
    """What a store in a crash state holds, once it was opened for writing; it must be sound."""
    with CrabDB.open(path, files=CrashableFiles(state), create=False) as db:
        assert db.verify().ok
        return contents(db)


def every_state(files: CrashableFiles, work: Callable[[], object], check: Callable[[State], None]) -> None:
    """Check each state that a loss of power can leave after each call of some work."""
    seen: set[frozenset[tuple[Path, bytes]]] = set()

    def cut(call: str) -> None:
        for state in files.states(PATH, PAGE):
            key = frozenset(state.items())
            if key not in seen:
                seen.add(key)
                check(state)

    files.after = cut
    work()
    files.after = lambda call: None


def test_power_lost_during_a_backup_leaves_no_copy_or_a_whole_one(tally: Tally) -> None:
    tally.of("loss of power during a backup", "every crash state of a file system in memory")
    files = CrashableFiles()
    expected = store(files)

    def check(state: State) -> None:
        assert held(state, PATH) == expected
        assert COPY not in state or held(state, COPY) == expected
        tally.add(EQUAL if COPY in state else "no copy")

    reader = CrabDB.open(PATH, files=files, read_only=True)
    every_state(files, lambda: reader.backup(COPY), check)
    assert tally.outcomes[EQUAL]
    assert held({path: bytes(file.data) for path, file in files.named.items()}, COPY) == expected


def test_power_lost_while_a_repaired_store_is_swapped_in_leaves_one_of_the_two(tally: Tally) -> None:
    tally.of("loss of power during repair --swap", "every crash state of a file system in memory")
    files = CrashableFiles()
    db = CrabDB.open(PATH, files=files)
    for number in range(4):
        db.put(0, b"key %d" % number, b"value %d" % number)
    db.sync()
    db.put(0, b"more", b"")
    crash(db)
    damaged = bytearray(files.table[PATH].data)
    damaged[damaged.index(b"value 1")] ^= 1
    files = CrashableFiles({PATH: bytes(damaged)})
    saved = {(0, b"key %d" % number): b"value %d" % number for number in (0, 2, 3)} | {(0, b"more"): b""}

    def check(state: State) -> None:
        assert bytes(damaged) in state.values()
        if state[PATH] == bytes(damaged):
            tally.add("the damaged store")
        else:
            assert held(state, PATH) == saved
            tally.add("the repaired store")

    every_state(files, lambda: repair(PATH, swap=True, files=files), check)
    assert set(tally.outcomes) == {"the damaged store", "the repaired store"}


def test_power_lost_while_erasing_costs_no_key(tally: Tally) -> None:
    tally.of("loss of power while erasing", "every crash state of a file system in memory")
    files = CrashableFiles()
    expected = store(files)
    files.create(PATH.with_name("store.torn-1")).write(b"a torn tail", 0)
    db = CrabDB.open(PATH, files=files)

    def check(state: State) -> None:
        assert held(state, PATH) == expected
        tally.add(EQUAL)

    every_state(files, db.erase, check)
    assert not any("torn" in path.name for path in files.named)
    crash(db)


def test_end_of_the_process_during_a_repair_or_a_backup_leaves_only_temporary_files(tally: Tally) -> None:
    tally.of("end of the process during a backup or repair", "copies of a file system in memory")
    for work in (backed_up, repaired):
        files = CrashableFiles()
        expected = store(files)

        def check(call: str, files: CrashableFiles = files, expected: Contents = expected) -> None:
            left = files.killed()
            for path in (PATH, COPY):
                if path in left.table:
                    with CrabDB.open(path, files=left, create=False) as db:
                        assert contents(db) == expected
            assert not any(".new-" in path.name for path in left.table if path.name.startswith("store"))
            tally.add(EQUAL if COPY in left.table else EARLIER)

        files.after = check
        work(files)


def backed_up(files: Files) -> None:
    """Make a copy."""
    CrabDB.open(PATH, files=files, read_only=True).backup(COPY)


def repaired(files: Files) -> None:
    """Make a repaired copy."""
    repair(PATH, COPY, files=files)


def test_follower_of_writers_that_are_killed_sees_whole_batches_in_order(
    tally: Tally, tmp_path: Path
) -> None:
    tally.of("a follower beside a writer that is killed", "real processes, timed kills")
    seen = soak(tmp_path / "store", seconds=20 if FULL else 1.5)
    assert seen.changes > 0
    tally.add("a later state that the writer had", seen.changes)
    tally.add("nothing new", seen.refreshes - seen.changes)
