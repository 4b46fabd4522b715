"""What the tests of the daemon share: a home in a short path, a daemon in this process or in its own, clients."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crabstore.cli import main
from crabstore.daemon.client import Client, Event, path_of
from crabstore.daemon.home import Home
from crabstore.daemon.serving import Serving, serving

__all__ = [
    "COMMAND",
    "SCRIPTED",
    "Daemon",
    "Held",
    "Process",
    "configured",
    "crabstore",
    "daemon",
    "ended",
    "heard",
    "held",
    "here",
    "process",
    "raw",
    "short_home",
    "write_script",
]

T = TypeVar("T")

COMMAND = [sys.executable, "-c", "import sys; from crabstore.cli import main; sys.exit(main())"]

SCRIPTED = """
model = "play/m"
[providers.play]
kind = "scripted"
script = "script.json"
"""


@contextmanager
def short_home() -> Iterator[Home]:
    """An empty home; a socket's path may not be long, and pytest's folders are."""
    with tempfile.TemporaryDirectory(prefix="crab", dir="/tmp") as folder:
        yield Home(Path(folder) / "h")


def configured(home: Home, config: str = SCRIPTED, *turns: dict[str, Any], repeat: bool = True) -> None:
    """Write a configuration, and the script of the provider `play`."""
    home.make()
    home.config.write_text(config, encoding="utf-8")
    write_script(home, *turns, repeat=repeat)


def write_script(home: Home, *turns: dict[str, Any], repeat: bool = True) -> None:
    script = {"turns": list(turns) or [{"text": "Hello."}], "repeat": repeat}
    (home.path / "script.json").write_text(json.dumps(script), encoding="utf-8")


@dataclass
class Daemon:
    """A daemon in this process."""

    home: Home
    served: Serving
    client: Client

    @property
    def provider(self) -> Any:
        """The scripted provider."""
        return self.served.daemon.runtime._providers.serving("play/m")[0]

    async def agent(self, name: str = "coder", **members: Any) -> str:
        answer: Any = await self.client.ask("POST", path_of("agents"), {"name": name, **members})
        return str(answer["agent"]["id"])

    async def session(self, handle: str, agent: str = "coder") -> str:
        await self.client.ask("POST", path_of("sessions"), {"handle": handle, "agent": agent})
        return handle

    def run(self, handle: str, message: str, **members: Any) -> AsyncIterator[Event]:
        body = {"message": message, **members}
        return self.client.stream("POST", path_of("sessions", handle, "runs"), body)

    async def messages(self, handle: str) -> list[Any]:
        answer: Any = await self.client.ask("GET", path_of("sessions", handle, "messages"))
        return list(answer["messages"])


@asynccontextmanager
async def daemon(home: Home, *, tcp: bool = False) -> AsyncIterator[Daemon]:
    async with serving(home, {}, tcp=tcp) as served:
        yield Daemon(home, served, Client(home.socket))


class Held:
    """A daemon in this process that several tests ask, one after the other, since it takes a while to begin."""

    def __init__(self, runner: asyncio.Runner, there: Daemon) -> None:
        self._runner = runner
        self.there = there
        self.port = there.served.port or 0
        self.token = there.home.secret()

    def run(self, test: Callable[[Daemon], Awaitable[T]]) -> T:
        """Run one test against it."""

        async def run() -> T:
            return await test(self.there)

        return self._runner.run(run())


@contextmanager
def held(config: str = "") -> Iterator[Held]:
    """A daemon, on a port as well, that has the agent `coder`."""
    with short_home() as home, asyncio.Runner() as runner:
        configured(home, SCRIPTED + config)
        serving = daemon(home, tcp=True)
        there = runner.run(_entered(serving))
        try:
            found = Held(runner, there)
            found.run(lambda there: there.agent())
            yield found
        finally:
            runner.run(_left(serving))


async def _entered(serving: AbstractAsyncContextManager[Daemon]) -> Daemon:
    return await serving.__aenter__()


async def _left(serving: AbstractAsyncContextManager[Daemon]) -> None:
    await serving.__aexit__(None, None, None)


async def ended(events: AsyncIterator[Event]) -> Event:
    """The last event of a run."""
    last = [event async for event in events][-1]
    assert last.kind in ("result", "error")
    return last


async def heard(events: AsyncIterator[Event], kind: str) -> Event:
    """Read up to the first event of this kind."""
    async for event in events:
        if event.kind == kind:
            return event
    raise AssertionError(f"the stream ended without {kind}")


async def raw(port: int, data: bytes) -> bytes:
    """What a server answers to these bytes before it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


@dataclass
class Process:
    """A daemon in a process of its own, which has said that it serves."""

    popen: subprocess.Popen[str]
    serving: Any

    @property
    def port(self) -> int:
        return int(self.serving["port"])

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Have it end, and wait for that; its exit code."""
        self.popen.send_signal(number)
        return self.popen.wait(timeout=30)


@contextmanager
def process(home: Home, **environ: str) -> Iterator[Process]:
    """`crabstore serve` for this home; killed at the end if it still runs."""
    with (home.path / "log").open("a") as log:
        popen = subprocess.Popen(
            [*COMMAND, "serve", "--json", "--store", str(home.store)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **environ},
        )
    try:
        assert popen.stdout is not None
        line = popen.stdout.readline()
        assert line, (home.path / "log").read_text()
        yield Process(popen, json.loads(line)["serving"])
    finally:
        popen.kill()
        popen.wait()
        assert popen.stdout is not None
        popen.stdout.close()


def crabstore(home: Home, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command on the store of this home, in a process of its own."""
    command: Sequence[str] = [*COMMAND, *words, "--store", str(home.store)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


def here(home: Home, *words: str) -> tuple[int, str]:
    """Run a command in this process; its exit code, and what it printed."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main([*words, "--store", str(home.store)])
    return code, out.getvalue()
