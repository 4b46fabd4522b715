"""A run as its caller sees it: events as they happen, a result at the end, a way to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..store.messages import HistoryEntry
from .events import RunEvent
from .providers.protocol import Usage

__all__ = ["Feed", "Job", "Run", "RunResult"]

T = TypeVar("T")


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    text: str = ""
    """The model's last answer, "" if it gave none."""
    stop_reason: str = "end_turn"
    """The model's own (see `Reply`), "max_iterations", or "cancelled"."""
    iterations: int = 0
    """Answers that the model gave."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of all of them."""


class Feed:
    """The events of one run, for any number of readers, each from the first event on."""

    def __init__(self) -> None:
        self._events: list[RunEvent] = []
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, event: RunEvent) -> None:
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def read(self) -> AsyncIterator[RunEvent]:
        at = 0
        while True:
            changed = self._changed
            while at < len(self._events):
                yield self._events[at]
                at += 1
            if self._closed and at == len(self._events):
                return
            await changed.wait()  # it is set already if something came while an event was handed out

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Job(Generic[T]):
    """Work in a session's turn: waiting, going on, or done. It goes on whether or not anybody waits for it."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        """The session's."""
        self.agent_id = ""
        """The id of the agent that works, "" while the job waits for its turn."""
        self.untaken: list[HistoryEntry] = []
        """What was said and never stored, since the work ended before it was taken: hand it back."""
        self._task: asyncio.Task[T]

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start working, in a task of its own."""
        self._task = asyncio.ensure_future(work)
        return self._task

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._task.done()

    async def cancel(self) -> None:
        """Stop at the next await and wait until that has happened; a job that waits for its turn never begins."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait(self) -> None:
        """Wait until it has ended, in whatever way."""
        await asyncio.wait([self._task])


class Run(Job[RunResult]):
    """One message and everything that follows from it."""

    def __init__(self, handle: str) -> None:
        super().__init__(handle)
        self.feed = Feed()

    async def events(self) -> AsyncIterator[RunEvent]:
        """The run's events from its first one on, to its end. Raises what the run failed with."""
        async for event in self.feed.read():
            yield event
        await self.result()

    async def result(self) -> RunResult:
        """How it ended. Raises what it failed with: ProviderError, or an error of the store.

        A cancelled run has a result, too. Being cancelled in here does not cancel the run.
        """
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return RunResult(stop_reason="cancelled")
        return self._task.result()
