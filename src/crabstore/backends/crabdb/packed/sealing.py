"""Makes segments: of recent documents (a seal), and of other segments (a merge), in steps of a few milliseconds.

Each step yields the rows that it made. What dies while the steps are taken is no concern of theirs: whoever
lists the new segment says which of its documents are dead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress

import numpy as np

from ....store.text import group_of
from .arrays import Bools, Floats, Ints, Numbers, run_starts
from .columns import merged_column
from .hashes import group_runs, key_hashes
from .lists import Docs
from .postings import Postings
from .rows import KEYS, Fresh
from .segment import Segment
from .writing import Row, SegmentWriter

__all__ = ["Merge", "seal"]

_GONE = np.uint32(0xFFFFFFFF)
_STEP = 256
"""Documents unpacked in one step of a seal."""
_BLOCKS = 8
"""Blocks of postings unpacked in one step of a merge."""


def seal(recent: Mapping[bytes, Fresh], writer: SegmentWriter) -> Iterator[list[Row]]:
    """Write the segment of these documents. Yields rows after each step."""
    keys = sorted(recent)
    docs = [recent[key] for key in keys]
    writer.add_keys(keys)
    writer.end_keys(key_hashes(keys), np.arange(len(keys), dtype=np.uint32))
    yield writer.take()
    lengths = np.array([sum(doc.terms.values()) for doc in docs], np.int64)
    weights, codes = np.unique(np.array([doc.weight for doc in docs], np.float64), return_inverse=True)
    writer.add_docs(lengths, weights, codes)
    runs = group_runs(group_of(key, doc.group) for key, doc in zip(keys, docs, strict=True))
    writer.add_groups(*runs, lengths)
    for name in sorted({name for doc in docs for name in doc.attrs}):
        writer.add_values(name, [doc.attrs.get(name) for doc in docs])
        yield writer.take()
    numbers: dict[str, int] = {}
    pieces: list[tuple[Ints, Ints, Ints]] = []
    for at in range(0, len(docs), _STEP):
        pieces.append(_unpacked(docs[at : at + _STEP], at, numbers))
        yield []
    terms = sorted(term.encode() for term in numbers)
    yield []
    renamed = np.empty(len(terms), np.int64)
    renamed[[numbers[term.decode()] for term in terms]] = np.arange(len(terms))
    of_posting, ordinals, tfs = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    yield []
    writer.add_postings(_ordered(terms, renamed[of_posting], ordinals, tfs))
    yield writer.take()


def _unpacked(docs: Sequence[Fresh], start: int, numbers: dict[str, int]) -> tuple[Ints, Ints, Ints]:
    """Term number, ordinal and frequency of each posting; new terms are numbered as they come."""
    terms = [numbers.setdefault(term, len(numbers)) for doc in docs for term in doc.terms]
    tfs = [tf for doc in docs for tf in doc.terms.values()]
    ordinals = np.repeat(np.arange(start, start + len(docs)), [len(doc.terms) for doc in docs])
    return np.array(terms, np.int64), ordinals, np.array(tfs, np.int64)


def _ordered(terms: Sequence[bytes], of_posting: Ints, ordinals: Ints, tfs: Ints) -> Postings:
    """Postings in the order of terms and ordinals, given for each the place of its term; terms without any go."""
    # The stable sort merges runs that ascend already, of which there are few.
    order = np.argsort(of_posting << 32 | ordinals, kind="stable")
    lengths = np.bincount(of_posting, minlength=len(terms))
    held = lengths > 0
    return Postings(
        list(compress(terms, held.tolist())),
        lengths[held],
        ordinals[order].astype(np.uint32),
        tfs[order].astype(np.uint32),
    )


class Merge:
    """One segment of several: the documents that were alive when it began."""

    def __init__(self, segments: Sequence[Segment], writer: SegmentWriter) -> None:
        self._segments = segments
        self._writer = writer
        self._alive = [segment.alive.copy() for segment in segments]
        self._places = [np.full(segment.docs, _GONE) for segment in segments]

    def steps(self) -> Iterator[list[Row]]:
        """Write the segment. Yields rows after each step."""
        for merged in _merged_keys(self._segments, self._alive, self._places):
            self._writer.add_keys(merged)
            yield self._writer.take()
        yield from self._documents()
        for postings in _merged_postings(self._segments, self._places):
            if postings is not None:
                self._writer.add_postings(postings)
            yield self._writer.take()

    def dead(self) -> Ints:
        """Which documents of the new segment have died since it began."""
        died = [
            places[alive & ~segment.alive]
            for segment, alive, places in zip(self._segments, self._alive, self._places, strict=True)
        ]
        return np.sort(np.concatenate(died)).astype(np.int64)

    def _documents(self) -> Iterator[list[Row]]:
        count = self._writer.docs
        moves = [(np.flatnonzero(places != _GONE), places) for places in self._places]
        parts = [
            (segment, old, places[old].astype(np.int64))
            for segment, (old, places) in zip(self._segments, moves, strict=True)
        ]
        yield from self._hashes()
        lengths, codes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        weights: Floats = np.unique(np.concatenate([segment.weight_codes[0] for segment in self._segments]))
        for segment, old, new in parts:
            lengths[new] = segment.lengths[old]
            table, own = segment.weight_codes
            codes[new] = np.searchsorted(weights, table)[own[old]]
            yield []
        self._writer.add_docs(lengths, weights, codes)
        yield self._writer.take()
        groups = np.zeros(count, np.uint64)
        for segment, old, new in parts:
            groups[new] = segment.groups.by_document(segment.docs)[old]
            yield []
        starts = run_starts(groups)
        self._writer.add_groups(starts, groups[starts], lengths)
        yield self._writer.take()
        for name in sorted({name for segment in self._segments for name in segment.row.attrs}):
            columns = [(segment.column(name), old, new) for segment, old, new in parts]
            self._writer.add_column(name, merged_column(columns, count))
            yield self._writer.take()

    def _hashes(self) -> Iterator[list[Row]]:
        hashes: list[Numbers] = []
        places: list[Docs] = []
        for segment, moved in zip(self._segments, self._places, strict=True):
            own, whose = segment.hashes
            new = moved[whose]
            hashes.append(own[new != _GONE])
            places.append(new[new != _GONE])
            yield []
        self._writer.end_keys(np.concatenate(hashes), np.concatenate(places))
        yield self._writer.take()


def _merged_keys(
    segments: Sequence[Segment],
    alive: Sequence[Bools],
    places: Sequence[Docs],
) -> Iterator[list[bytes]]:
    """The keys of live documents in order, some at a time; `places` is told where each document goes."""
    streams = [_Keys(*parts) for parts in zip(segments, alive, places, strict=True)]
    count = 0
    while ready := [stream for stream in streams if stream.fill()]:
        # Every stream's keys up to the first one's end are at hand.
        bound = min(stream.keys[-1] for stream in ready)
        taken = [(stream.places, *stream.take(bound)) for stream in ready]
        merged = sorted(chain.from_iterable(keys for _, keys, _ in taken))
        place = {key: at for at, key in enumerate(merged, count)}
        for table, keys, ordinals in taken:
            table[ordinals] = np.fromiter(map(place.__getitem__, keys), np.uint32, len(keys))
        count += len(merged)
        yield merged


class _Keys:
    """The keys of a segment's live documents, a row at a time."""

    def __init__(self, segment: Segment, alive: Bools, places: Docs) -> None:
        self._segment = segment
        self.places = places
        self._alive = alive
        self._next = 0
        self.keys: list[bytes] = []
        self._ordinals = np.empty(0, np.int64)

    def fill(self) -> bool:
        """Have keys at hand, unless all were taken."""
        while not self.keys and self._next * KEYS < self._segment.docs:
            start = self._next * KEYS
            mask = self._alive[start : start + KEYS]
            self.keys = list(compress(self._segment.read_keys(self._next), mask.tolist()))
            self._ordinals = start + np.flatnonzero(mask)
            self._next += 1
        return bool(self.keys)

    def take(self, bound: bytes) -> tuple[list[bytes], Ints]:
        """The keys up to `bound`, and their ordinals."""
        count = bisect_right(self.keys, bound)
        taken = (self.keys[:count], self._ordinals[:count])
        self.keys, self._ordinals = self.keys[count:], self._ordinals[count:]
        return taken


def _merged_postings(segments: Sequence[Segment], places: Sequence[Docs]) -> Iterator[Postings | None]:
    """The postings of documents that stay, in the order of terms, some at a time.

    None where more is still to load: a word that stands everywhere fills many blocks.
    """
    streams = [_Lists(segment, table) for segment, table in zip(segments, places, strict=True)]
    loaded = 0
    while True:
        for stream in streams:
            while stream.lacks_lists():
                stream.load()
                loaded += 1
                if loaded % _BLOCKS == 0:
                    yield None
        ready = [stream for stream in streams if stream.terms]
        if not ready:
            return
        bound = min(stream.terms[-1] for stream in ready)
        yield _merged([stream.take(bound) for stream in ready])


class _Lists:
    """The postings of a segment, a block at a time and whole lists of them, at their new places."""

    def __init__(self, segment: Segment, places: Docs) -> None:
        self._segment = segment
        self._places = places
        self._next = 0
        self._parts: list[Postings] = []
        self.terms: list[bytes] = []

    def lacks_lists(self) -> bool:
        """Whether there is more to load before whole lists are at hand."""
        firsts = self._segment.firsts
        return self._next < len(firsts) and (not self.terms or firsts[self._next] == self.terms[-1])

    def load(self) -> None:
        """Unpack the next block."""
        postings = self._segment.block(self._next).all()
        self._parts.append(postings)
        self.terms.extend(postings.terms)
        self._next += 1

    def take(self, bound: bytes) -> Postings:
        """The lists of the terms up to `bound`, at their new places; one from several blocks comes in parts."""
        taken: list[Postings] = []
        rest: list[Postings] = []
        for part in self._parts:
            count = bisect_right(part.terms, bound)
            taken.append(part.cut(0, count))
            if count < len(part.terms):
                rest.append(part.cut(count, len(part.terms)))
        self._parts = rest
        self.terms = [term for part in rest for term in part.terms]
        return Postings(
            [term for part in taken for term in part.terms],
            np.concatenate([part.lengths for part in taken]),
            self._places[np.concatenate([part.docs for part in taken])],
            np.concatenate([part.tfs for part in taken]),
        )


def _merged(parts: Sequence[Postings]) -> Postings:
    terms = sorted({term for part in parts for term in part.terms})
    place = {term: at for at, term in enumerate(terms)}
    numbers = [
        np.repeat(np.fromiter(map(place.__getitem__, part.terms), np.int64, len(part.terms)), part.lengths)
        for part in parts
    ]
    of_posting, docs = np.concatenate(numbers), np.concatenate([part.docs for part in parts])
    tfs = np.concatenate([part.tfs for part in parts])
    kept = docs != _GONE
    return _ordered(terms, of_posting[kept], docs[kept].astype(np.int64), tfs[kept].astype(np.int64))
