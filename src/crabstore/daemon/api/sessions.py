"""Sessions over HTTP. `{handle}` is a handle, or a beginning of it that no other session has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from ...answers.documents import Document, entry_document, session_document
from ...answers.listing import listing, started
from ...answers.lookup import agent_names, answering_agent, find_session
from ...store.session_records import Card, OtherEvent, SessionMeta
from ..application import Daemon
from .operations import Ask, Nothing, Operations, Params

__all__ = ["operations"]

operations = Operations()

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Position = Annotated[int, msgspec.Meta(ge=0)]


class Listed(Params, frozen=True):
    """Which sessions to list; empty members leave a condition out."""

    limit: Limit = 20
    after: str = ""
    agent: str = ""
    project: str = ""
    source: str = ""


class NewSession(Params, frozen=True):
    """A session as it is to be opened; one with this handle is found and left as it is."""

    handle: str | None = None
    agent: str = ""
    created_by: Annotated[str, msgspec.Meta(min_length=1)] = "user"
    title: str = ""
    root: str = ""


class SessionChange(Params, frozen=True):
    """What to change of a session; null leaves it."""

    title: str | None = None
    summary: str | None = None


class Range(Params, frozen=True):
    """Which positions: `start` <= position < `stop`, at most a thousand."""

    start: Position = 0
    stop: Position | None = None


class Removal(Params, frozen=True):
    """How to delete: with `forget`, never import it again."""

    forget: bool = False


@operations.add("GET", "/v1/sessions", Listed, Nothing)
async def list_sessions(daemon: Daemon, ask: Ask[Listed, Nothing]) -> Document:
    """Sessions, the one that changed last first; `next` is the `after` of the next page."""
    query = ask.query
    wanted = Card(agent=query.agent, project=query.project, tool=query.source)
    page = await listing(daemon.store, wanted, query.limit, started(query.after, "after"))
    return page.document()


@operations.add("POST", "/v1/sessions", Nothing, NewSession)
async def open_session(daemon: Daemon, ask: Ask[Nothing, NewSession]) -> Document:
    """Open a session of an agent, by default of the default one."""
    body = ask.body
    agent = await answering_agent(daemon.store, body.agent)
    meta = await daemon.store.sessions.open(
        body.handle, agent=agent.id, created_by=body.created_by, title=body.title, root=body.root
    )
    return await _shown(daemon, meta)


@operations.add("GET", "/v1/sessions/{handle}", Nothing, Nothing)
async def show_session(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """What a session is, beside its messages."""
    return await _shown(daemon, await _found(daemon, ask.path))


@operations.add("PATCH", "/v1/sessions/{handle}", Nothing, SessionChange)
async def change_session(daemon: Daemon, ask: Ask[Nothing, SessionChange]) -> Document:
    """Change what a session is called."""
    meta = await _found(daemon, ask.path)
    changed = await daemon.store.sessions.update(meta.handle, title=ask.body.title, summary=ask.body.summary)
    return await _shown(daemon, changed)


@operations.add("DELETE", "/v1/sessions/{handle}", Removal, Nothing)
async def delete_session(daemon: Daemon, ask: Ask[Removal, Nothing]) -> Document:
    """Stop what a session works on, and delete it for good."""
    meta = await _found(daemon, ask.path)
    while await daemon.runtime.cancel(meta.handle):
        continue  # what waited behind it begins, and is stopped, too
    sessions, forget = daemon.store.sessions, ask.query.forget
    await (sessions.forget(meta.handle) if forget else sessions.delete(meta.handle))
    return {"deleted": {"handle": meta.handle, "messages": meta.message_count, "forgotten": forget}}


@operations.add("GET", "/v1/sessions/{handle}/messages", Range, Nothing)
async def list_messages(daemon: Daemon, ask: Ask[Range, Nothing]) -> Document:
    """The messages of a session, verbatim, with their positions."""
    meta = await _found(daemon, ask.path)
    start, stop = _bounds(ask.query)
    entries = await daemon.store.sessions.messages(meta.handle, start, stop)
    messages = [entry_document(place, entry) for place, entry in enumerate(entries, start)]
    return {"handle": meta.handle, "message_count": meta.message_count, "messages": messages}


@operations.add("GET", "/v1/sessions/{handle}/events", Range, Nothing)
async def list_events(daemon: Daemon, ask: Ask[Range, Nothing]) -> Document:
    """The trace of a session: tool calls, their durations, how runs ended."""
    meta = await _found(daemon, ask.path)
    lines = await daemon.store.sessions.events(meta.handle, *_bounds(ask.query))
    events = [line.members if isinstance(line, OtherEvent) else msgspec.to_builtins(line) for line in lines]
    return {"handle": meta.handle, "events": events}


def _bounds(query: Range) -> tuple[int, int]:
    most = query.start + 1000
    return query.start, most if query.stop is None else min(query.stop, most)


async def _found(daemon: Daemon, path: Mapping[str, str]) -> SessionMeta:
    return await find_session(daemon.store, path["handle"])


async def _shown(daemon: Daemon, meta: SessionMeta) -> Document:
    return {"session": session_document(meta, await agent_names(daemon.store, [meta.agent]))}
