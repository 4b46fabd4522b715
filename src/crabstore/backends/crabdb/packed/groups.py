"""Which group each document of an index is in, across its segments, and how large the groups are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .arrays import Ints
from .hashes import Hashes
from .recent import Recent
from .segment import Segment

__all__ = ["GroupTable"]

Places = npt.NDArray[np.int32]


class GroupTable:
    """The groups of some segments, numbered. Made anew when the segments change; deaths are told to it."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        hashes = [segment.groups.hashes.astype(np.uint64) for segment in segments]
        self._hashes: Hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]))
        self._members: dict[int, Places] = {}
        self.docs = np.zeros(len(self._hashes), np.int64)
        """Live documents in each group."""
        self.lengths = np.zeros(len(self._hashes), np.int64)
        """Terms in them."""
        for segment, own in zip(segments, hashes, strict=True):
            places = np.searchsorted(self._hashes, own)
            sizes = segment.groups.sizes(segment.docs)
            self._members[segment.row.id] = np.repeat(places, sizes).astype(np.int32)
            starts = segment.groups.starts
            living = segment.alive.astype(np.int64)
            np.add.at(self.docs, places, np.add.reduceat(living, starts))
            np.add.at(self.lengths, places, np.add.reduceat(segment.lengths * living, starts))

    def members(self, segment: Segment) -> Places:
        """The group of each document."""
        return self._members[segment.row.id]

    def bury(self, segment: Segment, ordinals: Ints) -> None:
        """Count documents out that have died."""
        places = self.members(segment)[ordinals]
        np.subtract.at(self.docs, places, 1)
        np.subtract.at(self.lengths, places, segment.lengths[ordinals].astype(np.int64))

    def with_recent(self, recent: Recent, hashes: Sequence[int]) -> tuple[Places, Ints, Ints, Hashes]:
        """With the documents of `recent`, whose groups have `hashes`: the group of each, and of all groups the
        live documents, the terms and the hashes. Groups that no segment has are numbered behind the others.
        """
        own = np.array(hashes, np.uint64)
        new = np.setdiff1d(own, self._hashes)
        places = np.searchsorted(self._hashes, own)
        fresh = np.isin(own, new)
        places[fresh] = len(self._hashes) + np.searchsorted(new, own[fresh])
        docs = np.concatenate([self.docs, np.zeros(len(new), np.int64)])
        lengths = np.concatenate([self.lengths, np.zeros(len(new), np.int64)])
        alive = recent.alive
        np.add.at(docs, places[alive], 1)
        np.add.at(lengths, places[alive], recent.lengths[alive].astype(np.int64))
        return places.astype(np.int32), docs, lengths, np.concatenate([self._hashes, new])
