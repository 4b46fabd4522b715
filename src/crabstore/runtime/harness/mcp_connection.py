"""One connection to a tool server that speaks MCP, over stdio or streamable HTTP, through the official SDK.

The only module that imports the SDK (extra `mcp`), and only when an agent declares a server. What a declaration
holds as `env` and `auth` goes to the server and nowhere else: not into a log, an error or a record.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from ...store.agents import McpServer
from ..errors import SdkMissing
from ..finishing import finished
from ..tools import Tool, ToolOutput
from .toolbox import cut

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import ReadStream, Transport, TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp_types import CallToolResult, ContentBlock

__all__ = ["Broken", "Connect", "Connection", "SdkConnection", "connect"]

_PAGES = 100
"""Pages of a server's list of tools: a listing that never ends must not hang a run."""
_ANSWER = 100_000
"""Characters of one answer that reach the model."""
_DESCRIPTION = 10_000
"""Characters of a tool's description: every request carries it."""
_SECRET = 6
"""Characters from which on a value of `env` is taken out of a text: shorter ones are words, not secrets."""


class Broken(Exception):
    """A server could not be reached, or is gone; the text holds none of the declaration's secrets."""


class Connection(Protocol):
    """A server that answers. Made by a `Connect`."""

    tools: list[Tool]
    """As the server names them."""
    instructions: str
    """What the server says of itself, "" if nothing."""

    @property
    def closed(self) -> bool:
        """Whether the other end is gone."""

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutput:
        """The answer to one call. Raises Broken if the connection is of no use any more."""

    async def close(self) -> None:
        """End the connection, and the process that was started for it."""


class Connect(Protocol):
    """Opens a connection to a declared server. Raises Broken."""

    async def __call__(self, declared: McpServer, limits: Limits, /) -> Connection: ...


@dataclass(frozen=True)
class Limits:
    """What a server may take; passed in by the host."""

    connect: float = 30.0
    """Seconds until it has said which tools it has: a run waits for that."""
    call: float = 120.0
    """Seconds until a call is answered; a server that takes longer is taken to hang, and is let go of."""
    idle: float = 300.0
    """Seconds without a call until it is shut down."""
    close: float = 10.0
    """Seconds to say goodbye in. The SDK gives a process up to seven, so leave it alone."""


class SdkConnection:
    """A connection that a task of its own keeps open: the SDK must leave its contexts where it entered them."""

    def __init__(self, declared: McpServer, limits: Limits) -> None:
        self.tools: list[Tool] = []
        self.instructions = ""
        self._declared = declared
        self._limits = limits
        self._client: Client
        self._over = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.ensure_future(self._keep())

    @property
    def closed(self) -> bool:
        return self._over.is_set() or self._keeper.done()

    async def opened(self) -> None:
        """Wait until the server has said which tools it has. Raises Broken; nothing of it is left then."""
        try:
            async with asyncio.timeout(self._limits.connect):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self._abandon()
            raise Broken(f"no answer in {self._limits.connect:g} s") from None
        except BaseException:
            await self._abandon()
            raise

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutput:
        if self.closed:
            raise Broken("the connection is closed")
        try:
            async with asyncio.timeout(self._limits.call):
                return _output(await self._client.call_tool(name, arguments))
        except TimeoutError:
            raise Broken(f"no answer in {self._limits.call:g} s") from None
        except Exception as error:  # noqa: BLE001 - the SDK, its transports and the server raise what they like
            text = self._shown(error)
            if not self._of_the_server(error):
                raise Broken(text) from None
            return ToolOutput(text, is_error=True)

    async def close(self) -> None:
        self._over.set()
        await finished(self._closing())

    async def _closing(self) -> None:
        await asyncio.wait([self._keeper], timeout=self._limits.close)
        if not self._keeper.done():  # over HTTP the SDK would wait for ever
            await self._abandon()

    async def _abandon(self) -> None:
        self._keeper.cancel()
        await finished(_ended(self._keeper))

    async def _keep(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                self._client = await _client(self._declared, stack, self._over.set)
                self.tools = await _listed(self._client)
                self.instructions = self._client.instructions or ""
                self._ready.set_result(None)
                await self._over.wait()
        except Exception as error:  # noqa: BLE001 - see call; from here it could only end a task that nobody awaits
            self._fail(Broken(self._shown(error)))
        finally:
            self._over.set()
            self._fail(Broken("the connection was closed"))

    def _fail(self, why: Broken) -> None:
        if not self._ready.done():
            self._ready.set_exception(why)
            self._ready.exception()  # nobody may be waiting any more

    def _of_the_server(self, error: Exception) -> bool:
        """Whether a server that lives said so: over HTTP the SDK gives its transport's failures the same type."""
        from mcp import MCPError  # noqa: PLC0415
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415

        return isinstance(error, MCPError) and error.code != CONNECTION_CLOSED and not self._declared.url

    def _shown(self, error: BaseException) -> str:
        """The first failure in `error`, without what the declaration keeps secret."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = str(error) or type(error).__name__
        for secret in (self._declared.auth, *self._declared.env.values()):
            if len(secret) >= _SECRET:
                text = text.replace(secret, "***")
        return cut(text, 500)


async def connect(declared: McpServer, limits: Limits) -> SdkConnection:
    """Start or reach a server, and ask for its tools. Raises Broken."""
    connection = SdkConnection(declared, limits)
    await connection.opened()
    return connection


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


async def _client(declared: McpServer, stack: AsyncExitStack, ended: Callable[[], None]) -> Client:
    """The client of a declared server, connected; `stack` closes it. `ended` is called when the server is gone."""
    try:
        # It takes most of a second, which is not to be the event loop's.
        await asyncio.to_thread(importlib.import_module, "mcp")
    except ImportError as error:
        raise SdkMissing("mcp") from error
    from mcp import Client  # noqa: PLC0415

    for name in ("mcp.client.stdio", "mcp.client.streamable_http"):
        logging.getLogger(name).addFilter(_without_content)
    transport = _watched(await _transport(declared, stack), ended)
    return await stack.enter_async_context(Client(transport, cache=None))


async def _transport(declared: McpServer, stack: AsyncExitStack) -> Transport:
    """Raises Broken for a declaration that names no server, or two."""
    if bool(declared.command) == bool(declared.url):
        raise Broken("it must have either a command or a url")
    if declared.url:
        return await _http(declared, stack)
    from mcp import StdioServerParameters, stdio_client  # noqa: PLC0415

    started = StdioServerParameters(command=declared.command, args=declared.args, env=declared.env)
    return stdio_client(started, errlog=stack.enter_context(_nowhere()))


def _nowhere() -> TextIO:
    """What a server writes beside the protocol may hold its environment: it is shown to nobody."""
    return Path("/dev/null").open("w", encoding="utf-8")


async def _http(declared: McpServer, stack: AsyncExitStack) -> Transport:
    import httpx2  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    # A scheme of its own is kept; a bare token is a bearer's.
    auth = declared.auth if " " in declared.auth else f"Bearer {declared.auth}"
    headers = {"Authorization": auth} if declared.auth else {}
    # A call is bounded where it is made; a stream of events may be silent as long as it likes.
    timeout = httpx2.Timeout(30.0, read=None)
    # It reads the certificates that it trusts, a tenth of a second that is not to be the event loop's.
    client = await asyncio.to_thread(httpx2.AsyncClient, headers=headers, timeout=timeout)
    await stack.enter_async_context(client)
    return streamable_http_client(declared.url, http_client=client)


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[TransportStreams], ended: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    async with transport as (read, write):
        yield _Watched(read, ended), write


class _Watched:
    """A stream of messages that tells when its reader is through with it: the SDK has no word for that."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self._stream.__anext__()

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        self._ended()
        return await self._stream.__aexit__(kind, error, where)


async def _listed(client: Client) -> list[Tool]:
    """Every tool of the server, in its order."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [
            Tool(tool.name, cut(tool.description or "", _DESCRIPTION), tool.input_schema)
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _output(result: CallToolResult) -> ToolOutput:
    parts = [_text(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return ToolOutput(cut("\n".join(parts), _ANSWER), is_error=result.is_error)


def _text(block: ContentBlock) -> str:
    """What a block is to a model that reads text; of an image or a sound, that there is one."""
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"[{block.uri}]"
    if block.type == "resource":
        text: str = getattr(block.resource, "text", "") or f"[{block.resource.uri}]"
        return text
    return f"[{block.type}: {block.mime_type}]"


def _without_content(record: logging.LogRecord) -> bool:
    """What a server prints may hold what it was started with: the SDK's tracebacks would log that."""
    record.exc_info = None
    return True
