"""Serving a home: its socket, its TCP port, the signals that end it or have it read its configuration again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ..answers.failures import ExitCode, Refusal
from ..runtime import Clock
from .api.app import LOCAL, OPERATIONS, build
from .application import Daemon
from .config import BadConfig
from .guard import Guard
from .home import Home

__all__ = ["Serving", "serving"]

_MOST_PATH = 107
"""Bytes of a socket's path, by the system's own structure."""
_MAX_LOCAL_BODY = 1 << 30
"""Bytes of a request over the socket: its sender could write the file itself."""
_BACKLOG = 1024
"""Connections that wait to be taken."""
_GRACE = 5
"""Seconds that answers get to reach their clients when everything has ended."""


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A daemon that listens."""

    def __init__(self, daemon: Daemon, port: int | None) -> None:
        self.daemon = daemon
        self.port = port
        """The TCP port, None without one."""
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Begin to end; said again, do not wait for runs any longer."""
        if self._stop.is_set():
            self.daemon.hurry()
        self._stop.set()

    async def stopped(self) -> None:
        """Return when it is to end."""
        await self._stop.wait()

    def heed_signals(self) -> None:
        """Stop at SIGTERM and SIGINT; a second one does not wait for runs. SIGHUP reads the configuration."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        with suppress(BadConfig):  # logged, and told by /v1/health
            self.daemon.reload()


@asynccontextmanager
async def serving(
    home: Home, environ: Mapping[str, str], *, tcp: bool = True, clock: Clock | None = None
) -> AsyncIterator[Serving]:
    """Hold the store of `home` and listen: on its socket, and with `tcp`, if it is configured, on 127.0.0.1.

    Raises what `Daemon.opened` raises, and Refusal for an address that cannot be listened on.
    """
    async with Daemon.opened(home, environ, clock=clock) as daemon, AsyncExitStack() as stack:
        settings = daemon.config.server
        servers = [_listener(daemon, build(daemon, LOCAL), None, _MAX_LOCAL_BODY)]
        sockets = [stack.enter_context(_local(home.socket))]
        port: int | None = None
        if tcp and settings.tcp:
            servers.append(_listener(daemon, build(daemon, OPERATIONS), home.secret(), settings.max_body))
            sockets.append(stack.enter_context(_tcp(settings.port)))
            port = sockets[1].getsockname()[1]
        await stack.enter_async_context(_running(servers, sockets))
        stack.enter_context(_published(home.port, port))
        try:
            yield Serving(daemon, port)
        finally:
            await daemon.drain()


def _listener(daemon: Daemon, app: ASGIApp, token: str | None, max_body: int) -> _Server:
    guard = Guard(app, token=token, max_body=max_body, count=daemon.requests.add)
    return _Server(
        uvicorn.Config(
            guard,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
    )


@asynccontextmanager
async def _running(servers: list[_Server], sockets: list[socket.socket]) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(server.serve([place])) for server, place in zip(servers, sockets, strict=True)
    ]
    try:
        yield
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)


@contextmanager
def _local(path: Path) -> Iterator[socket.socket]:
    """The socket, which its owner alone may use. What a dead daemon left there goes: the store's lock says so."""
    if len(os.fsencode(path)) > _MOST_PATH:
        problem = (
            f"{path} is longer than the {_MOST_PATH} bytes that a socket's path may have: use another home"
        )
        raise Refusal(ExitCode.USAGE, "usage", problem)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _tcp(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            problem = (
                f"127.0.0.1:{port} cannot be listened on ({error.strerror}): choose another in config.toml"
            )
            raise Refusal(ExitCode.SYSTEM, "port-taken", problem, port=port) from error
        listening.listen(_BACKLOG)
        yield listening


@contextmanager
def _published(path: Path, port: int | None) -> Iterator[None]:
    """Say which port it is, in one step, while the sockets take connections."""
    path.unlink(missing_ok=True)
    if port is None:
        yield
        return
    new = path.with_name(f".{path.name}.new")
    new.write_text(f"{port}\n", encoding="ascii")
    new.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
