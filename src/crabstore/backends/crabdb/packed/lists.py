"""A term's postings within one part of an index, ready to be scored. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .arrays import Bools, Floats, Numbers, narrowed, run_starts

__all__ = ["Docs", "Pinned", "Places", "PostingList", "Singles", "concatenated", "summed_by_group", "united"]

Docs: TypeAlias = npt.NDArray[np.uint32]
Places: TypeAlias = npt.NDArray[np.int32]
"""Numbers of groups."""
Singles: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pinned:
    """The scorer's numbers and an average length that stays while the true one moves a little: what candidates
    are chosen with, so that an appended message does not make every impact anew. Scores are never made of it.
    """

    k1: float
    b: float
    average: float

    def norms(self, weights: Floats, lengths: Numbers) -> tuple[Singles, Singles]:
        """For each document, what scales its frequencies and what holds them back."""
        held = self.k1 * (1 - self.b) + lengths.astype(np.float32) * np.float32(
            self.k1 * self.b / self.average
        )
        return (weights * (self.k1 + 1)).astype(np.float32), held.astype(np.float32)


@dataclass
class PostingList:
    """Documents, ascending, and how often each holds the term."""

    docs: Docs
    tfs: Numbers
    deaths: int = 0
    """How many documents of its segment were dead when the dead were taken out."""
    _impacts: tuple[Pinned, Singles, float] | None = field(default=None, compare=False, repr=False)

    _frequencies: tuple[Places, Places, Numbers] | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Bytes of memory, the impacts included."""
        return self.docs.nbytes + self.tfs.nbytes + 4 * len(self.docs) + 400

    def impacts(self, pinned: Pinned, norms: tuple[Singles, Singles]) -> tuple[Singles, float]:
        """What the term is worth in each document before its idf, nearly, and the most it is worth."""
        if self._impacts is None or self._impacts[0] != pinned:
            scale, held = norms
            tfs = self.tfs.astype(np.float32)
            impacts = scale[self.docs] * tfs / (tfs + held[self.docs])
            self._impacts = (pinned, impacts, float(impacts.max(initial=0.0)))
        return self._impacts[1], self._impacts[2]

    def by_group(self, members: Places) -> tuple[Places, Numbers]:
        """The groups of its documents, of which each has its number in `members`, and how often each group holds
        the term; a group can come twice.
        """
        if self._frequencies is None or self._frequencies[0] is not members:
            self._frequencies = (members, *summed_by_group(members[self.docs], self.tfs))
        return self._frequencies[1:]

    def living(self, alive: Bools, deaths: int) -> PostingList:
        """Without the documents that are dead by now."""
        kept = alive[self.docs]
        return PostingList(self.docs[kept], self.tfs[kept], deaths)


def summed_by_group(groups: Places, tfs: Numbers) -> tuple[Places, Numbers]:
    """Each run of one group, and the sum of its frequencies."""
    starts = run_starts(groups)
    return groups[starts], np.add.reduceat(tfs, starts, dtype=np.int64) if len(starts) else tfs[:0]


def concatenated(lists: Sequence[PostingList | None], starts: Sequence[int], deaths: int) -> PostingList:
    """One list of the lists of several segments, whose documents are numbered from `starts` on."""
    held = [(postings, start) for postings, start in zip(lists, starts, strict=False) if postings is not None]
    docs = [postings.docs + np.uint32(start) for postings, start in held]
    tfs = [postings.tfs for postings, _ in held]
    return PostingList(
        np.concatenate([np.empty(0, np.uint32), *docs]), np.concatenate([np.empty(0, np.uint8), *tfs]), deaths
    )


def united(lists: Sequence[tuple[Docs, Docs]]) -> PostingList:
    """One list of all: frequencies of the same document add up."""
    if not lists:
        return PostingList(np.empty(0, np.uint32), np.empty(0, np.uint8))
    docs = np.concatenate([docs for docs, _ in lists])
    tfs = np.concatenate([tfs for _, tfs in lists])
    if not (docs[1:] > docs[:-1]).all():
        order = np.argsort(docs, kind="stable")
        docs = docs[order]
        first = run_starts(docs)
        docs, tfs = docs[first], np.add.reduceat(tfs[order], first)
    return PostingList(docs, narrowed(tfs))
