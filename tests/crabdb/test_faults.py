"""Every call to the system fails, once or for ever, in each of several ways; then the store is opened anew and
compared with what was acknowledged and what was synced.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crabdb.faults import Fault, FaultyFiles, ForgetfulFiles
from tests.crabdb.model import Contents, contents, crash

from crabdb import CrabDB, CrabDBError, DiskFull, Options, StoreFailed
from crabdb.files import MemoryFiles

PATH = Path("/store")
NEVER = 10**9


class Ledger:
    """Runs a script against a store and keeps what it was told."""

    def __init__(self, db: CrabDB) -> None:
        self.db = db
        self.acknowledged: Contents = contents(db)
        self.synced: Contents = dict(self.acknowledged)
        self.history: list[Contents] = [dict(self.acknowledged)]
        self.errors: list[CrabDBError] = []

    def change(self, changes: dict[tuple[int, bytes], bytes | None], call: Callable[[], object]) -> None:
        """Make a change; it counts if the call returns."""
        after = dict(self.acknowledged)
        for place, value in changes.items():
            after.pop(place, None)
            if value is not None:
                after[place] = value
        self.history.append(after)
        if self.attempt(call):
            self.acknowledged = after
        assert contents(self.db) == self.acknowledged

    def attempt(self, call: Callable[[], object]) -> bool:
        """Make a call that may fail, with a typed error that leaves the contents as they are."""
        try:
            call()
        except CrabDBError as error:
            self.errors.append(error)
            return False
        return True

    def durable(self, call: Callable[[], object]) -> None:
        """Make a call after which, if it returns, everything is on the medium."""
        if self.attempt(call):
            self.synced = dict(self.acknowledged)
        assert contents(self.db) == self.acknowledged


def batch(db: CrabDB) -> None:
    """A commit of several records."""
    with db.batch() as staged:
        staged.put(1, b"x", b"1")
        staged.put(1, b"y", b"2")
        staged.delete(0, b"a")


def script(db: CrabDB) -> Ledger:
    """A bit of everything."""
    ledger = Ledger(db)
    ledger.change({(0, b"a"): b"alpha"}, lambda: db.put(0, b"a", b"alpha"))
    ledger.change({(0, b"b"): b"beta"}, lambda: db.put(0, b"b", b"beta"))
    ledger.durable(db.sync)
    ledger.change({(1, b"x"): b"1", (1, b"y"): b"2", (0, b"a"): None}, lambda: batch(db))
    ledger.durable(db.checkpoint)
    ledger.change({(0, b"b"): None}, lambda: db.delete(0, b"b"))
    ledger.change({(2, b"c"): b"gamma" * 9}, lambda: db.put(2, b"c", b"gamma" * 9))
    ledger.durable(db.compact)
    ledger.change({(2, b"d"): b"delta"}, lambda: db.put(2, b"d", b"delta"))
    ledger.durable(db.checkpoint)
    ledger.change({(2, b"e"): b"end"}, lambda: db.put(2, b"e", b"end"))
    return ledger


def calls_of_script() -> int:
    """How many calls the script makes when nothing fails."""
    fault = Fault(NEVER)
    db = CrabDB.open(PATH, files=FaultyFiles(MemoryFiles(), fault))
    before = len(fault.calls)
    script(db)
    return len(fault.calls) - before


CALLS = calls_of_script()


@pytest.mark.parametrize("written", [0.0, 0.5])
@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("number", range(CALLS))
@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_what_was_acknowledged_survives_the_failing_call(
    reason: int, number: int, for_ever: bool, written: float
) -> None:
    inner = MemoryFiles()
    CrabDB.open(PATH, files=inner).close()
    fault = Fault(NEVER, reason, for_ever, written)
    db = CrabDB.open(PATH, files=FaultyFiles(inner, fault))
    fault.number = len(fault.calls) + number
    ledger = script(db)
    assert ledger.errors
    crash(db)
    with CrabDB.open(PATH, files=inner) as again:
        assert contents(again) in possible(ledger)
        again.put(9, b"more", b"")
        assert again.verify().ok
    assert {path.name for path in inner.table} - {"store.torn-1"} == {"store"}


def possible(ledger: Ledger) -> list[Contents]:
    """What a store may hold after a crash of the process alone.

    A commit that was rolled back is gone. Only if not even the roll-back was possible may it be there.
    """
    if not any(isinstance(error, StoreFailed) for error in ledger.errors):
        return [ledger.acknowledged]
    unknown = ledger.history[ledger.history.index(ledger.acknowledged) :][:2]
    return [ledger.acknowledged, *unknown]


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("number", [*range(CALLS), NEVER])
def test_what_was_synced_survives_the_loss_of_power(number: int, kept: float) -> None:
    inner = ForgetfulFiles()
    CrabDB.open(PATH, files=inner).close()
    fault = Fault(NEVER, for_ever=True)
    db = CrabDB.open(PATH, files=FaultyFiles(inner, fault))
    fault.number = len(fault.calls) + number
    ledger = script(db)
    after = inner.after_power_loss(kept=kept)
    with CrabDB.open(PATH, files=after) as again:
        found = contents(again)
        first = ledger.history.index(ledger.synced)
        assert found in ledger.history[first:]
        again.put(9, b"more", b"")
    with CrabDB.open(PATH, files=after) as again:
        assert contents(again) == {**found, (9, b"more"): b""}


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_failing_creation_leaves_nothing_or_a_store(number: int, reason: int) -> None:
    inner = MemoryFiles()
    fault = Fault(number, reason)
    with suppress(CrabDBError):
        CrabDB.open(PATH, files=FaultyFiles(inner, fault)).close()
    assert {path.name for path in inner.table} <= {"store"}
    with CrabDB.open(PATH, files=inner) as db:
        assert len(db) == 0


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_failing_recovery_can_be_done_again(number: int, reason: int) -> None:
    inner = MemoryFiles()
    db = CrabDB.open(PATH, files=inner)
    db.put(0, b"k", b"v")
    crash(db)
    inner.table[PATH].data += b"a torn tail"
    with suppress(CrabDBError):
        crash(CrabDB.open(PATH, files=FaultyFiles(inner, Fault(number, reason))))
    with CrabDB.open(PATH, files=inner) as db:
        assert contents(db) == {(0, b"k"): b"v"}
        assert db.verify().ok


def test_full_disk_leaves_the_store_usable() -> None:
    fault = Fault(NEVER, errno.ENOSPC, written=0.5)
    db = CrabDB.open(PATH, files=FaultyFiles(MemoryFiles(), fault))
    db.put(0, b"k", b"v")
    size = db.stats().size
    fault.next()
    with pytest.raises(DiskFull) as caught:
        db.put(0, b"k", b"something longer")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path == PATH
    assert db.stats().size == size
    assert db.get(0, b"k") == b"v"
    db.put(0, b"k", b"short")
    assert db.get(0, b"k") == b"short"


@pytest.mark.parametrize("call", ["sync", "checkpoint"])
def test_failed_fsync_is_never_tried_again(call: str) -> None:
    fault = Fault(NEVER)
    db = CrabDB.open(PATH, files=FaultyFiles(MemoryFiles(), fault))
    db.put(0, b"k", b"v")
    fault.next()
    for _ in range(2):
        with pytest.raises(StoreFailed) as caught:
            getattr(db, call)()
        assert isinstance(caught.value.cause, OSError)
    assert fault.calls[fault.number :] == ["sync"]
    for write in (lambda: db.put(0, b"k", b"w"), lambda: db.delete(0, b"k"), lambda: batch(db), db.compact):
        with pytest.raises(StoreFailed):
            write()
    assert db.get(0, b"k") == b"v"
    assert db.stats().failure is caught.value.cause
    db.close()


def test_compaction_that_fails_by_itself_is_noted_and_not_raised() -> None:
    fault = Fault(0, errno.ENOSPC, for_ever=True, only="create")
    files = MemoryFiles()
    CrabDB.open(PATH, files=files).close()
    db = CrabDB.open(PATH, files=FaultyFiles(files, fault), options=Options(compact_min=1000))
    for number in range(100):
        db.put(0, b"k", b"%d" % number * 20)
        assert db.get(0, b"k") == b"%d" % number * 20
    assert isinstance(db.stats().compaction_error, DiskFull)
    assert 1 <= len(fault.calls) <= 5  # It waits for twice as much to be written before it tries again.
    fault.number = NEVER
    for number in range(200):
        db.put(0, b"k", b"%d" % number * 20)
    assert db.stats().compactions
    assert db.stats().compaction_error is None


def test_interrupt_between_write_and_return_takes_the_put_back() -> None:
    fault = Fault(NEVER, written=1.0, error=KeyboardInterrupt())
    files = FaultyFiles(MemoryFiles(), fault)
    db = CrabDB.open(PATH, files=files)
    db.put(0, b"k", b"v")
    stats = db.stats()
    fault.next()
    with pytest.raises(KeyboardInterrupt):
        db.put(0, b"k", b"w")
    assert db.get(0, b"k") == b"v"
    assert db.stats() == stats
    db.put(0, b"k", b"x")
    with CrabDB.open(PATH, files=files, read_only=True) as other:
        assert contents(other) == {(0, b"k"): b"x"}


def test_interrupted_change_of_the_index_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    db = CrabDB.open(PATH, files=MemoryFiles())
    db.put(0, b"k", b"v")
    before, stats = contents(db), db.stats()
    calls: list[bytes] = []

    def interrupted(value: bytes) -> int:
        calls.append(value)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 0

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), db.batch() as staged:
        patch.setattr("crabdb.index.crc32", interrupted)
        for number in range(3):
            staged.put(0, b"%d" % number, b"new")
    assert len(calls) == 2
    assert contents(db) == before
    assert db.stats() == stats
    assert db.verify().ok
