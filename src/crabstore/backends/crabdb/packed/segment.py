"""A sealed segment: documents in the order of their keys, read in place from its rows as they are needed.

Never writes. What is read stays as long as it is small (lengths, groups); postings and keys go through a
cache that the whole index shares. Only the mask of dead documents changes, as documents are replaced and
removed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Protocol

import numpy as np

from ....store.bm25 import Analysis, Term
from ....store.errors import BadRecord
from ....store.text import Between
from .arrays import Bools, Floats, Ints, Numbers, Reader, looked_up
from .cache import Cache
from .columns import Column, read_column
from .lists import PostingList, united
from .postings import Block
from .rows import KEYS, SegmentRow, keys_row, post_row, segment_home

__all__ = ["Groups", "Segment"]


class Rows(Protocol):
    """Reads a row of the index by name."""

    def __call__(self, name: bytes, /) -> bytes | None: ...


@dataclass(frozen=True)
class Groups:
    """The runs of documents that are groups."""

    starts: Ints
    hashes: Numbers
    lengths: Numbers
    """Terms in each, those of dead documents included."""

    @cached_property
    def _ascending(self) -> Numbers:
        return np.sort(self.hashes)

    def have(self, hashes: Numbers) -> Bools:
        """Which of these groups are here."""
        return looked_up(self._ascending, hashes)[1]

    def sizes(self, docs: int) -> Ints:
        """Documents in each."""
        return np.diff(self.starts, append=docs)

    def by_document(self, docs: int) -> Numbers:
        """The hash of the group of each."""
        return np.repeat(self.hashes, self.sizes(docs))


_BLOCKS = 4
"""Blocks of postings that stay unpacked."""
_numbers = count()
"""One for each segment that was opened: what is cached of it is found by that, whatever index it is of."""


class Segment:
    """One segment. Raises BadRecord where a row is missing or is not what it must be."""

    def __init__(self, row: SegmentRow, rows: Rows, cache: Cache) -> None:
        self.row = row
        self.docs = row.docs
        self._home = segment_home(row.id)
        self._rows = rows
        self._cache = cache
        self._number = next(_numbers)
        self._columns: dict[str, Column | None] = {}
        self._blocks: dict[int, Block] = {}
        self.alive = self._read_alive()
        """Which documents are not dead."""
        self.deaths = int(self.docs - np.count_nonzero(self.alive))
        """How many are; a list that was filtered at the same count is filtered still."""
        self.recorded = self.deaths
        """How many of these its row of the dead names."""

    # -- documents ----------------------------------------------------------------------------------------

    @cached_property
    def lengths(self) -> Numbers:
        """Terms in each document."""
        return self._docs[0]

    @property
    def weight_codes(self) -> tuple[Floats, Numbers]:
        """The distinct weights, and which of them each document has."""
        return self._docs[1:]

    def dead_lengths(self) -> Ints:
        """Terms in each dead document."""
        if not self.deaths:
            return np.empty(0, np.int64)
        return self.lengths[~self.alive].astype(np.int64)

    @property
    def unrecorded(self) -> bool:
        """Whether documents have died that its row of the dead does not name."""
        return self.deaths != self.recorded

    def kill(self, ordinals: Ints) -> Ints:
        """Mark documents as dead; those that were alive."""
        killed = np.unique(ordinals[self.alive[ordinals]])
        self.alive[killed] = False
        self.deaths += len(killed)
        return killed

    @cached_property
    def groups(self) -> Groups:
        """The groups of its documents."""
        reader = self._read(b"groups")
        return Groups(reader.numbers().astype(np.int64), reader.numbers(), reader.numbers())

    def column(self, name: str) -> Column | None:
        """The values of one attribute; None if no document has it."""
        if name not in self._columns:
            found = self._row(b"attr/" + name.encode()) if name in self.row.attrs else None
            self._columns[name] = None if found is None else read_column(self._home + name.encode(), found)
        return self._columns[name]

    def meeting(self, name: str, condition: str | Between) -> Bools:
        """Which documents meet a condition on one attribute."""
        column = self.column(name)
        return np.zeros(self.docs, np.bool_) if column is None else column.matches(condition)

    # -- keys ---------------------------------------------------------------------------------------------

    def key(self, ordinal: int) -> bytes:
        """The key of one document."""
        block, place = divmod(ordinal, KEYS)
        return self.keys(block)[place]

    def keys(self, block: int) -> list[bytes]:
        """The keys of one row of them."""
        slot = (self._number, block)
        found: list[bytes] | None = self._cache.get(slot)
        if found is None:
            found = self.read_keys(block)
            self._cache.put(slot, found, size=sum(map(len, found)) + 80 * len(found))
        return found

    def read_keys(self, block: int) -> list[bytes]:
        """The same, for whoever needs it once."""
        return self._read(keys_row(block)).strings()

    def find(self, docs: Sequence[bytes], hashes: Numbers) -> Ints:
        """The ordinals of those of `docs` that are here, given the hash of each."""
        known, whose = self.hashes
        first, last = np.searchsorted(known, hashes), np.searchsorted(known, hashes, side="right")
        maybe = np.flatnonzero(first < last).tolist()
        found = [
            ordinal
            for at in maybe
            for ordinal in whose[first[at] : last[at]].tolist()
            if self.key(ordinal) == docs[at]
        ]
        return np.array(found, np.int64)

    def below(self, prefix: bytes) -> Ints:
        """The ordinals of the documents whose keys start with `prefix`."""
        start = self._place(prefix)
        stop = start
        while stop < self.docs and self.key(stop).startswith(prefix):
            stop += 1
        return np.arange(start, stop)

    def _place(self, key: bytes) -> int:
        """How many keys are before `key`."""
        return bisect_left(range(self.docs), key, key=self.key)

    # -- postings -----------------------------------------------------------------------------------------

    def read_ahead(self, terms: Sequence[Term], analysis: Analysis) -> bool:
        """Have the postings of these terms unpacked; whether any had to be read for it."""
        missing = [term for term in terms if self._cache.get(self._slot(term, analysis)) is None]
        for term in missing:
            self.postings(term, analysis)
        return bool(missing)

    def postings(self, term: Term, analysis: Analysis) -> PostingList | None:
        """The live documents that hold a word which `term` means."""
        slot = self._slot(term, analysis)
        found: PostingList | None = self._cache.get(slot)
        if found is None:
            found = united([block.some(places) for block, places in self._meant(term, analysis)])
            self._cache.put(slot, found, size=found.size)
        if found.deaths != self.deaths:
            found = found.living(self.alive, self.deaths)
            self._cache.put(slot, found, size=found.size)
        return found if len(found.docs) else None

    def _slot(self, term: Term, analysis: Analysis) -> Hashable:
        return (self._number, term, analysis)

    @cached_property
    def firsts(self) -> list[bytes]:
        """The first term of each block of postings."""
        return self._read(b"terms").strings()

    def block(self, number: int) -> Block:
        """A block of postings, as it stands."""
        name = post_row(number)
        return Block(self._home + name, self._row(name))

    def _meant(self, term: Term, analysis: Analysis) -> Iterator[tuple[Block, list[int]]]:
        """The lists of the words that `term` means, block by block."""
        for prefix in term.lookups(analysis):
            start = prefix.encode()
            last = bisect_right(self.firsts, start + b"\xff")  # no word holds that byte
            for number in range(max(bisect_left(self.firsts, start) - 1, 0), last):
                block = self._parsed(number)
                first = bisect_left(block.terms, start)
                stop = bisect_right(block.terms, start + b"\xff", first)
                words = enumerate(block.terms[first:stop], first)
                places = [at for at, word in words if term.matches(word.decode(), analysis)]
                if places:
                    yield block, places

    def _parsed(self, number: int) -> Block:
        # The last few only: what is asked for again are lists, and those are kept unpacked.
        block = self._blocks.pop(number, None) or self.block(number)
        self._blocks[number] = block
        if len(self._blocks) > _BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        return block

    # -- rows ---------------------------------------------------------------------------------------------

    @cached_property
    def _docs(self) -> tuple[Numbers, Floats, Numbers]:
        reader = self._read(b"docs")
        return reader.numbers(), reader.floats(), reader.numbers()

    @cached_property
    def hashes(self) -> tuple[Numbers, Numbers]:
        """The hash of each key, ascending, and whose it is."""
        reader = self._read(b"hash")
        return reader.numbers(), reader.numbers()

    def _read(self, name: bytes) -> Reader:
        return Reader(self._home + name, self._row(name))

    def _row(self, name: bytes) -> bytes:
        value = self._rows(self._home + name)
        if value is None:
            raise BadRecord(self._home + name, "a row of the text index is missing; run reindex")
        return value

    def _read_alive(self) -> Bools:
        mask = np.ones(self.docs, np.bool_)
        dead = self._rows(self._home + b"dead")
        if dead is not None:
            mask[Reader(self._home + b"dead", dead).numbers()] = False
        return mask
