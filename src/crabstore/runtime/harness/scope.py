"""One agent at work: as it was built, with the tools it may call and what its system message says of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...store.agents import AgentConfig
from ...store.messages import HistoryEntry, ToolCall
from ...store.records import evolve
from ..events import Told
from ..tools import Tool, ToolOutput
from ..wire import clean
from .base import Context, Harness
from .guard import Guard

__all__ = ["Scope"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Scope:
    """The harnesses that take part in the runs of one built, resolved agent, in their order."""

    def __init__(self, agent: AgentConfig, harnesses: Sequence[Harness], guard: Guard) -> None:
        self.agent = agent
        self._harnesses = harnesses
        self._guard = guard
        self._owners: dict[str, Harness] = {}
        self._tools: list[Tool] = []
        self._usages: list[str] = []
        for harness in harnesses:
            self._admit(harness)

    @property
    def tools(self) -> Sequence[Tool]:
        """What the model is told that it may call."""
        return self._tools

    @property
    def system(self) -> str:
        """The agent's description, then what its harnesses say of themselves."""
        return "\n\n".join(text for text in (self.agent.description, *self._usages) if text)

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        """The answer to a call; an error for one outside the scope, which no harness ever sees."""
        harness = self._owners.get(call.name)
        if harness is None:
            return ToolOutput(f"there is no tool {call.name!r} here", is_error=True)
        if not isinstance(call.arguments, dict):
            return ToolOutput(f"the arguments of {call.name} must be a JSON object", is_error=True)
        with self._guard.containing(harness, "dispatch") as attempt:
            output = _require_output(await harness.dispatch(context, call))
            return ToolOutput(clean(output.text), output.is_error)
        return ToolOutput(clean(f"{call.name} failed: {attempt.shown}"), is_error=True)

    async def preprocess(self, context: Context, entry: HistoryEntry) -> list[HistoryEntry]:
        """What the harnesses put before a user's message; each is marked, and never stored."""
        injected: list[HistoryEntry] = []
        for harness in self._harnesses:
            with self._guard.containing(harness, "preprocess"):
                if harness.takes_part(self.agent):
                    injected.extend(await harness.preprocess(context, entry))
        return list(_marked(injected))

    async def on_event(self, context: Context, event: Told) -> None:
        """Tell every harness, in order."""
        for harness in self._harnesses:
            with self._guard.containing(harness, "on_event"):
                await harness.on_event(context, event)

    def _admit(self, harness: Harness) -> None:
        """Take in what a harness grants; a tool that no model could be told of is left out and reported."""
        with self._guard.containing(harness, "schema"):
            granted = frozenset(harness.scoped_tools(self.agent))
            offered = [tool for tool in harness.schema(self.agent) if tool.name in granted]
            usage = harness.usage(self.agent) if offered else ""
            self._usages.append(usage)
            for tool in offered:
                with self._guard.containing(harness, "schema"):
                    self._take(harness, tool)

    def _take(self, harness: Harness, tool: Tool) -> None:
        if not _NAME.fullmatch(tool.name):
            raise ValueError(f"the tool name {tool.name!r} is not 1 to 64 letters, digits, _ or -")
        if tool.name in self._owners:
            owner = self._owners[tool.name].name
            raise ValueError(f"the tool {tool.name!r} belongs to the harness {owner!r} already")
        self._owners[tool.name] = harness
        self._tools.append(tool)


def _require_output(output: object) -> ToolOutput:
    """`output`, if a harness answered with what it has to. Raises TypeError."""
    if not isinstance(output, ToolOutput) or not isinstance(output.text, str):
        raise TypeError(f"it answered with {type(output).__name__}, not with a ToolOutput of text")
    return output


def _marked(entries: Iterable[HistoryEntry]) -> Iterable[HistoryEntry]:
    for entry in entries:
        injected = evolve(entry, mark="injected")
        injected.auto_injected = True
        yield injected
