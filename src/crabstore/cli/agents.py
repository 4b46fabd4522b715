"""`crabstore agents`: who the sessions belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..answers.documents import Document, agent_document
from ..answers.failures import ExitCode, Refusal
from ..answers.lookup import find_agent
from ..store.agents import AgentConfig
from ..store.backend import Backend
from ..store.records import evolve
from .call import Call, command, group
from .console import Column, Screen, one_line

__all__ = ["app"]

app = group("List, show, add, change and remove agents; choose the default one.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="An agent's name or id.")]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="Its system message.")]
Model = Annotated[str | None, typer.Option(metavar="MODEL", help="The model it runs on.")]
Members = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Further members: JSON, as `agents show --json` prints it."),
]


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
    description: Description = None,
    model: Model = None,
    file: Members = None,
) -> ExitCode | None:
    """Add an agent."""
    config = _changed(AgentConfig(name=name), file, {"description": description, "model": model})
    agent = call.write(lambda store: store.agents.create(config), create=True)
    done = {"agent": agent_document(agent, None)}
    call.answer(done, lambda screen: screen.show(f"added {one_line(agent.name)} ({agent.id})"))
    return None


@command(app, "change")
def change(
    call: Call,
    name: Name,
    rename: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Its new name.")] = None,
    description: Description = None,
    model: Model = None,
    file: Members = None,
) -> ExitCode | None:
    """Change an agent; what is not named stays."""
    given = {"name": rename, "description": description, "model": model}
    agent, default = call.write(lambda store: _change(store, name, file, given))
    done = {"agent": agent_document(agent, default)}
    call.answer(done, lambda screen: screen.show(f"changed {one_line(agent.name)} ({agent.id})"))
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


async def _change(
    store: Backend, name: str, file: Path | None, given: Mapping[str, str | None]
) -> tuple[AgentConfig, str | None]:
    agent = _changed(await find_agent(store, name), file, given)
    await store.agents.put(agent)
    return agent, await store.agents.default()


def _changed(agent: AgentConfig, file: Path | None, given: Mapping[str, str | None]) -> AgentConfig:
    """`agent` with the members that stand in `file`, and those that were given. Raises Refusal."""
    members = _members(file) if file else {}
    members |= {name: value for name, value in given.items() if value is not None}
    try:
        changed = msgspec.convert({"name": agent.name, **members}, AgentConfig)
    except msgspec.ValidationError as error:
        raise Refusal(ExitCode.USAGE, "usage", f"{file} describes no agent: {error}") from error
    return evolve(agent, **{name: getattr(changed, name) for name in members})


def _members(file: Path) -> dict[str, object]:
    """What a file says of an agent; what it is called is said on the command line."""
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise Refusal(ExitCode.USAGE, "usage", f"{file} is not JSON: {error}") from error
    members = found.get("agent", found) if isinstance(found, dict) else None
    if not isinstance(members, dict):
        raise Refusal(ExitCode.USAGE, "usage", f"{file} must hold a JSON object")
    return {name: value for name, value in members.items() if name not in ("id", "name", "default")}


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
