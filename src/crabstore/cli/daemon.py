"""The daemon that a call talks to: the one that holds its store, or one in this process while it is needed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import crabdb

from ..answers.failures import ExitCode, Refusal
from ..daemon.client import Client
from ..daemon.home import STORE, Home
from ..opening import file_of
from .call import Call

__all__ = ["home_of", "running", "talking"]

_TRIES, _BETWEEN = 100, 0.05
"""Looks at the socket of a daemon that holds the store and does not listen yet, and seconds between them."""


def home_of(call: Call) -> Home:
    """The folder of the call's store. Raises Refusal for a store that no daemon can hold."""
    path = file_of(call.url)
    if path is None or Path(path).name != STORE:
        problem = (
            f"a daemon serves a folder with a file {STORE} in it: name that file with --store, not {call.url}"
        )
        raise Refusal(ExitCode.USAGE, "usage", problem)
    return Home(Path(path).absolute().parent)


async def running(call: Call) -> Client:
    """The daemon of the call's store. Raises Refusal if none runs."""
    home = home_of(call)
    client = Client(home.socket)
    if not await client.reachable():
        problem = f"no daemon serves {home.path}, so nothing is going on there: `crabstore serve`"
        raise Refusal(ExitCode.MISSING, "no-daemon", problem)
    return client


@asynccontextmanager
async def talking(call: Call) -> AsyncIterator[Client]:
    """The daemon of the call's store. Where none runs, this process serves the store meanwhile, on the socket
    alone: then other commands can steer what goes on here, too.
    """
    home = home_of(call)
    client = Client(home.socket)
    async with AsyncExitStack() as stack:
        if not await client.reachable():
            await _serve(home, client, stack)
        yield client


async def _serve(home: Home, client: Client, stack: AsyncExitStack) -> None:
    from ..daemon.serving import serving  # noqa: PLC0415 - an extra, and slow to import

    # What happens to a run is told by the run; a log is for whoever serves for long.
    logging.getLogger("crabstore").addHandler(logging.NullHandler())
    for attempt in range(_TRIES):
        try:
            await stack.enter_async_context(serving(home, os.environ, tcp=False))
        except crabdb.Locked:
            # Another process began at the same moment: it will listen at once, or it is no daemon.
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(_BETWEEN)
            if await client.reachable():
                return
        else:
            return
