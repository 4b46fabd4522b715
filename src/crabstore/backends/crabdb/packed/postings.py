"""Blocks of postings: terms with the documents that hold them, packed. Pure, no I/O.

A block holds lists of postings of ascending terms; a list that is longer than a block goes on in the next ones.
Everything in it is an array over all its lists, so that packing and unpacking cost the same few numpy calls
for one list as for a thousand.

    lists u32 | postings u32 | large u32 | size of the terms u32
    length of each list u16 | width of each list's gaps u8 (0, 1, 2 for 1, 2, 4 bytes) | first document of each u32
    gaps of the lists of width 0 u8 | of width 1 u16 | of width 2 u32
    frequency of each posting u8, 255 for 255 and more | places of these u32 | what they are u32
    terms, one a line
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....store.errors import BadRecord
from .arrays import Ints, Reader

__all__ = ["BLOCK", "Block", "Postings", "blocks", "joined", "pack_block"]

BLOCK = 8192
"""Postings in a block at most: it is read and unpacked for one term of it. Under 65,536, a list's length."""

_HEAD = struct.Struct("<IIII")
_WIDTHS = ("<u1", "<u2", "<u4")
_LARGE = 255

Docs = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Postings:
    """Lists of postings end to end: `lengths[i]` of `docs` and `tfs` are of `terms[i]`.

    Terms ascend and are distinct; so do the documents of each list.
    """

    terms: Sequence[bytes]
    lengths: Ints
    docs: Docs
    tfs: Docs

    def cut(self, start: int, stop: int) -> Postings:
        """The lists from `start` to `stop`."""
        first, last = int(self.lengths[:start].sum()), int(self.lengths[:stop].sum())
        return Postings(
            self.terms[start:stop], self.lengths[start:stop], self.docs[first:last], self.tfs[first:last]
        )


def joined(parts: Sequence[Postings]) -> Postings:
    """The lists of all `parts`, whose terms ascend from one to the next."""
    return Postings(
        [term for part in parts for term in part.terms],
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.docs for part in parts]),
        np.concatenate([part.tfs for part in parts]),
    )


def blocks(postings: Postings) -> Iterator[Postings]:
    """The same lists in parts that fit a block each; a list that fits none is cut."""
    ends = np.cumsum(postings.lengths)
    start = 0
    while start < len(postings.terms):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + BLOCK, side="right"))
        if stop == start:
            yield from _parts(postings.cut(start, start + 1))
            stop += 1
        else:
            yield postings.cut(start, stop)
        start = stop


def _parts(one: Postings) -> Iterator[Postings]:
    for at in range(0, len(one.docs), BLOCK):
        docs, tfs = one.docs[at : at + BLOCK], one.tfs[at : at + BLOCK]
        yield Postings(one.terms, np.array([len(docs)]), docs, tfs)


def pack_block(postings: Postings) -> bytes:
    """The value of a block."""
    lengths, docs, tfs = postings.lengths, postings.docs, postings.tfs
    starts = _starts(lengths)
    gaps = np.diff(docs, prepend=docs[:1])  # what stands at a list's start is no gap and not written
    gaps[starts] = 0
    widest = np.maximum.reduceat(gaps, starts)
    widths = (widest >= 1 << 8).astype(np.uint8) + (widest >= 1 << 16)
    of_posting = np.repeat(widths, lengths)
    of_posting[starts] = len(_WIDTHS)
    large = np.flatnonzero(tfs >= _LARGE)
    terms = b"\n".join(postings.terms)
    return b"".join(
        (
            _HEAD.pack(len(lengths), len(docs), len(large), len(terms)),
            lengths.astype("<u2").tobytes(),
            widths.tobytes(),
            docs[starts].astype("<u4").tobytes(),
            *(gaps[of_posting == code].astype(width).tobytes() for code, width in enumerate(_WIDTHS)),
            np.minimum(tfs, _LARGE).astype("<u1").tobytes(),
            large.astype("<u4").tobytes(),
            tfs[large].astype("<u4").tobytes(),
            terms,
        )
    )


class Block:
    """A block as it was read. Raises BadRecord, which names `key`, if it is none."""

    def __init__(self, key: bytes, value: bytes) -> None:
        reader = Reader(key, value)
        lists, postings, large, size = reader.struct(_HEAD)
        self._lengths = reader.raw("<u2", lists).astype(np.int64)
        self._widths = reader.raw("u1", lists).astype(np.uint8)
        self._firsts = reader.raw("<u4", lists).astype(np.uint32)
        if int(self._lengths.sum()) != postings or not self._lengths.all() or self._widths.max(initial=0) > 2:
            raise BadRecord(key, "the lists of a block do not add up")
        gaps = self._lengths - 1
        self._gaps = [
            reader.raw(width, int(gaps[self._widths == code].sum())).astype(np.uint32, copy=False)
            for code, width in enumerate(_WIDTHS)
        ]
        self._tfs = reader.raw("u1", postings).astype(np.uint32)
        places = reader.raw("<u4", large).astype(np.int64)
        if places.max(initial=-1) >= postings:
            raise BadRecord(key, "a frequency of a block has no posting")
        self._tfs[places] = reader.raw("<u4", large).astype(np.uint32)
        self.terms = reader.text(size).split(b"\n") if lists else []
        if len(self.terms) != lists:
            raise BadRecord(key, "a block has other terms than lists")

    def one(self, at: int) -> tuple[Docs, Docs]:
        """Documents and frequencies of one list."""
        length, width = int(self._lengths[at]), self._widths[at]
        before = self._lengths[:at]
        gap = int((before[self._widths[:at] == width] - 1).sum())
        docs = np.empty(length, np.uint32)
        docs[0] = self._firsts[at]
        docs[1:] = self._gaps[width][gap : gap + length - 1]
        start = int(before.sum())
        return np.cumsum(docs, dtype=np.uint32), self._tfs[start : start + length]

    def some(self, places: Sequence[int]) -> tuple[Docs, Docs]:
        """Documents and frequencies of some lists, end to end."""
        if len(places) == 1:
            return self.one(places[0])
        wanted = np.zeros(len(self.terms), np.bool_)
        wanted[places] = True
        every, kept = self.all(), np.repeat(wanted, self._lengths)
        return every.docs[kept], every.tfs[kept]

    def all(self) -> Postings:
        """All lists."""
        starts = _starts(self._lengths)
        of_posting = np.repeat(self._widths, self._lengths)
        of_posting[starts] = len(_WIDTHS)
        docs = np.empty(len(self._tfs), np.int64)
        for code, gaps in enumerate(self._gaps):
            docs[of_posting == code] = gaps
        # One running sum over all lists: at its start, each list steps from the last document of the one before.
        docs[starts] = self._firsts
        sums = np.cumsum(docs)
        docs = sums - np.repeat(sums[starts] - self._firsts, self._lengths)
        return Postings(self.terms, self._lengths, docs.astype(np.uint32), self._tfs)


def _starts(lengths: Ints) -> Ints:
    """Where each list starts."""
    return np.cumsum(lengths) - lengths
