"""The seam through which tools, context and state reach an agent's runs.

A harness is a subclass of `Harness` that overrides what it needs; every default does nothing and grants nothing.
The order of one run: `on_build_agent`, `on_resolve_agent`, `scoped_tools` and `schema` and `usage`, then per
message `preprocess`, per tool call `dispatch`, per stored message or event `on_event`, and after the last run of
the agent that is going on `on_release_agent`. `on_forget_agent` comes once, when the agent is deleted. What a hook
raises is contained by `Hooks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...store.agents import AgentConfig, HarnessDeclaration
from ...store.messages import HistoryEntry, ToolCall
from ...store.session_records import SessionMeta
from ..events import Told
from ..tools import Tool, ToolOutput

__all__ = ["Context", "Harness", "PartlyResolved"]


class PartlyResolved(Exception):
    """Raised by `on_resolve_agent` when a part of what the agent needs is not there.

    It is reported like any failure of a hook, but the harness takes part with what it has. The text must hold no
    secret: it is logged, and told to whoever follows the run.
    """


@dataclass(frozen=True)
class Context:
    """For whom a hook of one run is called. The host fills it in; nothing in it comes from the model."""

    agent: AgentConfig
    """As it was built for this run."""
    session: SessionMeta
    """As it stood when the run began."""
    sender: str = ""
    """Who wrote the message that the run answers, "" if that was not said."""


class Harness:
    """What takes part in agents' runs. Override any of the methods; none has to be."""

    name: ClassVar[str] = ""
    """What an agent's declaration calls it; unique among the harnesses of a runtime."""

    # -- an agent comes and goes --

    async def on_build_agent(self, agent: AgentConfig) -> AgentConfig:
        """The configuration to run with, from the stored one (or an earlier harness'); the id stays."""
        return agent

    async def on_resolve_agent(self, agent: AgentConfig) -> None:
        """Put in place what this agent's runs need. Before every run, so it must be idempotent.

        If it raises, the run goes on without this harness; with PartlyResolved, with what it has.
        """

    async def on_release_agent(self, agent_id: str) -> None:
        """No run of the agent is going on any more: let go of what the next `on_resolve_agent` can make again.

        So state is proportional to the agents at work. Called also where `on_resolve_agent` failed.
        """

    async def on_forget_agent(self, agent_id: str) -> None:
        """The agent was deleted; nothing will resolve this id again. It may never have been resolved here."""

    # -- what the model is told --

    def scoped_tools(self, agent: AgentConfig) -> Sequence[str]:
        """The names of the tools that this agent may call. The declaration is the grant.

        By default all of `schema` for an agent that declares this harness by name, none for any other.
        """
        return [tool.name for tool in self.schema(agent)] if self.declaration(agent) else []

    def declaration(self, agent: AgentConfig) -> HarnessDeclaration | None:
        """The agent's declaration of this harness, the first one of several; None if it has none."""
        return next((declared for declared in agent.harnesses if declared.name == self.name), None)

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        """The tools that this harness has for the agent; called when it is resolved."""
        return ()

    def usage(self, agent: AgentConfig) -> str:
        """What the system message says of this harness to an agent that has one of its tools, "" for nothing."""
        return ""

    # -- a run --

    async def preprocess(self, context: Context, entry: HistoryEntry) -> Sequence[HistoryEntry]:
        """Entries to put before a user's message, for this run only: they are never stored.

        Only asked for agents that the harness grants something (see `takes_part`).
        """
        return ()

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        """Answer one call of a tool in the agent's scope; `arguments` is a JSON object, not checked further.

        Cancellation may come at any await. What it raises becomes an error result.
        """
        return ToolOutput(f"the harness {self.name} has no tool {call.name}", is_error=True)

    async def on_event(self, context: Context, event: Told) -> None:
        """Something was stored: a message or a line of the trace. The run waits for it, so be brief."""

    def takes_part(self, agent: AgentConfig) -> bool:
        """Whether `preprocess` is asked for this agent; by default when `scoped_tools` grants a tool."""
        return bool(self.scoped_tools(agent))

    # -- the end --

    async def close(self) -> None:
        """The runtime ends: let go of everything."""
