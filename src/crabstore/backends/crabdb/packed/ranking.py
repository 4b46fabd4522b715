"""Answers a query from the parts of an index: the best documents, and the best groups of documents.

Reads, and never writes; everything it is given is in memory or read on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....store.bm25 import Analysis, Bm25, Term
from ....store.text import GroupHit, GroupHits, Hit, Hits, Scale, Where, group_of
from .arrays import Bools, Floats, Ints, distinct, run_starts
from .hashes import Hashes
from .lists import Docs, PostingList, summed_by_group
from .scoring import Part, Share, kth_best, margin
from .state import IndexState

__all__ = ["GroupScores", "Query", "best_documents", "best_groups"]


class Query:
    """A query as an index understands it now: its terms with their postings, and the filter."""

    def __init__(
        self, state: IndexState, terms: Sequence[Term], where: Where | None, bm25: Bm25, analysis: Analysis
    ) -> None:
        self.state = state
        self.bm25 = bm25
        self.terms: list[tuple[float, list[PostingList | None]]] = []
        """The terms that stand somewhere: the idf, and what the segments and what the recent documents have."""
        parts: list[Part] = [state.sealed, state.recent]
        for term in terms:
            lists = [part.postings(term, analysis) for part in parts]
            df = sum(len(postings.docs) for postings in lists if postings)
            if df:
                self.terms.append((bm25.idf(max(state.docs, df), df), lists))
        average = state.length / max(state.docs, 1) or 1.0
        pinned = state.pinned(bm25, average)
        self.slack = margin(pinned, average)
        self.shares = [
            Share(
                part,
                [(postings, idf) for idf, lists in self.terms if (postings := lists[at])],
                part.passing(where) if where else None,
                bm25,
                average,
                pinned,
                self.slack,
            )
            for at, part in enumerate(parts)
        ]

    # Documents of both parts are told apart by number: the recent ones follow the sealed ones.

    def key(self, doc: int) -> bytes:
        """The key of a document."""
        part, ordinal = self._locate(doc)
        return part.key(ordinal)

    def runs(self, docs: Ints) -> Ints:
        """Of which segment each document is; a recent one, whose number says nothing of its key, is of its own."""
        starts = self.state.sealed.starts
        found = np.searchsorted(starts, docs, side="right")
        return np.where(docs < starts[-1], found, len(starts) + docs)

    def scored(self, chosen: Sequence[Docs]) -> Documents:
        """Documents of both parts with their scores."""
        scores = [share.scores(docs) for share, docs in zip(self.shares, chosen, strict=True)]
        sealed, recent = chosen
        numbers = np.concatenate([sealed.astype(np.int64), recent.astype(np.int64) + self.state.sealed.docs])
        return Documents(numbers, np.concatenate(scores))

    def _locate(self, doc: int) -> tuple[Part, int]:
        sealed = self.state.sealed
        return (sealed, doc) if doc < sealed.docs else (self.state.recent, doc - sealed.docs)

    def is_complete(self, limit: int) -> bool:
        """Whether no more than `limit` documents match."""
        count = 0
        for share in self.shares:
            count += share.count(limit)
            if count > limit:
                return False
        return True


@dataclass
class Documents:
    """Documents, by number, with their scores."""

    docs: Ints
    scores: Floats


def best_documents(query: Query, limit: int, realm: bytes) -> Hits:
    """The `limit` best documents, equal scores in key order; `realm` is what their keys open with."""
    complete = query.is_complete(limit)
    if not limit:
        return Hits([], complete)
    chosen: list[Docs] = []
    near = np.empty(0, np.float32)
    floor = -np.inf
    for share in query.shares:
        docs, gains = share.candidates(limit, floor)
        chosen.append(docs)
        near = np.concatenate([near, gains])
        floor = max(floor, kth_best(near, limit))
    return Hits(_page(query, query.scored(chosen), limit, realm), complete)


def _page(query: Query, found: Documents, limit: int, realm: bytes) -> list[Hit]:
    """The `limit` best."""
    kept = _contenders(query.runs(found.docs), found, limit)
    rows = zip(found.scores[kept].tolist(), found.docs[kept].tolist(), strict=True)
    named = sorted((-score, query.key(doc)) for score, doc in rows)
    return [Hit(realm + key, -score) for score, key in named[:limit]]


def _contenders(runs: Ints, found: Documents, limit: int) -> Ints:
    """Which of `found` can be on a page: those above its last, and of equal ones the first of each run.

    Within a run numbers follow keys, so only the first `limit` of equal ones can be on it.
    """
    order = np.lexsort((found.docs, -found.scores))
    if len(order) <= limit:
        return order
    cut = found.scores[order[limit - 1]]
    above = order[found.scores[order] > cut]
    equal = order[found.scores[order] == cut]
    starts = run_starts(runs[equal])
    return np.concatenate([above, *(own[:limit] for own in np.split(equal, starts[1:]))])


class GroupScores:
    """What one index adds to the scores of groups.

    By the group as one document exactly, by its best document nearly, until the exact score is asked for.
    """

    def __init__(self, query: Query, scale: Scale) -> None:
        self.query = query
        self._scale = scale
        self._depth = query.state.depth
        self._table = query.state.sealed.groups
        recent, self._sizes = self._table.with_recent(query.state.recent)
        self._members = [self._table.members, recent]
        self._wholes = self._score_wholes() if scale.whole else np.zeros(len(self._sizes.docs))
        self._near, self._matched = self._near_best()

    def near(self) -> tuple[Hashes, Floats]:
        """The hashes of the groups that match, and nearly what they score."""
        matched = np.flatnonzero(self._matched)
        near = self._scale.best * self._near[matched] + self._scale.whole * self._wholes[matched]
        return self._sizes.hashes(matched), near

    def exact(self, hashes: Hashes) -> Scored:
        """The score of each of these groups that matches, with its best document."""
        places = self._sizes.places(hashes)
        asked = places[places >= 0]
        asked = np.sort(asked[self._matched[asked]])
        found = self._best_of(asked)
        totals = self._scale.best * found.scores + self._scale.whole * self._wholes[asked]
        return Scored(self._sizes.hashes(asked), found.docs, totals)

    def group(self, key: bytes) -> bytes:
        """The group of the document under a key."""
        return group_of(key, self._depth)

    def _score_wholes(self) -> Floats:
        """The score of each group as one document."""
        query, sizes = self.query, self._sizes
        count = int(np.count_nonzero(sizes.docs))
        average = query.state.length / max(count, 1) or 1.0
        total = np.zeros(len(sizes.docs))
        for _, lists in query.terms:
            held = np.zeros(len(total), np.bool_)
            frequencies = np.zeros(len(total), np.int64)
            for postings, members, share in zip(lists, self._members, query.shares, strict=True):
                if postings is not None:
                    groups, tfs = postings.by_group(members)
                    held[groups] = True
                    if share.passing is not None:
                        docs, own = share.matching(postings)
                        groups, tfs = summed_by_group(members[docs], own)
                    np.add.at(frequencies, groups, tfs)
            df = int(np.count_nonzero(held))
            idf = query.bm25.idf(max(count, df), df)
            found = np.flatnonzero(frequencies)
            lengths = sizes.lengths[found].astype(np.float64)
            total[found] += idf * query.bm25.gain(frequencies[found].astype(np.float64), lengths, average)
        return total

    def _near_best(self) -> tuple[Floats, Bools]:
        """What the best document of each group scores nearly, and which groups have one."""
        best = np.zeros(len(self._wholes), np.float32)
        matched = np.zeros(len(best), np.bool_)
        if not self._depth:  # documents of no group
            return best.astype(np.float64), matched
        for share, members in zip(self.query.shares, self._members, strict=True):
            for docs, gains in share.sums():
                groups = members[docs]
                runs = run_starts(groups)
                if len(runs):
                    np.maximum.at(best, groups[runs], np.maximum.reduceat(gains, runs))
                    matched[groups[runs]] = True
        return best.astype(np.float64), matched

    def _best_of(self, groups: Ints) -> Documents:
        """The best document of each of these groups, which ascend and match, with its own score."""
        sealed, recent = self.query.shares
        chosen = [self._of_runs(sealed, groups), self._of_members(recent, groups)]
        found = self.query.scored(chosen)
        numbers = np.concatenate([members[docs] for members, docs in zip(self._members, chosen, strict=True)])
        order = np.lexsort((found.docs, -found.scores, numbers))
        starts = run_starts(numbers[order])
        kept = [self._first(found, run) for run in np.split(order, starts[1:])] if len(order) else []
        return Documents(found.docs[kept], found.scores[kept])

    def _of_runs(self, share: Share, groups: Ints) -> Docs:
        """The sealed documents that match and are of these groups."""
        starts, ends = self._table.runs(groups)
        own = [np.empty(0, np.uint32)]
        for postings, _ in share.terms:
            # The documents of a group are a run, and so is what a list has of them.
            first, last = np.searchsorted(postings.docs, starts), np.searchsorted(postings.docs, ends)
            own += [postings.docs[at:end] for at, end in zip(first.tolist(), last.tolist(), strict=True)]
        return share.passed(distinct(own))

    def _of_members(self, share: Share, groups: Ints) -> Docs:
        """The recent documents that match and are of these groups."""
        members = self._members[1]
        asked = np.zeros(len(self._wholes), np.bool_)
        asked[groups] = True
        own = [postings.docs[asked[members[postings.docs]]] for postings, _ in share.terms]
        return share.passed(distinct([np.empty(0, np.uint32), *own]))

    def _first(self, found: Documents, run: Ints) -> int:
        """Of documents of one group, best first, the one that stands for it: of equal ones the least key."""
        equal = run[found.scores[run] == found.scores[run[0]]]
        if len(equal) == 1:
            return int(equal[0])
        some = Documents(found.docs[equal], found.scores[equal])
        firsts = equal[_contenders(self.query.runs(some.docs), some, 1)].tolist()
        return int(min((self.query.key(int(found.docs[at])), at) for at in firsts)[1])


@dataclass
class Scored:
    """Groups with what one index adds to their scores, and their best documents there."""

    hashes: Hashes
    docs: Ints
    scores: Floats


def best_groups(indexes: Sequence[GroupScores], limit: int, realm: bytes) -> GroupHits:
    """The `limit` best groups by what all `indexes` add; equal scores in the order of their keys."""
    hashes, near = _added([index.near() for index in indexes])
    complete = len(hashes) <= limit
    if not limit or not len(hashes):
        return GroupHits([], complete)
    floor = kth_best(near.astype(np.float32), limit)
    slack = max(index.query.slack for index in indexes)
    if floor > 0:
        hashes = hashes[near >= floor * (1 - slack)]
    page = _named_page(indexes, [index.exact(hashes) for index in indexes], limit)
    return GroupHits(
        [
            GroupHit(realm + group, score, tuple(key and realm + key for key in best))
            for score, group, best in page
        ],
        complete,
    )


def _added(parts: Sequence[tuple[Hashes, Floats]]) -> tuple[Hashes, Floats]:
    """Every group in any of `parts`, ascending, and what it scores in all: from 0.0, in their order."""
    # Most ascend already, for which the stable sort is one pass.
    hashes = distinct([np.sort(own, kind="stable") for own, _ in parts])
    totals = np.zeros(len(hashes))
    for own, scores in parts:
        totals[np.searchsorted(hashes, own)] += scores
    return hashes, totals


def _named_page(
    indexes: Sequence[GroupScores], found: Sequence[Scored], limit: int
) -> list[tuple[float, bytes, list[bytes | None]]]:
    """The `limit` best groups: score, key, and the key of the best document in each index."""
    hashes, totals = _added([(scored.hashes, scored.scores) for scored in found])
    docs = np.full((len(found), len(hashes)), -1)
    runs = np.zeros_like(docs)
    for at, (index, scored) in enumerate(zip(indexes, found, strict=True)):
        places = np.searchsorted(hashes, scored.hashes)
        docs[at, places] = scored.docs
        runs[at, places] = index.query.runs(scored.docs)
    # Documents of one run stand in the order of their groups: the first index that holds a group places it.
    first = np.argmax(docs >= 0, axis=0)
    everyone = np.arange(len(hashes))
    placed = Documents(docs[first, everyone], totals)
    page = []
    for number in _contenders(runs[first, everyone] * len(found) + first, placed, limit).tolist():
        best = [
            index.query.key(int(doc)) if doc >= 0 else None
            for index, doc in zip(indexes, docs[:, number], strict=True)
        ]
        at = int(first[number])
        page.append((-float(totals[number]), indexes[at].group(best[at] or b"") + b"/", best))
    page.sort(key=lambda row: row[:2])
    return [(-score, group[:-1], best) for score, group, best in page[:limit]]
