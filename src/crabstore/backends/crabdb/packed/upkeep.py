"""The work on an index that nobody waits for: sealing what is recent, merging segments, sweeping what is unlisted.

In steps of a few milliseconds, each followed by a commit of what it made; only the last commit, of the manifest,
changes what an index is. So a crash at any write leaves rows that no manifest lists, and the next writer sweeps
them. The rows of a segment that was merged away go when the last search that reads them has let go of it.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np

from ....store.records import encode
from .arrays import Ints, narrowed, pack_array
from .recent import Recent
from .rows import ALL, NEW, ONE, Fresh, Manifest, SegmentRow, segment_home, segment_of
from .sealing import Merge, seal
from .segment import Segment
from .state import IndexRows, IndexState
from .writing import SegmentWriter

__all__ = ["FANOUT", "SEAL", "Upkeep"]

SEAL = 1024
"""Documents that are sealed at a time, and rows that opening an index reads, about."""
_TERMS = 64 * SEAL
"""Terms in recent documents from which on they are sealed, however few they are."""
FANOUT = 8
"""Segments of about one size that are merged into one. More makes writing cheaper and searching dearer."""
_SWEEP = 1024
"""Rows removed in one step."""

Change = tuple[bytes, bytes | None]


class Upkeep:
    """The work on one index, which nobody else writes."""

    def __init__(self, state: IndexState, rows: IndexRows) -> None:
        self._state = state
        self._rows = rows
        self._doomed = self._unlisted()
        self._next = max([state.manifest.next, *(number + 1 for number in self._doomed)])
        for segment in state.segments:
            self._watch(segment)

    @property
    def late(self) -> bool:
        """Whether so much waits to be sealed or merged that writers had better wait for it."""
        return self._state.unsealed >= 4 * SEAL or len(self._state.segments) >= 8 * FANOUT

    def steps(self) -> Iterator[None]:
        """Do all that is due. A seal never waits for a merge, which takes seconds where it is large."""
        while True:
            yield from self._seal_all()
            if segments := self._mergeable():
                for _ in self._merge(segments):
                    yield
                    yield from self._seal_all()
            elif self._doomed:
                yield from self._sweep()
            else:
                return

    def _seal_all(self) -> Iterator[None]:
        while self.seal_due:
            yield from self._seal()

    def purge(self) -> Iterator[None]:
        """Leave no word in any row that only documents which are no more had."""
        while self._state.unsealed:
            yield from self._seal()
        while segments := [segment for segment in self._state.segments if segment.deaths][:1]:
            yield from self._merge(segments)
        while self._doomed:
            yield from self._sweep()

    @property
    def seal_due(self) -> bool:
        """Whether enough is recent."""
        return self._state.unsealed >= SEAL or self._state.recent.size >= _TERMS

    def _mergeable(self) -> list[Segment]:
        """Segments that had better be one: of a size, or one that is mostly dead."""
        sizes: dict[int, list[Segment]] = defaultdict(list)
        for segment in self._state.segments:
            if 2 * segment.deaths > segment.docs:
                return [segment]
            sizes[_size_class(segment)].append(segment)
        # No more at a time, however many have come together: a step takes as long as there are segments.
        return next((alike[:FANOUT] for _, alike in sorted(sizes.items()) if len(alike) >= FANOUT), [])

    # -- the three kinds of work --------------------------------------------------------------------------

    def _seal(self) -> Iterator[None]:
        """Make a segment of what is recent now, and put down which documents of the others are dead."""
        state = self._state
        state.catch_up()
        sealed = dict(islice(state.recent.rows.items(), SEAL))
        row: SegmentRow | None = None
        if sealed:
            with self._new_segment() as writer:
                for made in seal(sealed, writer):
                    self._rows.write(made)
                    yield
                row = writer.end()
                self._rows.write(writer.take())
        # From here on nothing else runs until the manifest is written: what is caught up with now is all there is.
        state.catch_up()
        now = state.recent.rows
        stale = [at for at, doc in enumerate(sorted(sealed)) if now.get(doc) is not sealed[doc]]
        changes: list[Change] = [(NEW + doc, None) for doc, fresh in sealed.items() if now.get(doc) is fresh]
        changes += [(name, None) for kind in (ONE, ALL) for name, _ in self._rows.scan(kind)]
        changes += [_dead(old.row, np.flatnonzero(~old.alive)) for old in state.segments if old.unrecorded]
        if row is not None and stale:
            changes.append(_dead(row, np.array(stale)))
        self._flip(
            [], row, changes, {doc: fresh for doc, fresh in now.items() if sealed.get(doc) is not fresh}
        )
        for old in state.segments:
            old.recorded = old.deaths
        state.retractions_recorded()

    def _merge(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Make one segment of these."""
        self._state.catch_up()
        with self._new_segment() as writer:
            merge = Merge(segments, writer)
            for made in merge.steps():
                self._rows.write(made)
                yield
            row = writer.end()
            self._rows.write(writer.take())
        self._state.catch_up()
        dead = merge.dead()
        changes = [_dead(row, dead)] if len(dead) else []
        self._flip(segments, row if row.docs else None, changes, self._state.recent.rows)
        if not row.docs:
            self._doomed.append(row.id)

    def _sweep(self) -> Iterator[None]:
        """Remove the rows of a segment that is not listed."""
        number = self._doomed[-1]
        while names := self._rows.names(segment_home(number), None, _SWEEP):
            self._rows.write([(name, None) for name in names])
            yield
        self._doomed.remove(number)

    # -- the switch ---------------------------------------------------------------------------------------

    def _flip(
        self,
        gone: Sequence[Segment],
        row: SegmentRow | None,
        changes: Sequence[Change],
        recent: Mapping[bytes, Fresh],
    ) -> None:
        """Commit what the index is from now on, together with `changes`, and show it."""
        state = self._state
        kept = [segment for segment in state.segments if segment not in gone]
        listed = [*(segment.row for segment in kept), *([row] if row else [])]
        manifest = Manifest(group=state.depth, next=self._next, segments=listed)
        self._rows.write([*changes, (b"segs", encode(manifest))])
        new = [state.read_segment(row)] if row else []
        for segment in new:
            self._watch(segment)
        state.replace([*kept, *new], manifest, _recent(recent, state.recent))

    @contextmanager
    def _new_segment(self) -> Iterator[SegmentWriter]:
        """A writer with a number that no segment has had; what it wrote is swept if that fails."""
        writer = SegmentWriter(self._next)
        self._next += 1
        try:
            yield writer
        except BaseException:
            self._doomed.append(writer.number)
            raise

    def _watch(self, segment: Segment) -> None:
        """Have the rows of a segment swept when nobody reads it any more."""
        weakref.finalize(segment, self._let_go, segment.row.id).atexit = False

    def _let_go(self, number: int) -> None:
        if all(row.id != number for row in self._state.manifest.segments):
            self._doomed.append(number)

    def _unlisted(self) -> list[int]:
        """The segments that have rows and that the manifest does not list."""
        listed = {row.id for row in self._state.manifest.segments}
        found: list[int] = []
        after: bytes | None = None
        while names := self._rows.names(b"seg/", after, 1):
            number = segment_of(names[0])
            after = segment_home(number) + b"\xff"
            if number not in listed:
                found.append(number)
        return found


def _size_class(segment: Segment) -> int:
    living = segment.docs - segment.deaths
    return max(0, int(math.log(max(living, 1) / SEAL, FANOUT) + 0.01))


def _dead(row: SegmentRow, ordinals: Ints) -> Change:
    return segment_home(row.id) + b"dead", pack_array(narrowed(ordinals))


def _recent(rows: Mapping[bytes, Fresh], old: Recent) -> Recent:
    if rows is old.rows:
        return old
    recent = Recent()
    for doc, fresh in rows.items():
        recent.put(doc, fresh)
    return recent
