"""Agents over HTTP. `{name}` is a name or an id."""

from __future__ import annotations

from typing import Any

import msgspec

from ...answers.documents import Document, agent_document
from ...answers.lookup import find_agent
from ...store.agents import AgentConfig, AgentHooks, HarnessDeclaration, McpServer
from ...store.records import Json, evolve
from ..application import Daemon
from .operations import Ask, Nothing, Operations, Params

__all__ = ["operations"]

operations = Operations()


class NewAgent(Params, frozen=True):
    """An agent as it is to be: members that are left out have the defaults."""

    name: str
    description: str = ""
    model: str = ""
    max_iterations: int = 16
    tool_choice: Json = "auto"
    thinking: bool = False
    max_tokens: int | None = None
    thinking_budget: int = 4096
    skills: list[str] = []
    mcps: list[McpServer] = []
    harnesses: list[HarnessDeclaration] = []
    compact_tool_max_len: int = 1024
    hooks: AgentHooks = msgspec.field(default_factory=AgentHooks)

    def members(self) -> dict[str, Any]:
        """By name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Default(Params, frozen=True):
    """Which agent is the default: a name or an id, or null for none."""

    agent: str | None


@operations.add("GET", "/v1/agents", Nothing, Nothing)
async def list_agents(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Every agent, in the order of their names, and the id of the default one."""
    agents, default = await daemon.store.agents.configs(), await daemon.store.agents.default()
    return {"agents": [agent_document(agent, default) for agent in agents], "default": default}


@operations.add("POST", "/v1/agents", Nothing, NewAgent)
async def create_agent(daemon: Daemon, ask: Ask[Nothing, NewAgent]) -> Document:
    """Add an agent under a name that no other has."""
    return await _shown(daemon, await daemon.store.agents.create(AgentConfig(**ask.body.members())))


@operations.add("GET", "/v1/agents/{name}", Nothing, Nothing)
async def show_agent(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """An agent whole."""
    return await _shown(daemon, await find_agent(daemon.store, ask.path["name"]))


@operations.add("PUT", "/v1/agents/{name}", Nothing, NewAgent)
async def replace_agent(daemon: Daemon, ask: Ask[Nothing, NewAgent]) -> Document:
    """Replace an agent, whose id stays; runs that are going on keep what they began with."""
    found = await find_agent(daemon.store, ask.path["name"])
    agent = evolve(found, **ask.body.members())
    await daemon.store.agents.put(agent)
    return await _shown(daemon, agent)


@operations.add("DELETE", "/v1/agents/{name}", Nothing, Nothing)
async def delete_agent(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Remove an agent and stop what it works on; its sessions stay."""
    agent = await find_agent(daemon.store, ask.path["name"])
    await daemon.runtime.delete_agent(agent.id)
    return {"removed": {"id": agent.id, "name": agent.name}}


@operations.add("PUT", "/v1/default-agent", Nothing, Default)
async def choose_default_agent(daemon: Daemon, ask: Ask[Nothing, Default]) -> Document:
    """Make an agent the default, or have none."""
    agent = None if ask.body.agent is None else await find_agent(daemon.store, ask.body.agent)
    await daemon.store.agents.set_default(agent.id if agent else None)
    return {"default": agent_document(agent, agent.id) if agent else None}


async def _shown(daemon: Daemon, agent: AgentConfig) -> Document:
    return {"agent": agent_document(agent, await daemon.store.agents.default())}
