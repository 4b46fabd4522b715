"""Memory and skills over HTTP. `{name}` is any text, percent-encoded."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ...answers.documents import Document, memory_document
from ...store.errors import InvalidArgument, NotFound
from ...store.memory import MemoryEntry
from ..application import Daemon
from .operations import Ask, Nothing, Operations, Params

__all__ = ["operations"]

operations = Operations()

Kind = Literal["note", "archive"]


class Kinds(Params, frozen=True):
    """Which entries: `kind` is note or archive."""

    kind: Kind | None = None


class MemorySearch(Params, frozen=True):
    """What to find."""

    q: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    kind: Kind | None = None


class NewEntry(Params, frozen=True):
    """What to remember; `aliases` are further words to find it by."""

    content: str
    aliases: list[str] = []


class NewSkill(Params, frozen=True):
    """A SKILL.md whole; its name stands in it."""

    body: str


@operations.add("GET", "/v1/memory", Kinds, Nothing)
async def list_memory(daemon: Daemon, ask: Ask[Kinds, Nothing]) -> Document:
    """Entries, in the order of their names."""
    return {"memory": [memory_document(entry) for entry in await daemon.store.memory.entries(ask.query.kind)]}


@operations.add("GET", "/v1/memory-search", MemorySearch, Nothing)
async def search_memory(daemon: Daemon, ask: Ask[MemorySearch, Nothing]) -> Document:
    """The best entries for any words."""
    query = ask.query
    hits = await daemon.store.memory.search(query.q, query.limit, query.kind)
    found = [{"entry": memory_document(hit.entry), "score": hit.score} for hit in hits]
    return {"query": query.q, "hits": found}


@operations.add("GET", "/v1/memory/{name}", Nothing, Nothing)
async def show_memory(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """An entry."""
    return {"entry": memory_document(await _entry(daemon, ask.path["name"]))}


@operations.add("PUT", "/v1/memory/{name}", Nothing, NewEntry)
async def put_memory(daemon: Daemon, ask: Ask[Nothing, NewEntry]) -> Document:
    """Remember something, replacing what has that name."""
    name, body = ask.path["name"], ask.body
    if not body.content.strip():
        raise InvalidArgument("content", body.content, "must hold something to remember")
    await daemon.store.memory.put(MemoryEntry(name=name, content=body.content, aliases=body.aliases))
    return {"entry": memory_document(await _entry(daemon, name))}


@operations.add("DELETE", "/v1/memory/{name}", Nothing, Nothing)
async def delete_memory(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Forget an entry."""
    name = ask.path["name"]
    if not await daemon.store.memory.delete(name):
        raise NotFound("memory entry", name)
    return {"removed": {"name": name}}


@operations.add("GET", "/v1/skills", Nothing, Nothing)
async def list_skills(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Names and descriptions, in the order of the names."""
    skills = await daemon.store.skills.summaries()
    return {"skills": [{"name": skill.name, "description": skill.description} for skill in skills]}


@operations.add("POST", "/v1/skills", Nothing, NewSkill)
async def put_skill(daemon: Daemon, ask: Ask[Nothing, NewSkill]) -> Document:
    """Store a skill, replacing the one of that name."""
    skill = await daemon.store.skills.put(ask.body.body)
    return {"added": {"name": skill.name, "description": skill.description}}


@operations.add("GET", "/v1/skills/{name}", Nothing, Nothing)
async def show_skill(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """A SKILL.md."""
    name = ask.path["name"]
    body = await daemon.store.skills.get(name)
    if body is None:
        raise NotFound("skill", name)
    return {"skill": {"name": name, "body": body}}


@operations.add("DELETE", "/v1/skills/{name}", Nothing, Nothing)
async def delete_skill(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Remove a skill."""
    name = ask.path["name"]
    if not await daemon.store.skills.delete(name):
        raise NotFound("skill", name)
    return {"removed": {"name": name}}


async def _entry(daemon: Daemon, name: str) -> MemoryEntry:
    entry = await daemon.store.memory.get(name)
    if entry is None:
        raise NotFound("memory entry", name)
    return entry
