"""One index as it stands: its segments, its recent documents, and what every commit changed since.

The rows are the truth and this is a view of them: it is loaded from the manifest and the rows under ``new/`` and
``gone/``, and told of every row that a commit writes. Never writes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....store.bm25 import Bm25
from ....store.records import decode
from .cache import Cache
from .lists import Pinned
from .recent import Recent
from .rows import ALL, NEW, ONE, Fresh, Manifest, SegmentRow
from .sealed import Sealed
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
        self._moved: list[bytes] = []
        self._below: list[bytes] = []
        self._retracted = 0
        row = rows.get(b"segs")
        self.manifest = decode(Manifest, row, b"segs") if row else Manifest()
        self.sealed = self._sealed([self.read_segment(entry) for entry in self.manifest.segments])
        self.recent = Recent()
        for kind in (ALL, ONE, NEW):
            for name, value in rows.scan(kind):
                self.note(name, value)

    # -- changes ------------------------------------------------------------------------------------------

    @property
    def unsealed(self) -> int:
        """Recent documents, and retractions that sealing puts down."""
        return len(self.recent.rows) + self._retracted

    def read_segment(self, row: SegmentRow) -> Segment:
        """A segment that the manifest lists."""
        return Segment(row, self._rows.get, self._cache)

    def note(self, name: bytes, value: bytes | None) -> None:
        """A commit wrote this row, or removed it (None)."""
        if name.startswith(NEW):
            doc = name[len(NEW) :]
            self._moved.append(doc)
            if value is None:
                self.recent.remove(doc)
            else:
                self.recent.put(doc, decode(Fresh, value, name))
        elif value is not None and name.startswith(ONE):
            self._moved.append(name[len(ONE) :])
            self._retracted += 1
        elif value is not None and name.startswith(ALL):
            self._below.append(name[len(ALL) :])
            self._retracted += 1

    def catch_up(self) -> None:
        """Let the segments know of what was noted: many documents are looked up at the cost of one."""
        if self._moved:
            self.sealed.remove(self._moved)
            self._moved = []
        for prefix in self._below:
            self.sealed.remove_below(prefix)
        self._below = []

    def replace(self, segments: Sequence[Segment], manifest: Manifest, recent: Recent) -> None:
        """What a seal or a merge has committed."""
        self.manifest, self.recent = manifest, recent
        self.sealed = self._sealed(segments)

    def retractions_recorded(self) -> None:
        """The rows of the dead name all that were retracted."""
        self._retracted = 0

    def _sealed(self, segments: Sequence[Segment]) -> Sealed:
        # The largest first: what it has sets the score that others must reach.
        ordered = sorted(segments, key=lambda segment: -segment.docs)
        return Sealed(ordered, self.manifest.group, self._cache)

    # -- what searches ask --------------------------------------------------------------------------------

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments."""
        return self.sealed.segments

    @property
    def docs(self) -> int:
        """Live documents."""
        return self.sealed.living + len(self.recent.rows)

    @property
    def length(self) -> int:
        """Terms in all of them."""
        return self.sealed.length + self.recent.length

    def pinned(self, bm25: Bm25, average: float) -> Pinned:
        """The numbers that candidates are chosen with: of an average that this one has not drifted from."""
        pinned = self._pinned
        same = pinned is not None and (pinned.k1, pinned.b) == (bm25.k1, bm25.b)
        if pinned is None or not same or abs(average / pinned.average - 1) > _DRIFT:
            pinned = self._pinned = Pinned(bm25.k1, bm25.b, average)
        return pinned

    @property
    def depth(self) -> int:
        """How many parts of a key name a group."""
        fresh = next(iter(self.recent.rows.values()), None)
        return self.manifest.group or (fresh.group if fresh else 0)
