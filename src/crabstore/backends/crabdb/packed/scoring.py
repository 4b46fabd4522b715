"""Finds the best documents among packed postings: candidates in float32, their scores in float64.

Candidates are chosen by impacts that are nearly right (float32, a pinned average), with a margin for what they
may be wrong by. Then the scores of the few that are left are computed in the operations and the order that the
keyed implementation has, so that both give the same bits. Lists are read from the rarest term on: once the
words that are left cannot lift a document onto the page by themselves, only documents found so far are looked
up in them (the MaxScore rule: Turtle and Flood, Query Evaluation: Strategies and Optimizations, 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ....store.bm25 import Analysis, Bm25, Term
from ....store.text import Where
from .arrays import Bools, Floats, Ints, Numbers, distinct, looked_up
from .lists import Docs, Pinned, PostingList, Singles

__all__ = ["Part", "Share", "kth_best", "margin"]

_EXACT = 4096
"""Values of which the k-th best is found exactly; of more, a bound is enough."""
_ROUNDING = 1e-5
"""What float32 may get wrong of a score: a few roundings of 6e-8 for each term."""


class Part(Protocol):
    """Documents by ordinal: a segment, or the recent ones."""

    @property
    def docs(self) -> int:
        """How many ordinals there are."""

    @property
    def lengths(self) -> Numbers: ...

    def weights(self, ordinals: Docs | Ints, /) -> Floats: ...

    def norms(self, pinned: Pinned, /) -> tuple[Singles, Singles]: ...

    def postings(self, term: Term, analysis: Analysis, /) -> PostingList | None: ...

    def passing(self, where: Where, /) -> Bools: ...

    def key(self, ordinal: int, /) -> bytes: ...


def margin(pinned: Pinned, average: float) -> float:
    """What part of itself a chosen score may be wrong by.

    A gain changes by no larger part than the average length does.
    """
    return 2 * (abs(average / pinned.average - 1) + abs(pinned.average / average - 1) + _ROUNDING)


def kth_best(values: Singles, k: int) -> float:
    """The k-th largest, or a bound below it; minus infinity where there are fewer."""
    if len(values) < k or not k:
        return -np.inf
    if len(values) > _EXACT and len(values) >= 16 * k:
        # The best of each block are values of their own: the k-th best of them is reached by k values.
        width = len(values) // max(_EXACT // 4, 4 * k)
        values = values[: len(values) // width * width].reshape(-1, width).max(axis=1)
    return float(np.partition(values, len(values) - k)[len(values) - k])


@dataclass(frozen=True)
class Share:
    """What a query finds in one part of an index."""

    part: Part
    terms: Sequence[tuple[PostingList, float]]
    """The postings of those terms of the query that stand here, with their idf, in the order of the query."""
    passing: Bools | None
    """Which documents pass the filter; None: there is none."""
    bm25: Bm25
    average: float
    pinned: Pinned
    slack: float
    """What part of itself a nearly right score may be wrong by."""

    def candidates(self, limit: int, floor: float) -> tuple[Docs, Singles]:
        """Documents that may be among the best `limit`, ascending, with what they score nearly.

        `floor` is what the last of the best is known to score at least, nearly.
        """
        if not self.terms:
            return np.empty(0, np.uint32), np.empty(0, np.float32)
        if len(self.terms) == 1:
            docs, gains = self._gains(*self.terms[0])
            kept = gains >= max(floor, kth_best(gains, limit)) * (1 - self.slack)
            return docs[kept], gains[kept]
        norms = self.part.norms(self.pinned)
        ranked = sorted(self.terms, key=lambda term: -term[1] * term[0].impacts(self.pinned, norms)[1])
        most = [idf * postings.impacts(self.pinned, norms)[1] for postings, idf in ranked]
        bounds = [*np.cumsum(most[::-1])[::-1].tolist(), 0.0]
        sums = np.zeros(self.part.docs, np.float32)
        read: list[Docs] = []
        for at, term in enumerate(ranked):
            if read and bounds[at] < floor * (1 - self.slack):
                break
            docs, gains = self._gains(*term)
            sums[docs] += gains
            read.append(docs)
            floor = max(floor, kth_best(sums[docs], limit))
        least = floor * (1 - self.slack)
        chosen = [docs[sums[docs] >= least - bounds[len(read)]] for docs in read]
        docs = distinct(chosen)
        gains = sums[docs]
        for postings, idf in ranked[len(read) :]:
            places, there = looked_up(postings.docs, docs)
            impacts, _ = postings.impacts(self.pinned, norms)
            gains[there] += impacts[places[there]] * np.float32(idf)
        kept = gains >= least
        return docs[kept], gains[kept]

    def sums(self) -> list[tuple[Docs, Singles]]:
        """For each term the documents that hold it, and nearly what each of these scores for all terms."""
        read = [self._gains(*term) for term in self.terms]
        if len(read) < 2:
            return read
        sums = np.zeros(self.part.docs, np.float32)
        for docs, gains in read:
            sums[docs] += gains
        return [(docs, sums[docs]) for docs, _ in read]

    def scores(self, docs: Docs) -> Floats:
        """The scores of some documents, ascending; exactly those of the specification."""
        total = np.zeros(len(docs), np.float64)
        weights, lengths = self.part.weights(docs), self.part.lengths[docs].astype(np.float64)
        for postings, idf in self.terms:
            places, there = looked_up(postings.docs, docs)
            tfs = postings.tfs[places[there]].astype(np.float64)
            total[there] += weights[there] * idf * self.bm25.gain(tfs, lengths[there], self.average)
        return total

    def count(self, enough: int) -> int:
        """How many documents match; once more than `enough` are known of, any larger number."""
        kept: list[Docs] = []
        for postings, _ in self.terms:
            docs, _ = self.matching(postings)
            if len(docs) > enough:
                return len(docs)
            kept.append(docs)
        return len(distinct(kept)) if kept else 0

    def matching(self, postings: PostingList) -> tuple[Docs, Numbers]:
        """The documents of a list that pass the filter, with their frequencies."""
        if self.passing is None:
            return postings.docs, postings.tfs
        kept = self.passing[postings.docs]
        return postings.docs[kept], postings.tfs[kept]

    def passed(self, docs: Docs) -> Docs:
        """Those of these documents that pass the filter."""
        return docs if self.passing is None else docs[self.passing[docs]]

    def _gains(self, postings: PostingList, idf: float) -> tuple[Docs, Singles]:
        """The documents of a list that pass the filter, and nearly what the term adds to each."""
        gains = postings.impacts(self.pinned, self.part.norms(self.pinned))[0] * np.float32(idf)
        if self.passing is None:
            return postings.docs, gains
        kept = self.passing[postings.docs]
        return postings.docs[kept], gains[kept]
