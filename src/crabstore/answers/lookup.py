"""From what a person types to what a store holds: agents by name or id, sessions by a prefix of their handle."""

from __future__ import annotations

from collections.abc import Iterable

from ..store.agents import AgentConfig
from ..store.backend import Backend
from ..store.errors import NotFound
from ..store.session_records import SessionMeta
from .failures import ExitCode, Refusal

__all__ = ["agent_names", "answering_agent", "find_agent", "find_session"]

_CANDIDATES = 8
"""Sessions named when a prefix is ambiguous."""


async def find_agent(store: Backend, name: str) -> AgentConfig:
    """The agent of this name or id. Raises NotFound."""
    agent = await store.agents.named(name) or await store.agents.get(name)
    if agent is None:
        raise NotFound("agent", name)
    return agent


async def answering_agent(store: Backend, name: str) -> AgentConfig:
    """The agent of this name or id; for "" the default one. Raises NotFound, Refusal if there is no default."""
    chosen = name or await store.agents.default()
    if chosen is None:
        problem = "there is no default agent: name one, or choose it with `crabstore agents default NAME`"
        raise Refusal(ExitCode.MISSING, "no-default-agent", problem)
    return await find_agent(store, chosen)


async def agent_names(store: Backend, ids: Iterable[str]) -> dict[str, str]:
    """The names of these agents; one that is gone keeps its id for a name."""
    names: dict[str, str] = {}
    for agent_id in set(ids):
        agent = await store.agents.get(agent_id)
        names[agent_id] = agent.name if agent else agent_id
    return names


async def find_session(store: Backend, start: str) -> SessionMeta:
    """The one session whose handle is, or starts with, `start`.

    Raises NotFound if there is none, Refusal with the candidates if there are several.
    """
    meta = await store.sessions.meta(start)
    if meta is not None:
        return meta
    handles = await store.sessions.starting_with(start, limit=_CANDIDATES + 1)
    if len(handles) > 1:
        named = ", ".join(handles[:_CANDIDATES]) + (", ..." if len(handles) > _CANDIDATES else "")
        problem = f"several sessions start with {start!r}: {named}"
        raise Refusal(ExitCode.USAGE, "ambiguous", problem, candidates=handles[:_CANDIDATES])
    meta = await store.sessions.meta(handles[0]) if handles else None
    if meta is None:
        raise NotFound("session", start)
    return meta
