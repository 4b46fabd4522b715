"""Search over sessions: by their best message, their title and their summary. Reads, and never writes.

A session's score is its messages', the best one's and all of them as one document, plus the better of its title's
and its summary's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .batch import Column
from .bm25 import query_terms
from .errors import InvalidArgument
from .kv import KVStorage
from .marker import Marker
from .messages import HistoryEntry
from .records import decode
from .session_records import SessionMeta
from .session_rows import SessionRows, place_of
from .text import Between, GroupHit, Scale, TextSearch, Where
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
        weights = self._weights
        scales = [Scale("msg", weights.message, weights.session), Scale("meta")]
        found = await self._text.rank(query, scales, wanted, where)
        return [self._found(hit) for hit in found.hits], found.complete

    def _found(self, hit: GroupHit) -> _Found:
        message = hit.best[0]
        return _Found(self._kv.parts(hit.group)[1], hit.score, place_of(message) if message else None)

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


def _cut(text: str, spans: Iterable[tuple[int, int]], most: int) -> tuple[int, str]:
    """At most `most` bytes of `text` about its first match: where they begin, and the text."""
    if len(text) <= most // 4 or len(text.encode(errors="surrogatepass")) <= most:
        return 0, text
    first = next(iter(spans), (0, 0))[0]
    # A quarter of the snippet stands before the match: enough to see what it is about.
    start = max(0, first - most // 4)
    data = text[start : start + most].encode(errors="surrogatepass")[:most]
    return start, data.decode(errors="ignore")
