"""All segments of an index as one row of documents: each segment's ordinals follow the ones of the segment before.

So a search costs the same few numpy calls whether there is one segment or a dozen. Made anew when the segments
change; documents only die in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, count

import numpy as np

from ....store.bm25 import Analysis, Term
from ....store.text import Between, Where
from .arrays import Bools, Floats, Ints, Numbers, distinct, narrowed
from .cache import Cache
from .groups import GroupTable
from .hashes import group_hashes, key_hashes
from .lists import Docs, Pinned, PostingList, Singles, concatenated
from .segment import Segment

__all__ = ["Sealed"]

_numbers = count()


class Sealed:
    """Segments, end to end."""

    def __init__(self, segments: Sequence[Segment], depth: int, cache: Cache) -> None:
        self.segments = segments
        self._depth = depth  # parts of a key that name its group
        self.starts = [0, *accumulate(segment.docs for segment in segments)]
        """Where each segment starts, and the end."""
        self._cache = cache
        self._number = next(_numbers)
        self._norms: tuple[Pinned, tuple[Singles, Singles]] | None = None
        self._deaths = sum(segment.deaths for segment in segments)
        self.living = self.docs - self._deaths
        """Documents that are not dead."""
        self.length = sum(segment.row.length - int(segment.dead_lengths().sum()) for segment in segments)
        """Terms in these."""

    @property
    def docs(self) -> int:
        """Ordinals in use, those of dead documents included."""
        return self.starts[-1]

    # -- changes ------------------------------------------------------------------------------------------

    def holds(self, doc: bytes) -> bool:
        """Whether a segment holds this document, dead or alive."""
        hashes = key_hashes([doc])
        return any(len(segment.find([doc], hashes)) for segment in self.segments)

    def remove(self, docs: Sequence[bytes]) -> None:
        """These documents are no more: removed, or replaced by recent ones."""
        keys, groups = key_hashes(docs), group_hashes(docs, self._depth)
        for at, segment in enumerate(self.segments):
            # Most segments have nothing of a session's: the hashes of all their keys need not be read for that.
            if groups is None or segment.groups.have(groups).any():
                self._bury(at, segment.find(docs, keys))

    def remove_below(self, prefix: bytes) -> None:
        """The documents whose keys start with `prefix` are no more."""
        for at, segment in enumerate(self.segments):
            self._bury(at, segment.below(prefix))

    def _bury(self, at: int, ordinals: Ints) -> None:
        segment = self.segments[at]
        killed = segment.kill(ordinals)
        if not len(killed):
            return
        lengths = segment.lengths[killed].astype(np.int64)
        self._deaths += len(killed)
        self.living -= len(killed)
        self.length -= int(lengths.sum())
        if "groups" in self.__dict__:
            self.groups.bury(self.starts[at] + killed, lengths)

    # -- what a search asks -------------------------------------------------------------------------------

    @cached_property
    def lengths(self) -> Numbers:
        """Terms in each document."""
        return np.concatenate([np.empty(0, np.uint8), *(segment.lengths for segment in self.segments)])

    def weights(self, ordinals: Docs | Ints) -> Floats:
        """The weight of each of these documents."""
        table, codes = self._weights
        return table[codes[ordinals]]

    def norms(self, pinned: Pinned) -> tuple[Singles, Singles]:
        """What scales each document's frequencies, and what holds them back."""
        if self._norms is None or self._norms[0] != pinned:
            table, codes = self._weights
            self._norms = (pinned, pinned.norms(table[codes], self.lengths))
        return self._norms[1]

    def passing(self, where: Where) -> Bools:
        """Which documents meet every condition."""
        mask = np.ones(self.docs, np.bool_)
        for name, condition in where.items():
            mask &= self._meeting(name, condition)
        return mask

    def _meeting(self, name: str, condition: str | Between) -> Bools:
        slot = ("meeting", self._number, name, condition)
        found: Bools | None = self._cache.get(slot)
        if found is None:
            masks = [segment.meeting(name, condition) for segment in self.segments]
            found = np.concatenate([np.empty(0, np.bool_), *masks])
            self._cache.put(slot, found, size=found.nbytes)
        return found

    def postings(self, term: Term, analysis: Analysis) -> PostingList | None:
        """The live documents that hold a word which `term` means."""
        slot = ("all", self._number, term, analysis)
        found: PostingList | None = self._cache.get(slot)
        if found is None or found.deaths != self._deaths:
            lists = [segment.postings(term, analysis) for segment in self.segments]
            found = concatenated(lists, self.starts, self._deaths)
            self._cache.put(slot, found, size=found.size)
        return found if len(found.docs) else None

    def key(self, ordinal: int) -> bytes:
        """The key of one document."""
        segment, own = self._locate(ordinal)
        return segment.key(own)

    @cached_property
    def groups(self) -> GroupTable:
        """The groups of the documents."""
        return GroupTable(self.segments, self.starts)

    @cached_property
    def _weights(self) -> tuple[Floats, Numbers]:
        own = [segment.weight_codes for segment in self.segments]
        table = distinct([np.empty(0, np.float64), *(np.sort(weights) for weights, _ in own)])
        codes = [narrowed(np.searchsorted(table, weights))[places] for weights, places in own]
        return table, np.concatenate([np.empty(0, np.uint8), *codes])

    def _locate(self, ordinal: int) -> tuple[Segment, int]:
        at = bisect_right(self.starts, ordinal) - 1
        return self.segments[at], ordinal - self.starts[at]
