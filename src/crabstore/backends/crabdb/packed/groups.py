"""Which group each document of an index is in, across its segments, and how large the groups are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arrays import Ints, distinct, looked_up
from .hashes import Hashes
from .lists import Places
from .recent import Recent
from .segment import Segment

__all__ = ["GroupTable", "Sizes"]


class GroupTable:
    """The groups of some segments, numbered. Made anew when the segments change; deaths are told to it."""

    def __init__(self, segments: Sequence[Segment], starts: Sequence[int]) -> None:
        hashes = [segment.groups.hashes.astype(np.uint64) for segment in segments]
        every = np.concatenate([np.empty(0, np.uint64), *hashes])
        self.hashes: Hashes = distinct([np.sort(every), every[:0]])
        """What each group is told apart by, ascending."""
        self._places = np.searchsorted(self.hashes, every)
        self._order = np.argsort(self._places, kind="stable")
        self._ascending = self._places[self._order]
        own = [start + segment.groups.starts for segment, start in zip(segments, starts, strict=False)]
        self._starts = np.concatenate([np.empty(0, np.int64), *own])
        self._ends = np.append(self._starts[1:], starts[-1])
        self.members: Places = np.repeat(self._places, self._ends - self._starts).astype(np.int32)
        """The group of each document."""
        self._joined: tuple[tuple[Recent, int], tuple[Places, Sizes]] | None = None
        self.docs = np.zeros(len(self.hashes), np.int64)
        """Live documents in each group."""
        self.lengths = np.zeros(len(self.hashes), np.int64)
        """Terms in them."""
        np.add.at(self.docs, self._places, self._ends - self._starts)
        sums = [segment.groups.lengths.astype(np.int64) for segment in segments]
        np.add.at(self.lengths, self._places, np.concatenate([np.empty(0, np.int64), *sums]))
        for segment, start in zip(segments, starts, strict=False):
            if segment.deaths:
                self.bury(start + np.flatnonzero(~segment.alive), segment.dead_lengths())

    def runs(self, groups: Ints) -> tuple[Ints, Ints]:
        """Where the runs of documents of these groups start and end, in the order of documents."""
        first = np.searchsorted(self._ascending, groups).tolist()
        stop = np.searchsorted(self._ascending, groups, side="right").tolist()
        own = [self._order[at:end] for at, end in zip(first, stop, strict=True)]
        found = np.sort(np.concatenate([self._order[:0], *own]))
        return self._starts[found], self._ends[found]

    def bury(self, ordinals: Ints, lengths: Ints) -> None:
        """Count documents out that have died, and the terms in each."""
        self._joined = None
        places = self.members[ordinals]
        np.subtract.at(self.docs, places, 1)
        np.subtract.at(self.lengths, places, lengths)

    def with_recent(self, recent: Recent) -> tuple[Places, Sizes]:
        """The group of each recent document, and all groups as they are with these.

        Groups that no segment has are numbered behind the others.
        """
        asked = (recent, recent.version)
        if self._joined is None or self._joined[0] != asked:
            self._joined = (asked, self._join(recent))
        return self._joined[1]

    def _join(self, recent: Recent) -> tuple[Places, Sizes]:
        if not recent.docs:
            return np.empty(0, np.int32), Sizes(self.docs, self.lengths, self.hashes, self.hashes[:0])
        own = np.array(recent.groups(), np.uint64)
        places, known = looked_up(self.hashes, own)
        new = distinct([np.sort(own[~known]), np.empty(0, np.uint64)])
        places[~known] = len(self.hashes) + np.searchsorted(new, own[~known])
        docs = np.concatenate([self.docs, np.zeros(len(new), np.int64)])
        lengths = np.concatenate([self.lengths, np.zeros(len(new), np.int64)])
        alive = recent.alive
        np.add.at(docs, places[alive], 1)
        np.add.at(lengths, places[alive], recent.lengths[alive].astype(np.int64))
        return places.astype(np.int32), Sizes(docs, lengths, self.hashes, new)


@dataclass(frozen=True)
class Sizes:
    """How large each group is, and which it is."""

    docs: Ints
    lengths: Ints
    known: Hashes
    """The hashes of the groups that segments have, ascending; these are numbered first."""
    new: Hashes
    """The hashes of the others, ascending."""

    def hashes(self, places: Ints) -> Hashes:
        """What the groups with these numbers are told apart by."""
        return np.concatenate([self.known, self.new])[places] if len(self.new) else self.known[places]

    def places(self, wanted: Hashes) -> Ints:
        """The number of the group of each hash; -1 if there is none."""
        found = np.full(len(wanted), -1)
        for start, hashes in ((0, self.known), (len(self.known), self.new)):
            at, there = looked_up(hashes, wanted)
            found[there] = start + at[there]
        return found
