"""The daemon that a call talks to: the one that holds its store, or one in this process while it is needed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import crabdb

from ..answers.documents import Document
from ..answers.failures import ExitCode, Refusal
from ..daemon.client import Client, Event
from ..daemon.home import STORE, Home
from ..opening import file_of
from .call import Call

__all__ = ["Door", "home_of", "talking"]

_TRIES, _BETWEEN = 100, 0.05
"""How often a daemon is looked for that begins or ends at this moment, and seconds between."""
_NOTHING_DONE = ("no-daemon", "shutting-down")
"""Kinds of failures of a request that can be made again, of the next daemon."""


def home_of(call: Call) -> Home:
    """The folder of the call's store. Raises Refusal for a store that no daemon can hold."""
    path = file_of(call.url)
    if path is None or Path(path).name != STORE:
        problem = (
            f"a daemon serves a folder with a file {STORE} in it: name that file with --store, not {call.url}"
        )
        raise Refusal(ExitCode.USAGE, "usage", problem)
    return Home(Path(path).absolute().parent)


class Door:
    """The way to whichever daemon serves a home. Where none does, this process begins to, on the socket alone: so
    other commands can steer what goes on here, too.
    """

    def __init__(self, home: Home, stack: AsyncExitStack) -> None:
        self._home = home
        self._stack = stack
        self._client = Client(home.socket)

    async def ask(self, method: str, path: str, body: object = None) -> Document:
        """As `Client.ask`."""
        for _ in range(_TRIES):
            await self._open()
            try:
                return await self._client.ask(method, path, body)
            except Refusal as error:
                await _wait_or_raise(error)
        return await self._client.ask(method, path, body)

    async def stream(self, method: str, path: str, body: object = None) -> AsyncGenerator[Event, None]:
        """As `Client.stream`."""
        for _ in range(_TRIES):
            await self._open()
            try:
                async with aclosing(self._client.stream(method, path, body)) as events:
                    async for event in events:
                        yield event
            except Refusal as error:
                await _wait_or_raise(error)
            else:
                return

    async def _open(self) -> None:
        """Begin to serve, unless somebody does."""
        if await self._client.reachable():
            return
        from ..daemon.serving import serving  # noqa: PLC0415 - an extra, and slow to import

        # What happens to a run is told by the run; a log is for whoever serves for long.
        logging.getLogger("crabstore").addHandler(logging.NullHandler())
        for attempt in range(_TRIES):
            try:
                await self._stack.enter_async_context(serving(self._home, os.environ, tcp=False))
            except crabdb.Locked:
                # Another process begins, or ends, at this moment; or it is no daemon.
                if attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(_BETWEEN)
            if await self._client.reachable():
                return


@asynccontextmanager
async def talking(call: Call) -> AsyncIterator[Door]:
    """The way to the daemon of the call's store."""
    async with AsyncExitStack() as stack:
        yield Door(home_of(call), stack)


async def _wait_or_raise(error: Refusal) -> None:
    if error.failure.kind not in _NOTHING_DONE:
        raise error
    await asyncio.sleep(_BETWEEN)
