"""One state machine drives a dict, the volatile backend and crabdb together: they never disagree."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crabstore.backends.crabdb import CrabBackend
from crabstore.backends.volatile import VolatileBackend
from crabstore.store.backend import Backend
from crabstore.store.batch import Column
from crabstore.store.errors import Conflict

from .test_five_methods import DictBackend

T = TypeVar("T")
ROOT = b"local/"

tails = st.lists(st.sampled_from([b"a", b"b", b"/", b"\x00", b"\xff"]), min_size=1, max_size=4).map(b"".join)
keys = tails.map(lambda tail: ROOT + tail)
prefixes = st.one_of(st.just(ROOT), keys)
columns = st.sampled_from([Column.AGENT, Column.SESSION, Column.TEXT])
values = st.one_of(st.binary(max_size=30), st.just(bytes(5000)))
writes = st.lists(st.tuples(columns, keys, st.none() | values), max_size=6)


class Agreement(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store.crmem"
        self.model = DictBackend()
        self.crab = self.run(CrabBackend.open(self.path))
        self.stores: list[Backend] = [self.model, VolatileBackend(), self.crab]

    def run(self, call: Awaitable[T]) -> T:
        return self.loop.run_until_complete(call)

    def agree(self, call: Callable[[Backend], Awaitable[T]]) -> T:
        answers = [self.run(call(store)) for store in self.stores]
        assert answers[0] == answers[1] == answers[2]
        return answers[0]

    @rule(col=columns, key=keys, value=values)
    def put(self, col: Column, key: bytes, value: bytes) -> None:
        self.agree(lambda store: store.put(col, key, value))

    @rule(col=columns, key=keys)
    def delete(self, col: Column, key: bytes) -> None:
        self.agree(lambda store: store.delete(col, key))

    @rule(col=columns, some=st.lists(keys, max_size=4))
    def get(self, col: Column, some: list[bytes]) -> None:
        self.agree(lambda store: store.get_many(col, some))
        for key in some:
            self.agree(lambda store, key=key: store.get(col, key))  # type: ignore[misc]

    @rule(
        col=columns,
        prefix=prefixes,
        after=st.none() | prefixes,
        limit=st.none() | st.integers(0, 5),
        reverse=st.booleans(),
    )
    def page(self, col: Column, prefix: bytes, after: bytes | None, limit: int | None, reverse: bool) -> None:
        rows = self.agree(lambda store: store.page(col, prefix, after=after, limit=limit, reverse=reverse))
        only = self.agree(
            lambda store: store.page_keys(col, prefix, after=after, limit=limit, reverse=reverse)
        )
        assert [key for key, _ in rows] == only

    @rule(
        some=writes,
        expected=st.lists(st.tuples(columns, keys, st.none() | values), max_size=1),
        counted=st.dictionaries(st.sampled_from(["docs", "length"]), st.integers(-3, 3), max_size=2),
    )
    def commit(
        self,
        some: list[tuple[Column, bytes, bytes | None]],
        expected: list[tuple[Column, bytes, bytes | None]],
        counted: dict[str, int],
    ) -> None:
        async def write(store: Backend) -> bool:
            batch = store.batch()
            for col, key, value in some:
                batch.put(col, key, value) if value is not None else batch.delete(col, key)
            for col, key, old in expected:
                batch.expect(col, key, old)
            batch.add(Column.CONFIG, ROOT + b"counters", counted)
            try:
                await store.commit(batch)
            except Conflict:
                return False
            return True

        self.agree(write)

    @rule()
    def checkpoint(self) -> None:
        self.agree(lambda store: store.checkpoint())

    @rule()
    def compact(self) -> None:
        self.crab.db.compact()

    @precondition(lambda self: self.crab is not None)
    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.run(self.crab.checkpoint())
        self.run(self.crab.close())
        self.crab = self.run(CrabBackend.open(self.path))
        self.stores[2] = self.crab

    @invariant()
    def the_contents_are_equal(self) -> None:
        for col in (Column.AGENT, Column.SESSION, Column.TEXT, Column.CONFIG):
            self.agree(lambda store, col=col: store.scan(col, ROOT))  # type: ignore[misc]

    def teardown(self) -> None:
        self.crab.db.verify()
        self.run(self.crab.close())
        self.loop.close()
        self.folder.cleanup()


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
