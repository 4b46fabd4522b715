"""A run as a person follows it: the answer on stdout as it arrives, what else happens on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..answers.documents import Document
from ..answers.failures import ExitCode
from ..daemon.client import Event, path_of, refused
from .call import Call
from .console import clean
from .daemon import Door

__all__ = ["Ended", "Telling", "opened_session", "start"]

_TITLE = 60
"""Characters of a first message that become its session's title."""
_ARGUMENTS = 200
"""Characters shown of a tool call's arguments."""


class Ended(msgspec.Struct):
    """How a run ended."""

    text: str
    stop_reason: str
    iterations: int
    usage: dict[str, int]
    untaken: list[str] = []

    @property
    def code(self) -> ExitCode | None:
        """Whether it came to an end of its own."""
        return ExitCode.PARTIAL if self.stop_reason in ("cancelled", "max_iterations") else None


@dataclass
class Telling:
    """Tells one run after the other."""

    call: Call
    _open: bool = field(default=False, init=False)
    """Whether the line on stdout has not ended."""

    async def follow(self, events: AsyncGenerator[Event, None]) -> Ended:
        """Tell a run to its end. Raises the Refusal that it failed with."""
        async with aclosing(events):
            return await self._follow(events)

    async def _follow(self, events: AsyncGenerator[Event, None]) -> Ended:
        async for event in events:
            if event.kind == "result":
                self._end_line()
                return msgspec.convert(event.data, Ended)
            if event.kind == "error":
                self._end_line()
                raise refused(event.data)
            self._tell(event.kind, event.data)
        raise AssertionError("a run's stream ends in its result or its error")

    def _tell(self, kind: str, data: Document) -> None:
        match kind, data:
            case "text", {"text": str(text)}:
                self._write(text)
            case "message", {"role": "assistant"}:
                self._end_line()
            case "tool_start", {"calls": list(calls)}:
                for called in calls:
                    self._note(f"· {called['name']} {_short(called['arguments'])}")
            case "retrying", {"error": {"message": message}, "delay": delay}:
                self._note(f"{message}; again in {delay:.0f} s")
            case "harness_failed", {"harness": harness, "message": message}:
                self._note(f"{harness}: {message}")

    def _write(self, text: str) -> None:
        if not self.call.json:
            sys.stdout.write(clean(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def _note(self, message: str) -> None:
        self._end_line()
        self.call.note(message)

    def _end_line(self) -> None:
        if self._open:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open = False


async def opened_session(door: Door, agent: str, message: str) -> str:
    """The handle of a new session of this agent (name, id, or "" for the default one)."""
    title = " ".join(message.split())[:_TITLE]
    body = {"agent": agent, "title": title, "root": str(Path.cwd())}
    answer = await door.ask("POST", path_of("sessions"), body)
    session = answer["session"]
    assert isinstance(session, dict)
    return str(session["handle"])


def start(door: Door, handle: str, message: str) -> AsyncGenerator[Event, None]:
    """The events of a new run."""
    return door.stream("POST", path_of("sessions", handle, "runs"), {"message": message})


def _short(arguments: object) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= _ARGUMENTS else f"{text[:_ARGUMENTS]}…"
