"""PackedText: text search over packed postings, for a store with one writer.

A message's document is one small row in the message's own commit. Rows that have come together are sealed into
a segment, and segments are merged, by a task between the commits; searches read both. What is found, and with
which scores, is what `KeyedText` says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from crabdb import CrabDB, CrabDBError

from ....store.batch import Batch, Column, Slot
from ....store.bm25 import Analysis, Bm25, Term, query_terms, tokens
from ....store.errors import InvalidArgument
from ....store.kv import KVStorage
from ....store.records import encode
from ....store.text import (
    Attrs,
    GroupHits,
    Hits,
    Scale,
    TextSearch,
    Where,
    require_limit,
    require_query,
    require_weight,
)
from .cache import Cache
from .ranking import GroupScores, Query, best_documents, best_groups
from .rows import ALL, NEW, ONE, Fresh
from .state import IndexState
from .upkeep import Upkeep

__all__ = ["PackedText"]

_CACHED = 96 << 20
"""Bytes of postings and keys that stay unpacked."""


class PackedText(TextSearch):
    """Text search over a CrabDB.

    Where another process `holds` the store, this one stages documents for it, and opens no index to do so.
    """

    layout = "packed-1"

    def __init__(
        self,
        kv: KVStorage,
        db: CrabDB,
        bm25: Bm25 | None = None,
        analysis: Analysis | None = None,
        *,
        holds: bool = True,
    ) -> None:
        super().__init__(kv, bm25, analysis)
        self._db = db
        self._realm = kv.prefix()
        self._root = kv.prefix("idx", "text")
        self._cache = Cache(_CACHED)
        self._indexes: dict[bytes, _Index] = {}
        self._task: asyncio.Task[None] | None = None
        self._holds = holds
        self._rewritten = False
        """Whether a commit wrote rows that only the index itself writes: somebody builds it anew."""
        self._view = asyncio.Lock()  # whoever has it sees the store as of one commit
        self.trouble: CrabDBError | None = None
        """What stopped the last work on an index, which is tried again after the next commit."""

    # -- what a batch is given ----------------------------------------------------------------------------

    async def index(
        self,
        batch: Batch,
        ix: str,
        key: bytes,
        text: str,
        *,
        weight: float = 1.0,
        attrs: Attrs | None = None,
        group: int = 0,
    ) -> None:
        require_weight(weight)
        await self.conform(batch)
        terms = Counter(tokens(text))
        if not terms:
            await self.drop(batch, ix, key)
            return
        if self._holds:
            self._require_depth(ix, group)
        fresh = Fresh(terms=dict(terms), weight=weight, group=group, attrs=dict(attrs or {}))
        batch.put(Column.TEXT, self._home(ix) + NEW + self._doc(key), encode(fresh))

    async def drop(self, batch: Batch, ix: str, key: bytes) -> None:
        await self.conform()
        home, doc = self._home(ix), self._doc(key)
        recent = await batch.get(Column.TEXT, home + NEW + doc) is not None
        if recent:
            batch.delete(Column.TEXT, home + NEW + doc)
        # A recent document may be sealed before the batch is committed.
        if recent or not self._holds or self._index(ix).state.sealed.holds(doc):
            batch.put(Column.TEXT, home + ONE + doc, b"")

    async def drop_prefix(self, batch: Batch, ix: str, prefix: bytes) -> None:
        await self.conform()
        home, docs = self._home(ix), self._doc(prefix)
        for name in await batch.scan_keys(Column.TEXT, home + NEW + docs):
            batch.delete(Column.TEXT, name)
        batch.put(Column.TEXT, home + ALL + docs, b"")

    # -- what is asked ------------------------------------------------------------------------------------

    async def search(self, ix: str, query: str, limit: int, where: Where | None = None) -> Hits:
        terms = query_terms(require_query(query))
        require_limit(limit)
        async with self._view:
            await self._read_ahead(ix, terms)
            with _wide():
                return best_documents(self._query(ix, terms, where), limit, self._realm)

    async def rank(
        self, query: str, scales: Sequence[Scale], limit: int, where: Where | None = None
    ) -> GroupHits:
        terms = query_terms(require_query(query))
        require_limit(limit)
        async with self._view:
            for scale in scales:
                await self._read_ahead(scale.ix, terms)
            # From here on nothing else runs, so all indexes are as of one moment.
            with _wide():
                scores = [GroupScores(self._query(scale.ix, terms, where), scale) for scale in scales]
                return best_groups(scores, limit, self._realm)

    async def _read_ahead(self, ix: str, terms: Sequence[Term]) -> None:
        """Have the postings at hand. What is read for the first time takes milliseconds: others run between."""
        await self.conform()
        for segment in self._index(ix).state.segments:
            if segment.read_ahead(terms, self._analysis):
                await asyncio.sleep(0)

    def _query(self, ix: str, terms: Sequence[Term], where: Where | None) -> Query:
        state = self._index(ix).state
        state.catch_up()
        state.recent.catch_up()
        return Query(state, terms, where, self._bm25, self._analysis)

    # -- what has been committed --------------------------------------------------------------------------

    def note(self, writes: Mapping[Slot, bytes | None]) -> None:
        """The store has committed these writes."""
        for (col, key), value in writes.items():
            if col is Column.TEXT and key.startswith(self._root):
                ix, _, name = key[len(self._root) :].partition(b"/")
                if not name.startswith((NEW, ONE, ALL)):
                    self._rewritten = True
                elif ix in self._indexes:
                    self._indexes[ix].state.note(name, value)
                elif value is not None:
                    self._at(ix)  # another process staged it: whoever holds the store seals it, too

    async def keep_up(self) -> None:
        """Have a task seal and merge what is due; wait for it if it has fallen behind."""
        if self._rewritten:
            self._rewritten = False
            self._conforms = False
            await self.stop()
            self._indexes.clear()
        due = [index.upkeep for index in self._indexes.values() if index.upkeep.seal_due]
        if not due:
            return
        if self._task is None or self._task.done():
            if self._task is not None:
                self._task.result()
            self._task = asyncio.create_task(self._work())
        # The task works in the turns that this gives it.
        while any(upkeep.late for upkeep in due) and not self._task.done():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def purge(self) -> None:
        """Leave no word in the index that only documents which are no more had."""
        await self.conform()
        await self.stop()
        for ix in self._stored():
            await _take(self._at(ix).upkeep.purge())

    async def stop(self) -> None:
        """End the task that seals and merges; what it has not listed yet is swept when the store is opened."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def refreshed(self, refresh: Callable[[], bool]) -> bool:
        """Let `refresh` show another commit of the store, in a thread, and read everything anew if it does."""
        async with self._view:
            changed = await asyncio.to_thread(refresh)
            if changed:
                self._indexes.clear()
            return changed

    async def clear(self) -> None:
        await self.stop()
        self._indexes.clear()
        await self._kv.delete_prefix(Column.TEXT, self._root)

    async def _work(self) -> None:
        self.trouble = None
        try:
            for index in list(self._indexes.values()):
                await _take(index.upkeep.steps())
        except CrabDBError as error:
            # A disk that is full or broken is told to whoever writes next; the rows so far are listed nowhere.
            self.trouble = error

    # -- indexes ------------------------------------------------------------------------------------------

    def _require_depth(self, ix: str, group: int) -> None:
        state = self._index(ix).state
        if state.docs and group != state.depth:
            raise InvalidArgument("group", group, f"is {state.depth} for every other document of {ix!r}")

    def _index(self, ix: str) -> _Index:
        return self._at(self._kv.prefix(ix)[len(self._realm) : -1])

    def _at(self, ix: bytes) -> _Index:
        """The index of this name, as it stands in keys."""
        found = self._indexes.get(ix)
        if found is None:
            rows = _Rows(self._db, self._root + ix + b"/")
            state = IndexState(rows, self._cache)
            found = self._indexes[ix] = _Index(state, Upkeep(state, rows))
        return found

    def _stored(self) -> list[bytes]:
        """The names of all indexes that have rows."""
        names: list[bytes] = []
        after: bytes | None = None
        while found := self._db.scan_keys(Column.TEXT, self._root, after=after, limit=1):
            names.append(found[0][len(self._root) :].partition(b"/")[0])
            after = self._root + names[-1] + b"/\xff"
        return names

    def _home(self, ix: str) -> bytes:
        return self._kv.prefix("idx", "text", ix)

    def _doc(self, key: bytes) -> bytes:
        return key[len(self._realm) :]


@dataclass(frozen=True)
class _Index:
    state: IndexState
    upkeep: Upkeep


class _Rows:
    """The rows of one index in a CrabDB."""

    def __init__(self, db: CrabDB, home: bytes) -> None:
        self._db = db
        self._home = home

    def get(self, name: bytes) -> bytes | None:
        return self._db.get(Column.TEXT, self._home + name)

    def scan(self, below: bytes) -> list[tuple[bytes, bytes]]:
        found = self._db.scan(Column.TEXT, self._home + below)
        return [(key[len(self._home) :], value) for key, value in found]

    def names(self, below: bytes, after: bytes | None, limit: int) -> list[bytes]:
        start = None if after is None else self._home + after
        keys = self._db.scan_keys(Column.TEXT, self._home + below, after=start, limit=limit)
        return [key[len(self._home) :] for key in keys]

    def write(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        if changes:
            self._db.commit([(Column.TEXT, self._home + name, value) for name, value in changes], wait=False)


async def _take(steps: Iterator[None]) -> None:
    """Take all steps, and let other tasks run after each."""
    for _ in steps:
        await asyncio.sleep(0)


def _wide() -> np.errstate:
    """A weight may be as large as a float can be, and a score infinite: so it is in the specification."""
    return np.errstate(over="ignore", invalid="ignore")
