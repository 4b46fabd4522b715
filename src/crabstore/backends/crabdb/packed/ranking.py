"""Answers a query from the parts of an index: the best documents, and the best groups of documents.

Reads, and never writes; everything it is given is in memory or read on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....store.bm25 import Analysis, Bm25, Term
from ....store.text import GroupHit, GroupHits, Hit, Hits, Scale, Where, group_of
from .arrays import Bools, Floats, Ints, distinct
from .hashes import Hashes
from .lists import Docs, Places, PostingList, summed_by_group
from .scoring import Share, kth_best, margin
from .segment import Segment
from .state import IndexState

__all__ = ["GroupScores", "Query", "best_documents", "best_groups"]


class Query:
    """A query as an index understands it now: its terms with their postings, and the filter."""

    def __init__(
        self, state: IndexState, terms: Sequence[Term], where: Where | None, bm25: Bm25, analysis: Analysis
    ) -> None:
        self.state = state
        self.parts = state.parts
        self.bm25 = bm25
        self.terms: list[tuple[float, list[PostingList | None]]] = []
        """The terms that stand somewhere: the idf, and the postings in each part."""
        for term in terms:
            lists = [part.postings(term, analysis) for part in self.parts]
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
            for at, part in enumerate(self.parts)
        ]

    def is_complete(self, limit: int) -> bool:
        """Whether no more than `limit` documents match."""
        count = 0
        for share in self.shares:
            count += share.count(limit)
            if count > limit:
                return False
        return True


@dataclass
class _Documents:
    """Documents with their scores, from any part."""

    parts: Ints
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
    found = _scored(query, chosen)
    return Hits([_hit(query, realm, best) for best in _page(query, found, limit)], complete)


def _scored(query: Query, chosen: Sequence[Docs]) -> _Documents:
    every = [share.scores(docs) for share, docs in zip(query.shares, chosen, strict=True)]
    parts = np.repeat(np.arange(len(chosen)), [len(docs) for docs in chosen])
    return _Documents(
        parts,
        np.concatenate([np.empty(0, np.int64), *chosen]).astype(np.int64),
        np.concatenate([np.empty(0), *every]),
    )


def _page(query: Query, found: _Documents, limit: int) -> list[tuple[float, bytes, int, int]]:
    """The `limit` best: score, key, part and ordinal."""
    kept = _contenders(found, [part.by_key for part in query.parts], limit)
    rows = zip(
        found.scores[kept].tolist(), found.parts[kept].tolist(), found.docs[kept].tolist(), strict=True
    )
    named = [(score, query.parts[part].key(doc), part, doc) for score, part, doc in rows]
    return sorted(named, key=lambda row: (-row[0], row[1]))[:limit]


def _contenders(found: _Documents, by_key: Sequence[bool], limit: int) -> Ints:
    """Which of `found` can be on a page: those above its last, and of equal ones the first of each part.

    Where ordinals follow keys, only the first `limit` of equal ones can be on it.
    """
    order = np.lexsort((found.docs, found.parts, -found.scores))
    if len(order) <= limit:
        return order
    cut = found.scores[order[limit - 1]]
    above = order[found.scores[order] > cut]
    equal = order[found.scores[order] == cut]
    firsts = []
    for at in sorted(set(found.parts[equal].tolist())):
        own = equal[found.parts[equal] == at]
        firsts.append(own[:limit] if by_key[at] else own)
    return np.concatenate([above, *firsts])


def _hit(query: Query, realm: bytes, found: tuple[float, bytes, int, int]) -> Hit:
    score, key, part, doc = found
    return Hit(realm + key, score, query.parts[part].attrs(doc))


class GroupScores:
    """What one index adds to the scores of groups.

    By the group as one document exactly, by its best document nearly, until the exact score is asked for.
    """

    def __init__(self, query: Query, scale: Scale) -> None:
        self._query = query
        self._scale = scale
        self._depth = query.state.depth
        self._table = query.state.groups
        places, self._sizes = self._table.with_recent(query.state.recent)
        self._members = [
            self._table.members(part) if isinstance(part, Segment) else places for part in query.parts
        ]
        self._wholes = self._score_wholes() if scale.whole else np.zeros(len(self._sizes.docs))
        self._near, self._matched = self._near_best()

    @property
    def slack(self) -> float:
        """What part of itself a nearly right score may be wrong by."""
        return self._query.slack

    def near(self) -> tuple[Hashes, Floats]:
        """The hashes of the groups that match, and nearly what they score."""
        matched = np.flatnonzero(self._matched)
        near = self._scale.best * self._near[matched] + self._scale.whole * self._wholes[matched]
        return self._sizes.hashes(matched), near

    def exact(self, hashes: Hashes) -> _Scored:
        """The score of each of these groups that matches, with its best document."""
        places = self._sizes.places(hashes)
        asked = places[places >= 0]
        asked = np.sort(asked[self._matched[asked]])
        found = self._best_of(asked)
        totals = self._scale.best * found.scores + self._scale.whole * self._wholes[asked]
        return _Scored(found.parts, found.docs, totals, self._sizes.hashes(asked))

    def key(self, part: int, doc: int) -> bytes:
        """The key of a document."""
        return self._query.parts[part].key(doc)

    def group(self, key: bytes) -> bytes:
        """The group of the document under a key."""
        return group_of(key, self._depth)

    @property
    def by_key(self) -> list[bool]:
        """Of which parts the ordinals follow keys."""
        return [part.by_key for part in self._query.parts]

    def _score_wholes(self) -> Floats:
        """The score of each group as one document."""
        query, sizes = self._query, self._sizes
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
        for share, members in zip(self._query.shares, self._members, strict=True):
            for docs, gains in share.sums():
                groups = members[docs]
                runs = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
                if len(runs):
                    np.maximum.at(best, groups[runs], np.maximum.reduceat(gains, runs))
                    matched[groups[runs]] = True
        return best.astype(np.float64), matched

    def _best_of(self, groups: Ints) -> _Documents:
        """The best document of each of these groups, which ascend and match, with its own score."""
        asked = np.zeros(len(self._wholes), np.bool_)
        asked[groups] = True
        chosen = [
            self._of_groups(share, members, asked)
            for share, members in zip(self._query.shares, self._members, strict=True)
        ]
        found = _scored(self._query, chosen)
        own = [members[docs] for members, docs in zip(self._members, chosen, strict=True)]
        numbers = np.concatenate([np.empty(0, np.int64), *own])
        order = np.lexsort((found.docs, found.parts, -found.scores, numbers))
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        kept = [self._first(found, run) for run in np.split(order, starts[1:])] if len(order) else []
        return _Documents(found.parts[kept], found.docs[kept], found.scores[kept])

    def _of_groups(self, share: Share, members: Places, asked: Bools) -> Docs:
        """The documents of one part that match and whose groups are asked for."""
        own = [np.empty(0, np.uint32)]
        for postings, _ in share.terms:
            if isinstance(share.part, Segment):
                # The documents of a group are a run, and so is what a list has of them.
                starts, ends = self._table.runs(share.part, asked)
                first, last = np.searchsorted(postings.docs, starts), np.searchsorted(postings.docs, ends)
                own += [postings.docs[at:end] for at, end in zip(first.tolist(), last.tolist(), strict=True)]
            else:
                own.append(postings.docs[asked[members[postings.docs]]])
        docs = distinct(own)
        return docs if share.passing is None else docs[share.passing[docs]]

    def _first(self, found: _Documents, run: Ints) -> int:
        """Of documents of one group, best first, the one that stands for it: of equal ones the least key."""
        equal = run[found.scores[run] == found.scores[run[0]]]
        if len(equal) == 1:
            return int(equal[0])
        some = _Documents(found.parts[equal], found.docs[equal], found.scores[equal])
        firsts = equal[_contenders(some, self.by_key, 1)].tolist()
        return int(min((self.key(int(found.parts[at]), int(found.docs[at])), at) for at in firsts)[1])


@dataclass
class _Scored:
    """Groups with what one index adds to their scores, and their best documents there."""

    parts: Ints
    docs: Ints
    scores: Floats
    hashes: Hashes


def best_groups(indexes: Sequence[GroupScores], limit: int, realm: bytes) -> GroupHits:
    """The `limit` best groups by what all `indexes` add; equal scores in the order of their keys."""
    hashes, near = _added([index.near() for index in indexes])
    complete = len(hashes) <= limit
    if not limit or not len(hashes):
        return GroupHits([], complete)
    floor = kth_best(near.astype(np.float32), limit)
    slack = max(index.slack for index in indexes)
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
    hashes = distinct([np.sort(own) for own, _ in parts])
    totals = np.zeros(len(hashes))
    for own, scores in parts:
        totals[np.searchsorted(hashes, own)] += scores
    return hashes, totals


def _named_page(
    indexes: Sequence[GroupScores], found: Sequence[_Scored], limit: int
) -> list[tuple[float, bytes, list[bytes | None]]]:
    """The `limit` best groups: score, key, and the key of the best document in each index."""
    hashes, totals = _added([(scored.hashes, scored.scores) for scored in found])
    parts, docs = np.full((2, len(found), len(hashes)), -1)
    for at, scored in enumerate(found):
        places = np.searchsorted(hashes, scored.hashes)
        parts[at, places], docs[at, places] = scored.parts, scored.docs
    # Documents of one part stand in the order of their groups: the first index that holds a group places it.
    first = np.argmax(parts >= 0, axis=0)
    starts = np.cumsum([0, *(len(index.by_key) for index in indexes)])
    everyone = np.arange(len(hashes))
    placed = _Documents(starts[first] + parts[first, everyone], docs[first, everyone], totals)
    kept = _contenders(placed, [by_key for index in indexes for by_key in index.by_key], limit)
    page = []
    for number in kept.tolist():
        best = [
            index.key(int(part), int(doc)) if part >= 0 else None
            for index, part, doc in zip(indexes, parts[:, number], docs[:, number], strict=True)
        ]
        at = int(first[number])
        key = best[at] or b""
        page.append((-float(totals[number]), indexes[at].group(key) + b"/", best))
    page.sort(key=lambda row: row[:2])
    return [(-score, group[:-1], best) for score, group, best in page[:limit]]
