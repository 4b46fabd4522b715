"""Answers a query from the parts of an index: the best documents, and the best groups of documents.

Reads, and never writes; everything it is given is in memory or read on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....store.bm25 import Analysis, Bm25, query_terms
from ....store.text import Hit, Hits, Ranking, Where, group_of, require_limit
from .arrays import Bools, Floats, Ints, distinct
from .lists import Docs, Places, PostingList, summed_by_group
from .scoring import Share, kth_best, margin
from .segment import Segment
from .state import IndexState

__all__ = ["PackedRanking", "Query", "best_documents"]


class Query:
    """A query as an index understands it now: its terms with their postings, and the filter."""

    def __init__(
        self, state: IndexState, query: str, where: Where | None, bm25: Bm25, analysis: Analysis
    ) -> None:
        self.state = state
        self.parts = state.parts
        self.bm25 = bm25
        self.terms: list[tuple[float, list[PostingList | None]]] = []
        """The terms that stand somewhere: the idf, and the postings in each part."""
        for term in query_terms(query):
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
class _Scored:
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


def _scored(query: Query, chosen: Sequence[Docs]) -> _Scored:
    every = [share.scores(docs) for share, docs in zip(query.shares, chosen, strict=True)]
    parts = np.repeat(np.arange(len(chosen)), [len(docs) for docs in chosen])
    return _Scored(
        parts,
        np.concatenate([np.empty(0, np.int64), *chosen]).astype(np.int64),
        np.concatenate([np.empty(0), *every]),
    )


def _page(query: Query, found: _Scored, limit: int) -> list[tuple[float, bytes, int, int]]:
    """The `limit` best: score, key, part and ordinal."""
    kept = _contenders(query, found, limit)
    rows = zip(
        found.scores[kept].tolist(), found.parts[kept].tolist(), found.docs[kept].tolist(), strict=True
    )
    named = [(score, query.parts[part].key(doc), part, doc) for score, part, doc in rows]
    return sorted(named, key=lambda row: (-row[0], row[1]))[:limit]


def _contenders(query: Query, found: _Scored, limit: int) -> Ints:
    """Which documents can be on the page: those above its last, and of equal ones the first of each part.

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
        firsts.append(own[:limit] if query.parts[at].by_key else own)
    return np.concatenate([above, *firsts])


def _hit(query: Query, realm: bytes, found: tuple[float, bytes, int, int]) -> Hit:
    score, key, part, doc = found
    return Hit(realm + key, score, query.parts[part].attrs(doc))


class PackedRanking(Ranking):
    """The groups that match a query, by ``best * B + whole * W``: W of every group is known, and B nearly; it is
    made exact for the groups that are asked for.
    """

    def __init__(self, query: Query, best: float, whole: float, realm: bytes) -> None:
        self._query = query
        self._best, self._whole = best, whole
        self._realm = realm
        self._depth = query.state.depth
        state = query.state
        self._table = state.groups
        places, self._sizes = self._table.with_recent(state.recent)
        self._members = [
            self._table.members(part) if isinstance(part, Segment) else places for part in query.parts
        ]
        self._wholes = self._score_wholes()
        self._near, self._matched = self._near_best()

    def top(self, limit: int) -> Hits:
        require_limit(limit)
        matched = np.flatnonzero(self._matched)
        complete = len(matched) <= limit
        if not limit:
            return Hits([], complete)
        near = self._best * self._near[matched] + self._whole * self._wholes[matched]
        floor = kth_best(near.astype(np.float32), limit)
        chosen = matched[near >= floor * (1 - self._query.slack)] if floor > 0 else matched
        return Hits([hit for _, hit in self._hits(chosen, limit)], complete)

    def of(self, groups: Sequence[bytes]) -> list[Hit | None]:
        places = self._sizes.places([group[len(self._realm) :] for group in groups])
        asked = np.sort(places[places >= 0])
        found = dict(self._hits(asked[self._matched[asked]], len(groups)))
        return [found.get(place) for place in places.tolist()]

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

    def _hits(self, groups: Ints, limit: int) -> list[tuple[int, Hit]]:
        """The `limit` best of these groups, each with its number."""
        query = self._query
        found = self._best_of(groups)
        of_part = [
            self._members[part][doc]
            for part, doc in zip(found.parts.tolist(), found.docs.tolist(), strict=True)
        ]
        numbers = np.array(of_part, np.int64)
        totals = self._best * found.scores + self._whole * self._wholes[numbers]
        found = _Scored(found.parts, found.docs, totals)
        rows = []
        for at in _contenders(query, found, limit).tolist():
            part, doc = int(found.parts[at]), int(found.docs[at])
            key = query.parts[part].key(doc)
            rows.append((-float(totals[at]), group_of(key, self._depth), key, part, doc, int(numbers[at])))
        return [
            (number, _hit(query, self._realm, (-score, key, part, doc)))
            for score, _, key, part, doc, number in sorted(rows)[:limit]
        ]

    def _best_of(self, groups: Ints) -> _Scored:
        """The best document of each of these groups, with its own score."""
        query = self._query
        asked = np.zeros(len(self._wholes), np.bool_)
        asked[groups] = True
        chosen = [
            self._of_groups(share, members, asked)
            for share, members in zip(query.shares, self._members, strict=True)
        ]
        found = _scored(query, chosen)
        numbers = np.concatenate(
            [
                np.empty(0, np.int64),
                *(members[docs] for members, docs in zip(self._members, chosen, strict=True)),
            ]
        )
        order = np.lexsort((found.docs, found.parts, -found.scores, numbers))
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        kept = [self._first(found, run) for run in np.split(order, starts[1:])] if len(order) else []
        return _Scored(found.parts[kept], found.docs[kept], found.scores[kept])

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

    def _first(self, found: _Scored, run: Ints) -> int:
        """Of documents of one group, best first, the one that stands for it: of equal ones the least key."""
        equal = run[found.scores[run] == found.scores[run[0]]]
        if len(equal) == 1:
            return int(equal[0])
        parts = self._query.parts
        firsts = _contenders(
            self._query, _Scored(found.parts[equal], found.docs[equal], found.scores[equal]), 1
        )
        named = [(parts[found.parts[at]].key(int(found.docs[at])), at) for at in equal[firsts].tolist()]
        return int(min(named)[1])
