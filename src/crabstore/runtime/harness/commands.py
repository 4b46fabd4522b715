"""Commands of a shell with an end: a time limit, an output limit, a clean environment, and no process left.

A command is the leader of a process group of its own, and the group is killed when the command has ended, whatever
the reason. That is order, not safety: a program may read and write all that the user of this process may, and one
that makes a session of its own outlives its group.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from ..finishing import finished

__all__ = ["CommandLimits", "Finished", "Output", "run"]

_SHELL = "/bin/sh"


@dataclass(frozen=True)
class CommandLimits:
    """What one command may take; passed in by the host."""

    seconds: float = 60.0
    """Until a command is killed that asked for no other time."""
    most_seconds: float = 600.0
    """What a command may ask for. A run waits that long, so leave it alone unless builds take longer."""
    kept: int = 32 * 1024
    """Bytes of output that are shown from its beginning, and as many from its end."""
    flood: int = 16 * 1024 * 1024
    """Bytes of output after which the command is killed: more is a loop, not a report."""
    settle: float = 1.0
    """Seconds that the output of an ended command is waited for: who holds it now is no part of the command."""


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    output: str
    """What it wrote to both of its outputs, the middle left out if it was long."""
    code: int | None
    """Its exit code, negative for the signal that ended it; None if it was killed from here."""
    why: str = ""
    """Why it was killed, "" if it was not."""


class Output:
    """The beginning and the end of what is added to it, in bounded memory."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0
        """Bytes that were added."""

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._kept - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._kept:
            self._tail_size -= len(self._tail.popleft())

    def text(self) -> str:
        tail = b"".join(self._tail)[-self._kept :]
        missing = self.total - len(self._head) - len(tail)
        gap = f"\n[{missing} bytes left out]\n".encode() if missing else b""
        return (bytes(self._head) + gap + tail).decode(errors="replace")


class _Watch(asyncio.SubprocessProtocol):
    """Takes a command's output until it floods, and tells when it has ended."""

    def __init__(self, output: Output, flood: int) -> None:
        self._output = output
        self._flood = flood
        self.exited = asyncio.get_running_loop().create_future()
        """Done when the command has ended; its value says whether it flooded."""
        self.closed = asyncio.Event()
        """Set when nobody holds its output any more, too."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._output.add(data)
        if self._output.total > self._flood:
            self._end(flooded=True)

    def process_exited(self) -> None:
        self._end(flooded=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def _end(self, *, flooded: bool) -> None:
        if not self.exited.done():
            self.exited.set_result(flooded)


_Started: TypeAlias = tuple[asyncio.SubprocessTransport, _Watch]


async def run(
    command: str, *, cwd: str, environment: Mapping[str, str], seconds: float, limits: CommandLimits
) -> Finished:
    """Run `command` in a shell and wait for its end. Raises OSError if it could not be started."""
    output = Output(limits.kept)
    starting = asyncio.ensure_future(_start(command, cwd, environment, _Watch(output, limits.flood)))
    try:
        transport, watch = await asyncio.shield(starting)
        why = await _end_of(watch, seconds, limits)
    finally:
        # The program runs before its start is done here: a cancellation in between must find it, too.
        await finished(_clear(starting, limits.settle))
    return Finished(output.text(), None if why else transport.get_returncode(), why)


async def _start(command: str, cwd: str, environment: Mapping[str, str], watch: _Watch) -> _Started:
    return await asyncio.get_running_loop().subprocess_exec(
        lambda: watch,
        *(_SHELL, "-c", command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        env=dict(environment),
        start_new_session=True,
    )


async def _clear(starting: asyncio.Future[_Started], settle: float) -> None:
    """Kill what is left of a command, take the output that is on its way, and let go."""
    await asyncio.wait([starting])
    if starting.exception() is not None:
        return
    transport, watch = starting.result()
    _kill_group(transport.get_pid())
    with suppress(TimeoutError):
        async with asyncio.timeout(settle):
            await watch.closed.wait()
    transport.close()


async def _end_of(watch: _Watch, seconds: float, limits: CommandLimits) -> str:
    """Wait until the command has ended, or has to; why it has to, "" if it ended by itself."""
    try:
        async with asyncio.timeout(seconds):
            flooded = await asyncio.shield(watch.exited)
    except TimeoutError:
        return f"killed after {seconds:g} s"
    return f"killed after {limits.flood} bytes of output" if flooded else ""


def _kill_group(leader: int) -> None:
    # The leader may be gone and reaped; as long as one of its group lives, its number is nobody else's.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
