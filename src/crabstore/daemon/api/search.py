"""Search over HTTP: sessions by what was said in them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import msgspec

from ...answers.documents import Document, hit_document
from ...answers.lookup import agent_names, find_agent
from ...store.session_search import SessionFilter, SessionHit
from ..application import Daemon
from .operations import Ask, Nothing, Operations, Params

__all__ = ["operations"]

operations = Operations()


class Search(Params, frozen=True):
    """What to find, and under which conditions; `since` and `until` are RFC 3339 times, or beginnings of them."""

    q: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 10
    before: Annotated[int, msgspec.Meta(ge=0, le=50)] = 1
    after: Annotated[int, msgspec.Meta(ge=0, le=50)] = 1
    agent: str = ""
    sender: str = ""
    project: str = ""
    source: str = ""
    role: str = ""
    since: str = ""
    until: str = ""


@operations.add("GET", "/v1/search", Search, Nothing)
async def search_sessions(daemon: Daemon, ask: Ask[Search, Nothing]) -> Document:
    """The best sessions for any words, each with its best message and what stands around it."""
    query = ask.query
    where = SessionFilter(
        agent=(await find_agent(daemon.store, query.agent)).id if query.agent else "",
        sender=query.sender,
        project=query.project,
        source=query.source,
        role=query.role,
        since=query.since,
        until=query.until,
    )
    found = await daemon.store.sessions.search(
        query.q, query.limit, where, before=query.before, after=query.after
    )
    names = await agent_names(daemon.store, (hit.meta.agent for hit in found.hits))
    hits = [hit_document(hit, names, _opening(hit)) for hit in found.hits]
    return {"query": query.q, "hits": hits, "complete": found.complete}


def _opening(hit: SessionHit) -> str:
    """Where the messages of the hit are to be had."""
    start = hit.window[0].position if hit.window else 0
    return f"/v1/sessions/{quote(hit.meta.handle, safe='')}/messages?start={start}"
