"""Hooks: the harnesses of a runtime as one, in a fixed order, none able to take a run down.

Per agent at work it keeps how many runs are going on, and nothing for any other: state is proportional to the
agents that work, not to the agents that exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ...store.agents import AgentConfig
from ...store.errors import InvalidArgument
from ..finishing import finished
from .base import Harness, PartlyResolved
from .guard import Guard, Report
from .scope import Scope

__all__ = ["Hooks"]


@dataclass
class _AtWork:
    """An agent that has runs: how many, and the turn in which it is resolved or released."""

    runs: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Hooks:
    """The harnesses of a runtime. Their order is the order of tools, of usages and of every hook."""

    def __init__(self, harnesses: Iterable[Harness] = ()) -> None:
        self._harnesses = tuple(harnesses)
        self._at_work: dict[str, _AtWork] = {}
        names = [harness.name for harness in self._harnesses]
        for name in names:
            if not name or names.count(name) > 1:
                raise InvalidArgument("harness name", name, "must be there, and unique among the harnesses")

    @property
    def at_work(self) -> frozenset[str]:
        """The ids of the agents that have a run."""
        return frozenset(self._at_work)

    async def build(self, stored: AgentConfig, report: Report) -> AgentConfig:
        """The configuration as every harness leaves it to the next; a failing one changes nothing."""
        guard = Guard(report)
        agent = stored
        for harness in self._harnesses:
            with guard.containing(harness, "on_build_agent"):
                agent = _require_same(stored, await harness.on_build_agent(agent))
        return agent

    @asynccontextmanager
    async def working(self, stored: AgentConfig, report: Report) -> AsyncIterator[Scope]:
        """The agent built from `stored` and resolved, for one run; released when its last run ends."""
        guard = Guard(report)
        agent = await self.build(stored, report)
        place = self._at_work.setdefault(agent.id, _AtWork())
        place.runs += 1
        try:
            async with place.turn:
                resolved = await self._resolve(agent, guard)
            yield Scope(agent, resolved, guard)
        finally:
            place.runs -= 1
            if not place.runs:
                await finished(self._release(agent.id, place, guard))

    async def forget(self, agent_id: str, report: Report) -> None:
        """Tell every harness that the agent was deleted."""
        guard = Guard(report)
        for harness in self._harnesses:
            with guard.containing(harness, "on_forget_agent"):
                await harness.on_forget_agent(agent_id)

    async def close(self, report: Report) -> None:
        """Close every harness, the last one first."""
        guard = Guard(report)
        for harness in reversed(self._harnesses):
            with guard.containing(harness, "close"):
                await harness.close()

    async def _resolve(self, agent: AgentConfig, guard: Guard) -> list[Harness]:
        """The harnesses whose state is in place; one that failed takes no part in this run."""
        resolved: list[Harness] = []
        for harness in self._harnesses:
            with guard.containing(harness, "on_resolve_agent") as attempt:
                await harness.on_resolve_agent(agent)
            if attempt.error is None or isinstance(attempt.error, PartlyResolved):
                resolved.append(harness)
        return resolved

    async def _release(self, agent_id: str, place: _AtWork, guard: Guard) -> None:
        """Release the agent, unless a run of it begins in the meantime; also when this run is cancelled."""
        async with place.turn:
            if place.runs:
                return
            for harness in reversed(self._harnesses):
                with guard.containing(harness, "on_release_agent"):
                    await harness.on_release_agent(agent_id)
            if not place.runs and self._at_work.get(agent_id) is place:
                del self._at_work[agent_id]


def _require_same(stored: AgentConfig, built: object) -> AgentConfig:
    if not isinstance(built, AgentConfig) or built.id != stored.id:
        raise TypeError("on_build_agent must return the configuration of the same agent")
    return built
