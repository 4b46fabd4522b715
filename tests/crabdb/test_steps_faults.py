"""Between any two steps of long work: what others change is kept, and a crash, a loss of power, a full disk or a
driver that walks away costs nothing that was promised.
"""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crabdb.faults import Fault, FaultyFiles, ForgetfulFiles
from tests.crabdb.model import Contents, contents, crash

from crabdb import Closed, CrabDB, DiskFull, InvalidArgument, Options, Step, StoreFailed
from crabdb.files import Files, MemoryFiles
from crabdb.index import Change
from crabdb.steps import finish

PATH = Path("/store")
FULL: Contents = {(col, b"%04d" % number): b"first" for col in (0, 1) for number in range(50)}
CHANGES: list[Change] = [
    (number % 2, b"%04d" % (number * 37 % 60), None if number % 3 == 0 else b"%d" % number)
    for number in range(60)
]
KINDS: list[Callable[[CrabDB], Iterator[Step]]] = [CrabDB.compaction_steps, CrabDB.checkpoint_steps]
CALLER = Options(maintenance="caller")


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Many steps for few keys."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("snapshot", "compaction"):
            patch.setattr(f"crabdb.{module}.PIECE", 300)
        for module in ("snapshot", "compaction", "report"):
            patch.setattr(f"crabdb.{module}.PIECE_KEYS", 8)
        patch.setattr("crabdb.compaction.FEW", 2)
        patch.setattr("crabdb.compaction.SYNC_EVERY", 1000)
        yield


def full_store(files: Files, options: Options = CALLER) -> CrabDB:
    """A store to work on."""
    db = CrabDB.open(PATH, files=files, options=options)
    db.commit([(col, key, value) for (col, key), value in FULL.items()])
    return db


def apply(model: Contents, change: Change) -> None:
    """Make a change to a model."""
    col, key, value = change
    model.pop((col, key), None)
    if value is not None:
        model[col, key] = value


@pytest.mark.parametrize("kept", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_of_power_after_any_step_keeps_what_was_synced(
    kind: Callable[[CrabDB], Iterator[Step]], kept: float
) -> None:
    files = ForgetfulFiles()
    db = full_store(files)
    db.sync()
    history = [dict(FULL)]
    synced = count = 0
    for count, _ in enumerate(kind(db)):
        change = CHANGES[count % len(CHANGES)]
        db.commit([change])
        history.append(dict(history[-1]))
        apply(history[-1], change)
        if count % 7 == 3:
            db.sync()
            synced = len(history) - 1
        with CrabDB.open(PATH, files=files.after_power_loss(kept=kept)) as again:
            assert contents(again) in history[synced:]
            assert again.verify().ok
    assert count > 20
    assert contents(db) == history[-1]
    assert db.verify().ok
    db.close()
    with CrabDB.open(PATH, files=files) as again:
        assert contents(again) == history[-1]


@given(
    kind=st.sampled_from(KINDS),
    stop=st.integers(0, 120),
    changes=st.lists(st.sampled_from(CHANGES), max_size=120),
    ending=st.sampled_from(["crash", "close", "walk away", "compact", "checkpoint"]),
)
@settings(max_examples=100, deadline=None)
def test_steps_that_end_anywhere_in_any_way_lose_nothing(
    kind: Callable[[CrabDB], Iterator[Step]], stop: int, changes: list[Change], ending: str
) -> None:
    files = MemoryFiles()
    db = full_store(files)
    model = dict(FULL)
    steps = kind(db)
    for number in range(stop):
        if next(steps, None) is None:
            break
        for change in changes[number : number + 1]:
            db.commit([change])
            apply(model, change)
        assert contents(db) == model
    if ending == "walk away":
        del steps
    elif ending != "crash":
        getattr(db, ending)()
    if ending == "crash":
        crash(db)
    else:
        db.close()
    with CrabDB.open(PATH, files=files) as again:
        assert contents(again) == model
        assert again.verify().ok
    assert set(files.table) - {PATH.with_name("store.torn-1")} == {PATH}


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("kind", KINDS)
def test_write_that_fails_in_any_step_costs_nothing_that_was_promised(
    kind: Callable[[CrabDB], Iterator[Step]], reason: int
) -> None:
    number = failed = 0
    while failed == number:
        inner, fault = MemoryFiles(), Fault(10**9, reason, written=0.5, only="write")
        db = full_store(FaultyFiles(inner, fault))
        model = dict(FULL)
        fault.number = len(fault.calls) + number
        number += 1
        change = CHANGES[number % len(CHANGES)]
        try:
            for _ in kind(db):
                pass
        except (DiskFull, StoreFailed, OSError):
            failed += 1
        fault.number = 10**9
        try:
            db.commit([change])
            apply(model, change)
        except StoreFailed:
            assert reason == errno.EIO
        assert contents(db) == model
        crash(db)
        with CrabDB.open(PATH, files=inner) as again:
            assert contents(again) == model
            assert again.verify().ok
    assert failed > 5


@pytest.mark.parametrize("kind", KINDS)
def test_steps_after_close_raise_closed(kind: Callable[[CrabDB], Iterator[Step]]) -> None:
    files = MemoryFiles()
    db = full_store(files)
    steps = kind(db)
    for _ in range(15):
        next(steps)
    db.close()
    with pytest.raises(Closed):
        next(steps)
    assert set(files.table) == {PATH}


def test_verification_in_steps_is_of_the_moment_it_began() -> None:
    db = full_store(MemoryFiles())
    steps = db.verify_steps()
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        db.commit([CHANGES[count % len(CHANGES)]])
        count += 1
    assert count > 20
    assert found.ok, found.problems
    assert found.keys == len(FULL)


def test_key_that_the_index_has_lost_is_found_whatever_changes_meanwhile() -> None:
    db = full_store(MemoryFiles())
    assert db._log is not None
    del db._log.index.maps[1][b"0040"]
    steps = db.verify_steps()
    next(steps)
    db.put(1, b"0041", b"changed")
    found = finish(steps)
    assert [problem for _, problem in found.problems if "0040" in problem]
    assert len(found.problems) == 1


def test_two_who_compact_at_once_take_turns_and_both_finish() -> None:
    db = full_store(MemoryFiles())
    first, second = db.compaction_steps(), db.compaction_steps()
    for _ in range(5):
        next(first)
    for _ in second:
        pass
    assert list(first) == []
    assert db.stats().compactions == 2


def test_compaction_that_would_fill_the_disk_is_not_begun() -> None:
    class Small(MemoryFiles):
        def room(self, directory: Path) -> int:
            return (1 << 20) + 100

    files = Small()
    db = full_store(files)
    with pytest.raises(DiskFull):
        db.compact()
    assert set(files.table) == {PATH}
    db.put(0, b"k", b"v")


def test_maintenance_takes_no_step_unless_it_is_due() -> None:
    db = full_store(MemoryFiles(), Options(maintenance="caller", compact_min=1000))
    assert list(db.maintenance()) == []
    for number in range(1000):
        db.put(0, b"k", b"%d" % number)
    assert db.maintenance_due
    assert not db.stats().compactions
    assert list(db.maintenance())
    assert db.stats().compactions == 1
    assert not db.maintenance_due


def test_commits_take_the_steps_of_a_compaction_a_few_at_a_time() -> None:
    fault = Fault(10**9)
    db = full_store(FaultyFiles(MemoryFiles(), fault), Options(compact_min=3000))
    most = 0
    for number in range(3000):
        calls = len(fault.calls)
        db.put(0, b"k", b"%d" % number)
        most = max(most, len(fault.calls) - calls)
    assert db.stats().compactions > 5
    assert db.stats().size < 60_000
    assert most < 16


def test_interrupt_in_a_step_leaves_the_store_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    db = full_store(files)
    calls: list[None] = []

    def interrupted(*_: object) -> None:
        calls.append(None)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("crabdb.compaction.read_values", interrupted)
        db.compact()
    assert calls
    assert set(files.table) == {PATH}
    db.compact()
    assert contents(db) == FULL


def test_unknown_maintenance_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        Options(maintenance="somebody")  # type: ignore[arg-type]
