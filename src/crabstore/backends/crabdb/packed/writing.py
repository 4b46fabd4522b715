"""Writes a segment: documents in the order of their keys, then their postings in the order of terms.

Makes rows, and leaves it to others to commit them: until the manifest lists the segment it does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .arrays import Floats, Ints, Numbers, narrowed, pack_array, pack_strings
from .columns import pack_column
from .postings import BLOCK, Postings, blocks, joined, pack_block
from .rows import KEYS, SegmentRow, keys_row, post_row, segment_home

__all__ = ["SegmentWriter"]

Row = tuple[bytes, bytes]


class SegmentWriter:
    """The rows of one segment, in the making."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.docs = 0
        """Documents so far."""
        self._home = segment_home(number)
        self._rows: list[Row] = []
        self._keys: list[bytes] = []
        self._attrs: list[str] = []
        self._pending: list[Postings] = []
        self._waiting = 0
        self._firsts: list[bytes] = []
        self._postings = 0
        self._length = 0

    def take(self) -> list[Row]:
        """The rows that were made since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def add_keys(self, keys: Sequence[bytes]) -> None:
        """The next documents: their keys ascend."""
        self.docs += len(keys)
        self._keys.extend(keys)
        while len(self._keys) >= KEYS:
            self._put_keys()

    def end_keys(self, hashes: Numbers, ordinals: Numbers) -> None:
        """There are no more documents: the hash of each key, and whose it is; runs that ascend cost least."""
        if self._keys:
            self._put_keys()
        order = np.argsort(hashes, kind="stable")
        self._put(b"hash", pack_array(hashes[order]) + pack_array(narrowed(ordinals[order])))

    def add_docs(self, lengths: Ints, weights: Floats, codes: Ints) -> None:
        """The length of each document, the distinct weights, and which of them each document has."""
        self._length = int(lengths.sum())
        packed = (narrowed(lengths), weights.astype("<f8"), narrowed(codes))
        self._put(b"docs", b"".join(map(pack_array, packed)))

    def add_groups(self, starts: Ints, hashes: Numbers, lengths: Ints) -> None:
        """Where groups start, the hash of each, and the length of each document."""
        sums = np.add.reduceat(lengths, starts) if len(starts) else lengths[:0]
        self._put(b"groups", b"".join(map(pack_array, (narrowed(starts), hashes, narrowed(sums)))))

    def add_column(self, name: str, packed: bytes) -> None:
        """The values of one attribute."""
        self._attrs.append(name)
        self._put(b"attr/" + name.encode(), packed)

    def add_values(self, name: str, values: Sequence[str | None]) -> None:
        """The values of one attribute, by document."""
        self.add_column(name, pack_column(values))

    def add_postings(self, postings: Postings) -> None:
        """The next terms."""
        if not len(postings.docs):
            return
        self._pending.append(postings)
        self._waiting += len(postings.docs)
        self._postings += len(postings.docs)
        if self._waiting >= 2 * BLOCK:
            *full, rest = blocks(joined(self._pending))
            self._put_blocks(full)
            self._pending, self._waiting = [rest], len(rest.docs)

    def end(self) -> SegmentRow:
        """There are no more postings: how the manifest is to name the segment."""
        if self._pending:
            self._put_blocks(blocks(joined(self._pending)))
        self._put(b"terms", pack_strings(self._firsts))
        return SegmentRow(
            id=self.number, docs=self.docs, length=self._length, postings=self._postings, attrs=self._attrs
        )

    def _put_keys(self) -> None:
        block = (self.docs - len(self._keys)) // KEYS
        self._put(keys_row(block), pack_strings(self._keys[:KEYS]))
        del self._keys[:KEYS]

    def _put_blocks(self, parts: Iterable[Postings]) -> None:
        for part in parts:
            self._put(post_row(len(self._firsts)), pack_block(part))
            self._firsts.append(part.terms[0])

    def _put(self, name: bytes, value: bytes) -> None:
        self._rows.append((self._home + name, value))
