"""Long work in steps, with everything else in between: what is read and what is kept never depends on it."""

import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.crabdb.model import Contents, contents, crash, live_bytes, page

from crabdb import Closed, CrabDB, Options, Step
from crabdb.steps import drive

COLUMNS = st.sampled_from([0, 1, 254])
KEYS = st.integers(0, 600).map(lambda number: b"%04d" % number)
CHANGES = st.lists(st.tuples(COLUMNS, KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=20)
OPTIONS = st.builds(
    Options,
    compact_min=st.sampled_from([500, 1 << 20]),
    compact_at=st.sampled_from([0.2, 0.6]),
    snapshot_at=st.sampled_from([0.0, 0.25]),
    sync=st.sampled_from(["checkpoint", "always"]),
    maintenance=st.sampled_from(["commits", "caller"]),
)
FULL: Contents = {(col, b"%04d" % number): b"first" for col in (0, 1) for number in range(0, 600, 2)}


class StepsAgainstDict(RuleBasedStateMachine):
    """Steps of a compaction, of a checkpoint and of maintenance are taken a few at a time, or given up."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in ("snapshot", "compaction", "upkeep"):
            self.patch.setattr(f"crabdb.{module}.PIECE", 1000)
        for module in ("snapshot", "compaction", "report"):
            self.patch.setattr(f"crabdb.{module}.PIECE_KEYS", 16)
        self.patch.setattr("crabdb.compaction.FEW", 2)
        self.patch.setattr("crabdb.compaction.SYNC_EVERY", 5000)
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "store.crmem"
        self.db = CrabDB.open(self.path, options=Options(maintenance="caller"))
        self.work: list[Generator[Step, None, object]] = []
        self.model: Contents = dict(FULL)
        self.db.commit([(col, key, value) for (col, key), value in FULL.items()])

    @rule(col=COLUMNS, key=KEYS, value=st.binary(max_size=30))
    def put(self, col: int, key: bytes, value: bytes) -> None:
        self.db.put(col, key, value)
        self.model[col, key] = value

    @rule(col=COLUMNS, key=KEYS)
    def delete(self, col: int, key: bytes) -> None:
        assert self.db.delete(col, key) == (self.model.pop((col, key), None) is not None)

    @rule(changes=CHANGES)
    def commit(self, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        self.db.commit(changes)
        for col, key, value in changes:
            self.model.pop((col, key), None)
            if value is not None:
                self.model[col, key] = value

    @rule(col=COLUMNS, start=st.integers(0, 600), value=st.none() | st.binary(max_size=5))
    def change_many(self, col: int, start: int, value: bytes | None) -> None:
        self.commit([(col, b"%04d" % number, value) for number in range(start, min(start + 400, 600))])

    @rule(kind=st.sampled_from(["compaction_steps", "checkpoint_steps", "maintenance", "verify_steps"]))
    def begin(self, kind: str) -> None:
        self.work.append(getattr(self.db, kind)())

    @precondition(lambda self: self.work)
    @rule(which=st.integers(0, 9), count=st.integers(1, 40), changes=st.just([]) | CHANGES)
    def take_steps(self, which: int, count: int, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        work = self.work[which % len(self.work)]
        for number in range(count):
            if next(work, None) is None:
                self.work.remove(work)
                return
            self.commit(changes[number : number + 1])

    @rule(
        kind=st.sampled_from(["compaction_steps", "checkpoint_steps"]),
        count=st.integers(1, 80),
        changes=CHANGES,
    )
    def begin_and_take_steps(
        self, kind: str, count: int, changes: list[tuple[int, bytes, bytes | None]]
    ) -> None:
        self.begin(kind)
        self.take_steps(-1, count, changes)

    @precondition(lambda self: self.work)
    @rule(which=st.integers(0, 9))
    def give_up(self, which: int) -> None:
        self.work.pop(which % len(self.work))

    @rule()
    def checkpoint(self) -> None:
        self.db.checkpoint()
        assert self.db.stats().durable == self.db.stats().size

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule(options=OPTIONS, closing=st.booleans())
    def reopen(self, options: Options, closing: bool) -> None:
        left = self.work
        self.work = []
        if closing:
            self.db.close()
            for work in left:
                with suppress(Closed):
                    drive(work)
        else:
            crash(self.db)
        self.db = CrabDB.open(self.path, options=options, create=False)
        assert contents(self.db) == self.model
        assert not [name for name in self.path.parent.iterdir() if ".compact-" in name.name]

    @rule()
    def back_up(self) -> None:
        target = self.path.with_name("copy")
        self.db.backup(target)
        with CrabDB.open(target, read_only=True) as copy:
            assert contents(copy) == self.model
        target.unlink()

    @rule()
    def look_from_beside(self) -> None:
        with CrabDB.open(self.path, read_only=True) as other:
            assert contents(other) == self.model

    @rule()
    def verify(self) -> None:
        found = self.db.verify()
        assert found.ok, found.problems
        assert found.keys == len(self.model)

    @rule(col=COLUMNS, after=st.none() | KEYS, reverse=st.booleans())
    def scan(self, col: int, after: bytes | None, reverse: bool) -> None:
        expected = page(self.model, col, b"", after=after, limit=20, reverse=reverse)
        assert self.db.scan(col, after=after, limit=20, reverse=reverse) == expected

    @invariant()
    def totals_agree(self) -> None:
        stats = self.db.stats()
        assert len(self.db) == stats.keys == len(self.model)
        assert stats.live == live_bytes(self.model)
        assert stats.size == self.path.stat().st_size
        assert stats.compaction_error is None

    def teardown(self) -> None:
        self.work.clear()
        self.verify()
        self.db.close()
        with CrabDB.open(self.path) as again:
            assert contents(again) == self.model
            assert again.verify().ok
        self.directory.cleanup()
        self.patch.undo()


TestStepsAgainstDict = StepsAgainstDict.TestCase
TestStepsAgainstDict.settings = settings(
    max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
