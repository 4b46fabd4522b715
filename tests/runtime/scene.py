"""What the tests of the runtime share: a clock that never waits, a session to run in, a script to play."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import Clock, Harness, Retries, Run, RunEvent, Runtime, ScriptedProvider, TextDelta
from crabstore.runtime.providers.scripted import Script, ScriptedCall, ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.backend import Backend
from crabstore.store.messages import Format

__all__ = ["FakeClock", "Scene", "begin", "call", "heard", "play", "told"]


class FakeClock(Clock):
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now(self) -> str:
        return f"2026-01-01T00:00:{self.seconds % 60:09.6f}Z"

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


@dataclass
class Scene:
    """A runtime over a store with one agent and one session, `h`."""

    store: Backend
    provider: ScriptedProvider
    runtime: Runtime
    agent: AgentConfig
    clock: FakeClock = field(default_factory=FakeClock)

    async def run(self, text: str = "hello") -> Run:
        return await self.runtime.start("h", text)


def call(name: str, call_id: str = "", /, **arguments: str) -> ScriptedCall:
    return ScriptedCall(name=name, id=call_id, arguments=dict(arguments))


def play(*turns: ScriptedTurn, format: Format = "anthropic", repeat: bool = False) -> ScriptedProvider:
    return ScriptedProvider(Script(list(turns), repeat=repeat), format=format)


async def begin(
    provider: ScriptedProvider,
    harnesses: Sequence[Harness] = (),
    *,
    store: Backend | None = None,
    agent: AgentConfig | None = None,
) -> Scene:
    store = store or VolatileBackend()
    declared = [HarnessDeclaration(name=harness.name) for harness in harnesses]
    config = await store.agents.create(agent or AgentConfig(name="coder", model="m", harnesses=declared))
    await store.sessions.open("h", agent=config.id, created_by="me")
    clock = FakeClock()
    runtime = Runtime(store, provider, harnesses, clock=clock, retries=Retries(random=lambda: 1.0))
    return Scene(store, provider, runtime, config, clock)


async def told(run: Run) -> list[RunEvent]:
    return [event async for event in run.events()]


async def heard(run: Run, text: str) -> None:
    """Wait until the run has told these words of an answer."""
    async for event in run.feed.read():
        if event == TextDelta(text):
            return
