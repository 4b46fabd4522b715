"""One index as it stands: its segments, its recent documents, and what every commit changed since.

The rows are the truth and this is a view of them: it is loaded from the manifest and the rows under ``new/`` and
``gone/``, and told of every row that a commit writes. Never writes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ....store.bm25 import Bm25
from ....store.records import decode
from .arrays import Ints
from .cache import Cache
from .groups import GroupTable
from .lists import Pinned
from .recent import Recent
from .rows import ALL, NEW, ONE, Fresh, Manifest, SegmentRow
from .scoring import Part
from .segment import Segment

__all__ = ["IndexRows", "IndexState"]

_DRIFT = 0.002
"""How far the average length may move before impacts are computed anew."""


class IndexRows(Protocol):
    """The rows of one index, by name."""

    def get(self, name: bytes, /) -> bytes | None:
        """One row."""

    def scan(self, below: bytes, /) -> list[tuple[bytes, bytes]]:
        """All rows whose names start so."""

    def names(self, below: bytes, after: bytes | None, limit: int, /) -> list[bytes]:
        """At most `limit` names that start so, ascending, from `after` on."""

    def write(self, changes: Sequence[tuple[bytes, bytes | None]], /) -> None:
        """Commit rows; None removes one."""


class IndexState:
    """The documents of one index."""

    def __init__(self, rows: IndexRows, cache: Cache) -> None:
        self._rows = rows
        self._cache = cache
        self._pinned: Pinned | None = None
        self._pending: dict[bytes, bytes | None] = {}
        row = rows.get(b"segs")
        self.manifest = decode(Manifest, row, b"segs") if row else Manifest()
        self.segments: list[Segment] = [self.read_segment(entry) for entry in self.manifest.segments]
        self.recent = Recent()
        self._count()
        for kind in (ALL, ONE, NEW):
            self._pending.update(rows.scan(kind))

    # -- changes ------------------------------------------------------------------------------------------

    @property
    def unsealed(self) -> int:
        """Recent documents, and rows that were not looked at yet."""
        return len(self._pending) + len(self.recent.rows)

    def read_segment(self, row: SegmentRow) -> Segment:
        """A segment that the manifest lists."""
        return Segment(row, self._rows.get, self._cache)

    def note(self, name: bytes, value: bytes | None) -> None:
        """A commit wrote this row, or removed it (None)."""
        self._pending[name] = value

    def catch_up(self) -> None:
        """Take in what was noted."""
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        replaced: list[bytes] = []
        for name, value in pending.items():
            if name.startswith(NEW):
                doc = name[len(NEW) :]
                replaced.append(doc)
                if value is None:
                    self.recent.remove(doc)
                else:
                    self.recent.put(doc, decode(Fresh, value, name))
            elif value is not None and name.startswith(ONE):
                replaced.append(name[len(ONE) :])
            elif value is not None and name.startswith(ALL):
                for segment in self.segments:
                    self._bury(segment, segment.below(name[len(ALL) :]))
        if replaced:
            for segment in self.segments:
                self._bury(segment, segment.find(replaced))

    def replace(self, segments: list[Segment], manifest: Manifest, recent: Recent) -> None:
        """What a seal or a merge has committed."""
        self.segments, self.manifest, self.recent = segments, manifest, recent
        self._count()

    def _count(self) -> None:
        self._docs = sum(segment.docs - segment.deaths for segment in self.segments)
        self._length = sum(_length(segment) for segment in self.segments)
        self._groups: GroupTable | None = None

    def holds(self, doc: bytes) -> bool:
        """Whether a segment holds this document, dead or alive."""
        return any(len(segment.find([doc])) for segment in self.segments)

    def _bury(self, segment: Segment, ordinals: Ints) -> None:
        """Documents of a segment are no more: removed, or replaced by a recent one."""
        killed = segment.kill(ordinals)
        if len(killed):
            self._docs -= len(killed)
            self._length -= int(segment.lengths[killed].sum())
            if self._groups is not None:
                self._groups.bury(segment, killed)

    # -- what searches ask --------------------------------------------------------------------------------

    @property
    def parts(self) -> list[Part]:
        """Everything that has documents, the largest first."""
        parts: list[Part] = sorted(self.segments, key=lambda segment: -segment.docs)
        return [*parts, self.recent] if self.recent.rows else parts

    @property
    def docs(self) -> int:
        """Live documents."""
        return self._docs + len(self.recent.rows)

    @property
    def length(self) -> int:
        """Terms in all of them."""
        return self._length + self.recent.length

    def pinned(self, bm25: Bm25, average: float) -> Pinned:
        """The numbers that candidates are chosen with: of an average that this one has not drifted from."""
        pinned = self._pinned
        same = pinned is not None and (pinned.k1, pinned.b) == (bm25.k1, bm25.b)
        if pinned is None or not same or abs(average / pinned.average - 1) > _DRIFT:
            pinned = self._pinned = Pinned(bm25.k1, bm25.b, average)
        return pinned

    @property
    def groups(self) -> GroupTable:
        """The groups of the segments."""
        if self._groups is None:
            self._groups = GroupTable(self.segments)
        return self._groups

    @property
    def depth(self) -> int:
        """How many parts of a key name a group."""
        fresh = next(iter(self.recent.rows.values()), None)
        return self.manifest.group or (fresh.group if fresh else 0)


def _length(segment: Segment) -> int:
    return int(np.dot(segment.lengths.astype(np.int64), segment.alive))
