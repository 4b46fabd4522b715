"""A store against a dict, through every operation, reopening and compaction."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.crabdb.model import Contents, contents, crash, live_bytes, page

from crabdb import CrabDB, Locked, Options, ReadOnly

COLUMNS = st.sampled_from([0, 1, 254])
KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from(
    [b"a", b"ab", b"a\xff", b"\xff", b"\xff\xff", b"a/b/1"]
)
VALUES = st.binary(max_size=20) | st.just(bytes(10)) | st.just(b"\0\xff\1\0\0\0f$\0\0\0" * 6)
CHANGES = st.lists(st.tuples(COLUMNS, KEYS, st.none() | VALUES), max_size=8)


class StoreAgainstDict(RuleBasedStateMachine):
    """Whatever is done to both, they hold the same."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "store.crmem"
        self.options = Options(compact_min=200, compact_at=0.6)
        self.db = CrabDB.open(self.path, options=self.options)
        self.model: Contents = {}

    @rule(col=COLUMNS, key=KEYS, value=VALUES)
    def put(self, col: int, key: bytes, value: bytes) -> None:
        self.db.put(col, key, value)
        self.model[col, key] = value
        assert self.db.get(col, key) == value

    @rule(col=COLUMNS, key=KEYS)
    def delete(self, col: int, key: bytes) -> None:
        assert self.db.delete(col, key) == (self.model.pop((col, key), None) is not None)
        assert self.db.get(col, key) is None

    @rule(changes=CHANGES)
    def batch(self, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        with self.db.batch() as batch:
            for col, key, value in changes:
                if value is None:
                    batch.delete(col, key)
                    self.model.pop((col, key), None)
                else:
                    batch.put(col, key, value)
                    self.model[col, key] = value

    @rule(changes=CHANGES)
    def dropped_batch(self, changes: list[tuple[int, bytes, bytes | None]]) -> None:
        with pytest.raises(KeyError), self.db.batch() as batch:
            for col, key, value in changes:
                batch.delete(col, key) if value is None else batch.put(col, key, value)
            raise KeyError

    @rule(
        col=COLUMNS,
        prefix=KEYS | st.just(b""),
        after=st.none() | KEYS | st.just(b""),
        limit=st.none() | st.integers(0, 5),
        reverse=st.booleans(),
    )
    def scan(self, col: int, prefix: bytes, after: bytes | None, limit: int | None, reverse: bool) -> None:
        expected = page(self.model, col, prefix, after=after, limit=limit, reverse=reverse)
        assert self.db.scan(col, prefix, after=after, limit=limit, reverse=reverse) == expected
        keys = self.db.scan_keys(col, prefix, after=after, limit=limit, reverse=reverse)
        assert keys == [key for key, _ in expected]

    @rule(col=COLUMNS, keys=st.lists(KEYS, max_size=6))
    def get_many(self, col: int, keys: list[bytes]) -> None:
        assert self.db.get_many(col, keys) == [self.model.get((col, key)) for key in keys]

    @rule()
    def checkpoint(self) -> None:
        self.db.checkpoint()
        assert self.db.stats().durable == self.db.stats().size

    @rule()
    def compact(self) -> None:
        self.db.compact()
        assert self.db.stats().dead < 400

    @rule(checkpointing=st.booleans())
    def reopen(self, checkpointing: bool) -> None:
        before = self.db.stats()
        if checkpointing:
            self.db.close()
        else:
            crash(self.db)
        self.db = CrabDB.open(self.path, options=self.options, create=False)
        after = self.db.stats()
        assert (after.live, after.keys) == (before.live, before.keys)
        if not checkpointing:
            assert (after.size, after.dead, after.tail) == (before.size, before.dead, before.tail)

    @rule()
    def look_from_beside(self) -> None:
        with CrabDB.open(self.path, read_only=True) as other:
            assert contents(other) == self.model
            with pytest.raises(ReadOnly):
                other.put(0, b"k", b"v")
        with pytest.raises(Locked):
            CrabDB.open(self.path)

    @invariant()
    def totals_agree(self) -> None:
        stats = self.db.stats()
        assert len(self.db) == stats.keys == len(self.model)
        assert stats.live == live_bytes(self.model)
        assert stats.size == self.path.stat().st_size

    def teardown(self) -> None:
        assert contents(self.db) == self.model
        verification = self.db.verify()
        assert verification.ok, verification.problems
        self.db.close()
        self.directory.cleanup()


TestStoreAgainstDict = StoreAgainstDict.TestCase
TestStoreAgainstDict.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
