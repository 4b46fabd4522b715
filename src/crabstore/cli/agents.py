"""`crabstore agents`: who the sessions belong to."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..answers.documents import Document, agent_document
from ..answers.failures import ExitCode, Refusal
from ..answers.lookup import find_agent
from ..store.agents import AgentConfig
from ..store.backend import Backend
from .call import Call, command, group
from .console import Column, Screen, one_line

__all__ = ["app"]

app = group("List, show, add and remove agents; choose the default one.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="An agent's name or id.")]


@command(app, "list")
def list_agents(call: Call) -> ExitCode | None:
    """List agents by name."""
    agents, default = call.read(_all)
    document = {"agents": [agent_document(agent, default) for agent in agents], "default": default}
    call.answer(document, lambda screen: _draw_all(screen, agents, default))
    return None


@command(app, "show")
def show(call: Call, name: Name) -> ExitCode | None:
    """Show an agent whole."""
    document = call.read(lambda store: _one(store, name))
    call.answer({"agent": document}, lambda screen: screen.facts(_facts(document)))
    return None


@command(app, "add")
def add(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that no other agent has.")],
    description: Annotated[str, typer.Option(metavar="TEXT", help="Its system message.")] = "",
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model it runs on.")] = "",
) -> ExitCode | None:
    """Add an agent."""
    config = AgentConfig(name=name, description=description, model=model)
    agent = call.write(lambda store: store.agents.create(config), create=True)
    done = {"agent": agent_document(agent, None)}
    call.answer(done, lambda screen: screen.show(f"added {one_line(agent.name)} ({agent.id})"))
    return None


@command(app, "remove")
def remove(call: Call, name: Name) -> ExitCode | None:
    """Remove an agent; its sessions stay."""
    agent = call.write(lambda store: _remove(store, name))
    done = {"removed": {"id": agent.id, "name": agent.name}}
    call.answer(done, lambda screen: screen.show(f"removed {one_line(agent.name)}; its sessions stay"))
    return None


@command(app, "default")
def default(
    call: Call,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The agent to make the default.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Have no default.")] = False,
) -> ExitCode | None:
    """Show the default agent, or choose it."""
    if name and clear:
        raise Refusal(ExitCode.USAGE, "usage", "name an agent, or say --clear: not both")
    chosen = call.write(lambda store: _choose(store, name)) if name or clear else call.read(_default)
    document = agent_document(chosen, chosen.id) if chosen else None
    words = chosen.name if chosen else "no default agent"
    call.answer({"default": document}, lambda screen: screen.show(one_line(words)))
    return None


async def _all(store: Backend) -> tuple[list[AgentConfig], str | None]:
    return await store.agents.configs(), await store.agents.default()


async def _one(store: Backend, name: str) -> Document:
    return agent_document(await find_agent(store, name), await store.agents.default())


async def _remove(store: Backend, name: str) -> AgentConfig:
    agent = await find_agent(store, name)
    await store.agents.delete(agent.id)
    return agent


async def _choose(store: Backend, name: str | None) -> AgentConfig | None:
    agent = await find_agent(store, name) if name else None
    await store.agents.set_default(agent.id if agent else None)
    return agent


async def _default(store: Backend) -> AgentConfig | None:
    default = await store.agents.default()
    return await store.agents.get(default) if default else None


def _draw_all(screen: Screen, agents: list[AgentConfig], default: str | None) -> None:
    columns = [
        Column("name"),
        Column("id"),
        Column("default"),
        Column("model"),
        Column("description", flexible=True),
    ]
    screen.table(
        columns,
        (
            (agent.name, agent.id, "yes" if agent.id == default else "", agent.model, agent.description)
            for agent in agents
        ),
    )


def _facts(document: Document) -> list[tuple[str, str]]:
    shown = ((name, value) for name, value in document.items() if value not in ("", None, [], {}))
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in shown]
