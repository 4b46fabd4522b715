"""A declared tool server of one agent: connected when it is needed, let go of when it is idle or gone.

Knows no SDK: it works with whatever `Connect` opens.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from ...store.agents import McpServer
from ..clock import Clock
from ..tools import Tool, ToolOutput
from .mcp_connection import Broken, Connect, Connection, Limits

__all__ = ["Server"]

_LONGEST = 64
"""Letters of a tool's name that every provider accepts."""


class Server:
    """The tools of a server, and its connection while there is one; `idled` is called when that was let go of."""

    def __init__(
        self, declared: McpServer, connect: Connect, limits: Limits, clock: Clock, idled: Callable[[], None]
    ) -> None:
        self.declared = declared
        self.tools: dict[str, tuple[str, Tool]] = {}
        """By the name that the model is told: what the server calls it, and the tool as the model knows it."""
        self.instructions = ""
        """What the server says of itself."""
        self._connect = connect
        self._limits = limits
        self._clock = clock
        self._idled = idled
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._calls = 0
        self._used = 0.0
        self._died = False
        self._watch: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, or one is being opened."""
        return self._connection is not None or self._turn.locked()

    async def start(self) -> str:
        """Be connected, if that may be; why it is not, "" if it is."""
        try:
            await self._open()
        except Broken as error:
            return f"the server {self.declared.name!r} is not available: {error}"
        return ""

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutput:
        """The answer to a call of the tool that the model knows by `name`."""
        self._calls += 1
        try:
            return await self._answer(name, arguments)
        except Broken as error:
            return ToolOutput(f"the server {self.declared.name!r} failed: {error}", is_error=True)
        finally:
            self._calls -= 1
            self._used = self._clock.monotonic()

    async def close(self) -> None:
        """Shut it down."""
        if self._connection is not None:
            await self._let_go(self._connection)

    async def _answer(self, name: str, arguments: dict[str, object]) -> ToolOutput:
        connection = await self._open()
        if name not in self.tools:
            return ToolOutput(
                f"the server {self.declared.name!r} has no tool {name!r} any more", is_error=True
            )
        try:
            return await connection.call(self.tools[name][0], arguments)
        except Broken:
            self._died = True
            await self._let_go(connection)
            raise

    async def _open(self) -> Connection:
        """The connection, opened if there is none. Raises Broken."""
        async with self._turn:
            if self._connection is not None and self._connection.closed:
                self._died = True
                await self._let_go(self._connection)
            if self._connection is None:
                self._connection = await self._opened()
            return self._connection

    async def _opened(self) -> Connection:
        if self._died and not self.declared.auto_restart:
            raise Broken("it has ended, and auto_restart is off")
        connection = await self._connect(self.declared, self._limits)
        self.tools = _named(self.declared.name, connection.tools)
        self.instructions = connection.instructions
        self._used = self._clock.monotonic()
        self._watch = asyncio.ensure_future(self._let_go_when_idle(connection))
        return connection

    async def _let_go_when_idle(self, connection: Connection) -> None:
        while (left := self._used + self._limits.idle - self._clock.monotonic()) > 0 or self._calls:
            await self._clock.sleep(left if left > 0 else self._limits.idle)
        await self._let_go(connection)
        self._idled()

    async def _let_go(self, connection: Connection) -> None:
        if self._connection is connection:  # or somebody else was faster, and there may be another by now
            self._connection = None
            if self._watch is not None and self._watch is not asyncio.current_task():
                self._watch.cancel()
        await connection.close()


def _named(server: str, tools: Iterable[Tool]) -> dict[str, tuple[str, Tool]]:
    named: dict[str, tuple[str, Tool]] = {}
    for tool in tools:
        name = _name(server, tool.name)
        if name in named:  # "a.b" and "a_b" are one name to a model
            name = _marked(name, tool.name)
        named[name] = (tool.name, replace(tool, name=name))
    return named


def _name(server: str, tool: str) -> str:
    """The name of a server's tool, in letters that every provider accepts."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server}__{tool}")
    return name if len(name) <= _LONGEST else _marked(name, name)


def _marked(name: str, whole: str) -> str:
    """`name`, told apart from its like by a digest of what it stands for."""
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST - len(mark) - 1]}_{mark}"
