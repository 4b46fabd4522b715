"""mcp: the tools of servers that an agent declares, as `server__tool`.

Internal: it needs no declaration but that of the servers. A server is started for the agent's first run, shared by
the agent's runs, shut down when nobody has called it for a while, and reconnected by the next call. One that fails
gives an error result, or is left out and reported; it never takes a run down.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from ...store.agents import AgentConfig, McpServer
from ...store.messages import ToolCall
from ..clock import Clock
from ..tools import Tool, ToolOutput
from .base import Context, Harness, PartlyResolved
from .mcp_connection import Connect, Limits, connect
from .mcp_server import Server
from .toolbox import cut

__all__ = ["Limits", "McpHarness"]

_INSTRUCTIONS = 2000
"""Characters of what a server says of itself that stand in the system message."""


class McpHarness(Harness):
    """The servers of the agents at work, and of those that worked a moment ago."""

    name = "mcp"

    def __init__(
        self, *, limits: Limits | None = None, clock: Clock | None = None, connect: Connect = connect
    ) -> None:
        self._limits = limits or Limits()
        self._clock = clock or Clock()
        self._connect = connect
        self._servers: dict[str, dict[str, Server]] = {}
        self._working: set[str] = set()

    @property
    def at_work(self) -> frozenset[str]:
        """The ids of the agents whose servers are held."""
        return frozenset(self._servers)

    async def on_resolve_agent(self, agent: AgentConfig) -> None:
        self._working.add(agent.id)
        await self._drop_undeclared(agent)
        if not agent.mcps:
            return
        servers = self._servers.setdefault(agent.id, {})
        for declared in _declared(agent).values():
            servers.setdefault(declared.name, self._server(agent.id, declared))
        failures = await asyncio.gather(*(server.start() for server in servers.values()))
        failed = [*_doubles(agent), *(failure for failure in failures if failure)]
        if failed:
            raise PartlyResolved("; ".join(failed))

    async def on_release_agent(self, agent_id: str) -> None:
        self._working.discard(agent_id)
        self._drop_idle(agent_id)

    async def on_forget_agent(self, agent_id: str) -> None:
        await _close(self._servers.pop(agent_id, {}))

    def scoped_tools(self, agent: AgentConfig) -> Sequence[str]:
        return [tool.name for tool in self.schema(agent)]

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return [tool for server in self._of(agent) for _, tool in server.tools.values()]

    def usage(self, agent: AgentConfig) -> str:
        return "\n\n".join(
            f"About the tools {server.declared.name}__*:\n{cut(server.instructions, _INSTRUCTIONS)}"
            for server in self._of(agent)
            if server.instructions
        )

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        for server in self._of(context.agent):
            if call.name in server.tools and isinstance(call.arguments, dict):
                return await server.call(call.name, dict(call.arguments))
        return ToolOutput(f"the server of {call.name} is not declared any more", is_error=True)

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(_close(each) for each in servers.values()))

    def _of(self, agent: AgentConfig) -> Iterator[Server]:
        """The servers that this run's configuration declares: another run of the agent may have another one."""
        held = self._servers.get(agent.id, {})
        for declared in _declared(agent).values():
            server = held.get(declared.name)
            if server is not None and server.declared == declared:
                yield server

    def _server(self, agent_id: str, declared: McpServer) -> Server:
        return Server(declared, self._connect, self._limits, self._clock, partial(self._drop_idle, agent_id))

    async def _drop_undeclared(self, agent: AgentConfig) -> None:
        """Close what the agent no longer declares, or declares otherwise."""
        held = self._servers.get(agent.id, {})
        wanted = _declared(agent)
        stale = {name: server for name, server in held.items() if wanted.get(name) != server.declared}
        for name in stale:
            del held[name]
        await _close(stale)

    def _drop_idle(self, agent_id: str) -> None:
        """Keep nothing for an agent that does not work and has no server running."""
        servers = self._servers.get(agent_id, {})
        if agent_id not in self._working and not any(server.connected for server in servers.values()):
            self._servers.pop(agent_id, None)


def _declared(agent: AgentConfig) -> dict[str, McpServer]:
    """The agent's servers by name; of two with one name, the first."""
    servers: dict[str, McpServer] = {}
    for declared in agent.mcps:
        servers.setdefault(declared.name, declared)
    return servers


def _doubles(agent: AgentConfig) -> list[str]:
    names = Counter(declared.name for declared in agent.mcps)
    return [
        f"{count} servers are called {name!r}: the first one counts"
        for name, count in names.items()
        if count > 1
    ]


async def _close(servers: dict[str, Server]) -> None:
    await asyncio.gather(*(server.close() for server in servers.values()))
