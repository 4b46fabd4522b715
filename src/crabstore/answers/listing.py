"""A page of sessions, the one that changed last first, read from the index of recent sessions alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..store.backend import Backend
from ..store.session_records import Card, Recent
from .documents import Document, card_document
from .failures import ExitCode, Refusal
from .lookup import agent_names, find_agent

__all__ = ["Page", "listing", "started"]

_READ = 256
"""Rows read at once where most of them may be filtered away."""


@dataclass(frozen=True)
class Page:
    """Some sessions, and the names of their agents."""

    rows: list[Recent]
    names: dict[str, str]
    next: str | None
    """Where the next page begins; None at the end."""

    def document(self) -> Document:
        """As JSON gives it."""
        return {"sessions": [card_document(row, self.names) for row in self.rows], "next": self.next}


async def listing(store: Backend, wanted: Card, limit: int, start: Recent | None) -> Page:
    """The page after `start` of sessions that agree with `wanted`, whose agent may be a name. Raises NotFound."""
    if wanted.agent:
        wanted.agent = (await find_agent(store, wanted.agent)).id
    rows: list[Recent] = []
    async for row in _recent(store, start, limit):
        if len(rows) == limit:
            last = rows[-1]
            return Page(rows, await _names(store, rows), f"{last.updated_at},{last.handle}")
        if _agrees(row.card, wanted):
            rows.append(row)
    return Page(rows, await _names(store, rows), None)


def started(token: str, option: str) -> Recent | None:
    """Where the page begins that `token` names, "" for the first; `option` is only named in the Refusal."""
    updated_at, comma, handle = token.partition(",")
    if not token:
        return None
    if not (updated_at and comma and handle):
        raise Refusal(ExitCode.USAGE, "usage", f"{option} {token!r} is no token that a listing gave")
    return Recent(handle, updated_at, Card())


async def _recent(store: Backend, start: Recent | None, limit: int) -> AsyncIterator[Recent]:
    size = min(limit + 1, _READ)
    while page := await store.sessions.recent(size, start):
        for row in page:
            yield row
        start, size = page[-1], _READ


async def _names(store: Backend, rows: list[Recent]) -> dict[str, str]:
    return await agent_names(store, (row.card.agent for row in rows))


def _agrees(card: Card, wanted: Card) -> bool:
    asked = ((wanted.agent, card.agent), (wanted.project, card.project), (wanted.tool, card.tool))
    return all(not value or value == found for value, found in asked)
