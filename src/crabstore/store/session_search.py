"""Search over sessions: by their best message, their title and their summary. Reads, and never writes.

A session's score is its messages', the best one's and all of them as one document, plus the better of its title's
and its summary's. The two come as two rankings, so the page is found by the threshold algorithm (Fagin, Lotem,
Naor, Optimal Aggregation Algorithms for Middleware, 2001): both are read deeper until no session that was not
seen could still enter the page. A busy session never hides another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .batch import Column
from .errors import InvalidArgument
from .kv import KVStorage
from .messages import HistoryEntry
from .records import decode
from .session_records import SessionMeta
from .session_rows import SESSION_PARTS, SessionRows, place_of
from .text import Between, Hits, Ranking, TextSearch, Where, group_of
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
    """The best sessions, best first, equal scores in order of their handles."""

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
        hits = [await self._hit(query, found, around) for found in ranked]
        return SessionAnswer([hit for hit in hits if hit is not None], complete)

    async def _rank(self, query: str, wanted: int, where: Where) -> tuple[list[_Found], bool]:
        """The best sessions, and whether there are no others."""
        weights, depth = self._weights, wanted * max(1, self._weights.candidates)
        titles = await self._text.rank("meta", query, where, best=1.0, whole=0.0)
        messages = await self._text.rank("msg", query, where, best=weights.message, whole=weights.session)
        while True:
            tops = messages.top(depth), titles.top(depth)
            groups = {group_of(hit.key, 1 + SESSION_PARTS) for top in tops for hit in top.hits}
            ranked = self._scored(list(groups), messages, titles)
            if all(top.complete for top in tops):
                return ranked[:wanted], len(ranked) <= wanted
            if len(ranked) >= wanted and ranked[wanted - 1].score > sum(map(_floor, tops)):
                return ranked[:wanted], False
            depth *= 4

    def _scored(self, groups: list[bytes], messages: Ranking, titles: Ranking) -> list[_Found]:
        """These sessions, best first, equal scores in order of their handles."""
        found = [
            _Found(
                self._kv.parts(group)[1],
                (message.score if message else 0.0) + (title.score if title else 0.0),
                place_of(message.key) if message else None,
            )
            for group, message, title in zip(groups, messages.of(groups), titles.of(groups), strict=True)
        ]
        return sorted(found, key=lambda session: (-session.score, session.handle))

    async def _hit(self, query: str, found: _Found, around: tuple[int, int]) -> SessionHit | None:
        meta = await self._kv.get_json(Column.SESSION, self._rows.meta_key(found.handle), SessionMeta)
        if meta is None:
            return None  # deleted between the search and here
        window = await self._window(query, found.handle, found.best or 0, around)
        return SessionHit(meta, found.score, found.best, window)

    async def _window(self, query: str, handle: str, best: int, around: tuple[int, int]) -> list[Excerpt]:
        """At most `Weights.window` messages about position `best`."""
        most = max(1, self._weights.window)
        before = min(max(0, around[0]), most - 1)
        start = max(0, best - before)
        stop = min(best + max(0, around[1]) + 1, start + most)
        rows = await self._rows.range(self._rows.messages(handle), start, stop)
        return [self._excerpt(query, key, row) for key, row in rows]

    def _excerpt(self, query: str, key: bytes, row: bytes) -> Excerpt:
        entry = decode(HistoryEntry, row, key)
        text = entry.text
        spans = self._text.spans(query, text)
        start, snippet = _cut(text, spans, self._weights.snippet)
        inside = [
            (begin - start, end - start)
            for begin, end in spans
            if start <= begin and end - start <= len(snippet)
        ]
        return Excerpt(place_of(key), entry, snippet, inside)


def _floor(hits: Hits) -> float:
    """What a session that is not in the list can score there at most."""
    return 0.0 if hits.complete or not hits.hits else hits.hits[-1].score


def _cut(text: str, spans: Iterable[tuple[int, int]], most: int) -> tuple[int, str]:
    """At most `most` bytes of `text` about its first match: where they begin, and the text."""
    if len(text.encode(errors="surrogatepass")) <= most:
        return 0, text
    first = next(iter(spans), (0, 0))[0]
    # A quarter of the snippet stands before the match: enough to see what it is about.
    start = max(0, first - most // 4)
    data = text[start : start + most].encode(errors="surrogatepass")[:most]
    return start, data.decode(errors="ignore")
