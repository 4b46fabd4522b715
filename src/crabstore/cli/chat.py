"""`crabstore chat`: a conversation, line by line. A line typed while an answer arrives steers it."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import Iterator

from ..answers.failures import ExitCode, Refusal
from ..daemon.client import path_of
from ..daemon.extra import require_extra
from .call import Call
from .console import one_line
from .daemon import Door, talking
from .run import AgentOption, SessionOption
from .telling import Telling, opened_session, start

__all__ = ["chat"]

_CHUNK = 1 << 16
_PROMPT = "> "


def chat(call: Call, agent: AgentOption = "", session: SessionOption = "") -> ExitCode | None:
    """Talk with an agent: Ctrl-C stops its answer, Ctrl-D ends."""
    require_extra()
    if agent and session:
        raise Refusal(
            ExitCode.USAGE, "usage", "a session has its agent: --agent and --session exclude each other"
        )
    if call.json:
        raise Refusal(ExitCode.USAGE, "usage", "a chat is for people: `crabstore run --json` is for programs")
    asyncio.run(_chat(call, agent, session))
    return None


async def _chat(call: Call, agent: str, session: str) -> None:
    loop = asyncio.get_running_loop()
    async with talking(call) as door:
        talk = _Chat(call, door, agent, session)
        # It stays to the end: a second Ctrl-C must not cut off what the daemon in this process still has to write.
        loop.add_signal_handler(signal.SIGINT, talk.interrupt)
        await talk.go_on()


class _Chat:
    """One conversation."""

    def __init__(self, call: Call, door: Door, agent: str, session: str) -> None:
        self._call = call
        self._door = door
        self._agent = agent
        self._session = session
        self._lines = _Lines()
        self._answering: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[object] | None = None

    async def go_on(self) -> None:
        """Until the input ends and the last answer has come."""
        self._prompt()
        while (line := await self._lines.next()) is not None:
            if line.strip():
                await self._say(line)
            elif self._answering is None:
                self._prompt()
        if self._answering is not None:
            await self._answering

    def interrupt(self) -> None:
        """Ctrl-C: stop the answer, or, where none arrives, end."""
        if self._answering is None:
            self._lines.end()
        else:
            path = path_of("sessions", self._session, "cancel")
            self._stopping = asyncio.ensure_future(self._door.ask("POST", path))

    async def _say(self, line: str) -> None:
        if self._answering is not None and await self._steered(line):
            return
        if self._answering is not None:
            await self._answering  # it ended while we spoke: this is a message of its own
        if not self._session:
            self._session = await opened_session(self._door, self._agent, line)
            self._call.note(f"session {one_line(self._session)}")
        self._answering = asyncio.create_task(self._answer(line))

    async def _steered(self, line: str) -> bool:
        try:
            await self._door.ask("POST", path_of("sessions", self._session, "steer"), {"message": line})
        except Refusal as error:
            if error.failure.kind != "not-running":
                raise
            return False
        return True

    async def _answer(self, line: str) -> None:
        try:
            ended = await Telling(self._call).follow(start(self._door, self._session, line))
            if ended.stop_reason == "cancelled":
                self._call.note("cancelled")
        except Refusal as error:
            self._call.note(f"crabstore: {error}")
        self._answering = None
        self._prompt()

    def _prompt(self) -> None:
        if sys.stdin.isatty() and not self._lines.ended:
            sys.stderr.write(_PROMPT)
            sys.stderr.flush()


class _Lines:
    """The lines of stdin as they come.

    The descriptor is read when something is there and never made non-blocking: a terminal shares it with stdout.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._held = b""
        self._loop = asyncio.get_running_loop()
        self._place = -1
        self.ended = False
        try:
            place = sys.stdin.fileno()
            self._loop.add_reader(place, self._read)
            self._place = place
        except (
            io.UnsupportedOperation,
            PermissionError,
        ):  # no descriptor, or a file, which is always readable
            for line in sys.stdin:
                self._queue.put_nowait(line.rstrip("\n"))
            self.end()

    async def next(self) -> str | None:
        """The next line; None at the end."""
        return await self._queue.get()

    def end(self) -> None:
        """Take no more."""
        if not self.ended:
            self.ended = True
            self._queue.put_nowait(None)
            if self._place >= 0:
                self._loop.remove_reader(self._place)

    def _read(self) -> None:
        data = os.read(self._place, _CHUNK)
        for line in self._split(data):
            self._queue.put_nowait(line.decode(errors="replace"))
        if not data:
            self.end()

    def _split(self, data: bytes) -> Iterator[bytes]:
        """Whole lines; at the end also what has no newline."""
        *whole, self._held = (self._held + data).split(b"\n")
        yield from whole
        if not data and self._held:
            yield self._held
