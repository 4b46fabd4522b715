"""Runs by id, so that a client that lost its connection finds the one it started, and goes on reading."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from ..answers.documents import Document
from ..runtime import Run
from ..store.errors import NotFound
from .events import ended, told

__all__ = ["LiveRun", "Runs", "ToldEvent"]

_KEPT = 32
"""Runs that have ended and can still be read."""


@dataclass(frozen=True)
class ToldEvent:
    """One event of a run, as a client gets it. Numbers of one run are dense."""

    number: int
    kind: str
    data: Document


@dataclass(frozen=True)
class LiveRun:
    """A run that clients know by an id."""

    id: str
    run: Run

    async def events(self, after: int = -1) -> AsyncGenerator[ToldEvent, None]:
        """What the run told behind the event number `after`, and what it still tells, to how it ended."""
        number = 0
        if number > after:
            yield ToldEvent(number, "run", {"run": self.id, "session": self.run.handle})
        async for event in self.run.feed.read():
            number += 1
            if number > after:
                yield ToldEvent(number, *told(event))
        if number + 1 > after:
            yield ToldEvent(number + 1, *await ended(self.run))


class Runs:
    """The runs of this process: all that go on, and the last ones that have ended."""

    def __init__(self) -> None:
        self._runs: dict[str, LiveRun] = {}

    def __iter__(self) -> Iterator[LiveRun]:
        return iter(self._runs.values())

    def add(self, run: Run) -> LiveRun:
        """Give a run an id."""
        live = LiveRun(secrets.token_hex(10), run)
        self._runs[live.id] = live
        ended_ones = [known.id for known in self if known.run.done]
        for old in ended_ones[: max(0, len(ended_ones) - _KEPT)]:
            del self._runs[old]
        return live

    def find(self, run_id: str) -> LiveRun:
        """The run with this id. Raises NotFound."""
        live = self._runs.get(run_id)
        if live is None:
            raise NotFound("run", run_id)
        return live
