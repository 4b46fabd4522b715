"""Search over sessions: by their best message, their title and their summary. Reads, and never writes.

A session's score is its messages', the best one's and all of them as one document, plus the better of its title's
and its summary's. The two come as two rankings, so the page is found by the threshold algorithm (Fagin, Lotem,
Naor, Optimal Aggregation Algorithms for Middleware, 2001): both are read deeper until no session that was not
seen could still enter the page. A busy session never hides another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .batch import Column
from .bm25 import query_terms
from .errors import InvalidArgument
from .kv import KVStorage
from .marker import Marker
from .messages import HistoryEntry
from .records import decode
from .session_records import SessionMeta
from .session_rows import SESSION_PARTS, SessionRows, place_of
from .text import Between, Hit, Ranking, TextSearch, Where, group_of
from .weights import Weights

__all__ = ["Excerpt", "SessionAnswer", "SessionFilter", "SessionHit", "SessionSearch"]


@dataclass(frozen=True)
class SessionFilter:
    """Which messages and sessions a search may find; "" leaves a condition out. Applied before ranking is cut."""

    agent: str = ""
    """An agent's id."""
    sender: str = ""
    project: str = ""
    source: str = ""
    """The tool that an imported session comes from."""
    role: str = ""
    """user or assistant."""
    since: str = ""
    """The earliest time, UTC RFC 3339 or the beginning of it, e.g. ``2026-03``."""
    until: str = ""
    """The first time that is too late."""

    def where(self) -> Where:
        """The condition on document attributes."""
        names = ("agent", "sender", "project", "source", "role")
        conditions: dict[str, str | Between] = {
            name: value for name in names if (value := getattr(self, name))
        }
        if self.since or self.until:
            conditions["ts"] = Between(self.since or None, self.until or None)
        return conditions


@dataclass(frozen=True)
class Excerpt:
    """A message in the window around the best one."""

    position: int
    entry: HistoryEntry
    text: str
    """Its text, cut to a snippet."""
    spans: list[tuple[int, int]]
    """Where words that match stand in `text`: (start, end) in characters."""


@dataclass(frozen=True)
class SessionHit:
    """A session that matches."""

    meta: SessionMeta
    score: float
    position: int | None
    """Where its best message stands; None if only its title or summary matches."""
    window: list[Excerpt]
    """The best message and what stands around it."""


@dataclass(frozen=True)
class SessionAnswer:
    """The best sessions, best first, equal scores in the order of their keys."""

    hits: list[SessionHit]
    complete: bool
    """Whether these are all sessions that match."""


@dataclass(frozen=True)
class _Found:
    """A session that matches."""

    handle: str
    score: float
    best: int | None
    """Where its best message stands."""


class _List:
    """A ranking of sessions as far as it was read: its head, and those that another list named."""

    def __init__(self, ranking: Ranking, depth: int) -> None:
        self._ranking = ranking
        self._depth = depth
        self.known: dict[bytes, Hit | None] = {}
        """What was read: None for a session that does not match."""
        self._read()

    def _read(self) -> None:
        top = self._ranking.top(self._depth)
        self.known.update({group_of(hit.key, 1 + SESSION_PARTS): hit for hit in top.hits})
        self.complete = top.complete
        self.floor = 0.0 if top.complete else top.hits[-1].score
        """What a session that is not in the head can score here at most."""
        self.slope = 0.0 if top.complete else (top.hits[0].score - self.floor) / self._depth
        """How fast it falls: reading on where it falls faster makes a page certain sooner."""

    def look_up(self, groups: Iterable[bytes]) -> None:
        """Read these sessions, too."""
        unknown = [group for group in groups if group not in self.known]
        self.known.update(zip(unknown, self._ranking.of(unknown), strict=True))

    def score(self, group: bytes) -> float:
        """What a session that was read scores here."""
        hit = self.known[group]
        return hit.score if hit else 0.0

    def deepen(self) -> None:
        """Read further down, if there is more."""
        if not self.complete:
            self._depth *= 3
            self._read()


class SessionSearch:
    """The search over one store's sessions."""

    def __init__(self, kv: KVStorage, rows: SessionRows, text: TextSearch, weights: Weights) -> None:
        self._kv = kv
        self._rows = rows
        self._text = text
        self._weights = weights

    async def search(
        self,
        query: str,
        limit: int | None,
        where: SessionFilter,
        *,
        before: int | None = None,
        after: int | None = None,
    ) -> SessionAnswer:
        """See `Sessions.search`."""
        wanted = self._weights.hits if limit is None else limit
        if not isinstance(wanted, int) or wanted < 1:
            raise InvalidArgument("limit", wanted, "must be a whole number from 1")
        ranked, complete = await self._rank(query, wanted, where.where())
        around = (
            self._weights.before if before is None else before,
            self._weights.after if after is None else after,
        )
        return SessionAnswer(await self._hits(query, ranked, around), complete)

    async def _rank(self, query: str, wanted: int, where: Where) -> tuple[list[_Found], bool]:
        """The best sessions, and whether there are no others."""
        weights, depth = self._weights, max(wanted + 1, int(wanted * self._weights.candidates))
        titles = await self._text.rank("meta", query, where, best=1.0, whole=0.0)
        messages = await self._text.rank("msg", query, where, best=weights.message, whole=weights.session)
        lists = [_List(messages, depth), _List(titles, depth)]
        while True:
            ranked = _ranked(lists)
            if all(part.complete for part in lists):
                return self._found(ranked[:wanted], lists[0]), len(ranked) <= wanted
            if len(ranked) >= wanted and -ranked[wanted - 1][0] > sum(part.floor for part in lists):
                return self._found(ranked[:wanted], lists[0]), False
            max(lists, key=lambda part: (not part.complete, part.slope)).deepen()

    def _found(self, page: list[tuple[float, bytes]], messages: _List) -> list[_Found]:
        best = [messages.known[group] for _, group in page]
        return [
            _Found(self._kv.parts(group)[1], -negative, place_of(hit.key) if hit else None)
            for (negative, group), hit in zip(page, best, strict=True)
        ]

    async def _hits(self, query: str, page: list[_Found], around: tuple[int, int]) -> list[SessionHit]:
        """What is shown of each session: everything that it takes is read in two round trips."""
        rows = await self._kv.get_many(Column.SESSION, [self._rows.meta_key(found.handle) for found in page])
        # One that is not there was deleted between the search and here.
        there = [
            (found, decode(SessionMeta, row))
            for found, row in zip(page, rows, strict=True)
            if row is not None
        ]
        windows = await self._windows(query, there, around)
        return [
            SessionHit(meta, found.score, found.best, window)
            for (found, meta), window in zip(there, windows, strict=True)
        ]

    async def _windows(
        self, query: str, there: list[tuple[_Found, SessionMeta]], around: tuple[int, int]
    ) -> list[list[Excerpt]]:
        """The window of each session."""
        marker = Marker(query_terms(query), self._text.analysis())
        wanted = [
            [self._rows.message_key(found.handle, place) for place in self._places(found, meta, around)]
            for found, meta in there
        ]
        keys = [key for window in wanted for key in window]
        rows = dict(zip(keys, await self._kv.get_many(Column.SESSION, keys), strict=True))
        return [
            [self._excerpt(marker, key, row) for key in window if (row := rows[key]) is not None]
            for window in wanted
        ]

    def _places(self, found: _Found, meta: SessionMeta, around: tuple[int, int]) -> range:
        """At most `Weights.window` positions about the best message's."""
        best, most = found.best or 0, max(1, self._weights.window)
        start = max(0, best - min(max(0, around[0]), most - 1))
        return range(start, min(best + max(0, around[1]) + 1, start + most, meta.message_count))

    def _excerpt(self, marker: Marker, key: bytes, row: bytes) -> Excerpt:
        entry = decode(HistoryEntry, row, key)
        text = entry.text
        spans = marker.spans(text)
        start, snippet = _cut(text, spans, self._weights.snippet)
        inside = [
            (begin - start, end - start)
            for begin, end in spans
            if start <= begin and end - start <= len(snippet)
        ]
        return Excerpt(place_of(key), entry, snippet, inside)


def _ranked(lists: Sequence[_List]) -> list[tuple[float, bytes]]:
    """All sessions that were read in a list, with their scores in all, negated: best first."""
    groups = list(dict.fromkeys(group for part in lists for group in part.known))
    for part in lists:
        part.look_up(groups)
    return sorted((-sum(part.score(group) for part in lists), group) for group in groups)


def _cut(text: str, spans: Iterable[tuple[int, int]], most: int) -> tuple[int, str]:
    """At most `most` bytes of `text` about its first match: where they begin, and the text."""
    if len(text) <= most // 4 or len(text.encode(errors="surrogatepass")) <= most:
        return 0, text
    first = next(iter(spans), (0, 0))[0]
    # A quarter of the snippet stands before the match: enough to see what it is about.
    start = max(0, first - most // 4)
    data = text[start : start + most].encode(errors="surrogatepass")[:most]
    return start, data.decode(errors="ignore")
