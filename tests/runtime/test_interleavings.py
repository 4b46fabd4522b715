"""Whatever is asked of sessions in whatever order: all that was said is stored once, or handed back."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from crabstore.runtime import (
    AnthropicProvider,
    Busy,
    IncompleteReply,
    NotRunning,
    OpenAIProvider,
    ProviderError,
    Request,
    Run,
    Runtime,
)
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.messages import HistoryEntry
from crabstore.store.session_records import Done

from .scene import Scene, begin, call, play
from .test_runs import Echo
from .validity import require_valid

HANDLES = ("h", "other")
Step: TypeAlias = tuple[str, str, int]

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["start", "start now", "steer", "steer", "cancel", "cancel last", "compact"]),
        st.sampled_from(HANDLES),
        st.integers(0, 12),
    ),
    max_size=12,
)
turns = st.lists(
    st.sampled_from(
        [
            ScriptedTurn(text="said"),
            ScriptedTurn(text=["said ", "more"], calls=[call("echo", text="a"), call("echo", text="b")]),
            ScriptedTurn(calls=[call("unheard-of")]),
            ScriptedTurn(text="half", breaks=True),
            ScriptedTurn(error="rejected"),
            ScriptedTurn(error="context_too_long"),
            ScriptedTurn(text="cut", stop_reason="max_tokens"),
        ]
    ),
    min_size=1,
    max_size=5,
)


@dataclass
class Told:
    """What was said to the sessions, and what became of it."""

    scene: Scene
    said: dict[str, list[str]] = field(default_factory=lambda: {handle: [] for handle in HANDLES})
    runs: list[Run] = field(default_factory=list)
    compactions: list[asyncio.Task[str | None]] = field(default_factory=list)

    @property
    def runtime(self) -> Runtime:
        return self.scene.runtime

    async def take(self, step: Step) -> None:
        what, handle, pause = step
        words = f"{what} {len(self.said[handle])}"
        match what:
            case "start" | "start now":
                await self.start(handle, words, wait=what == "start")
            case "steer":
                await self.steer(handle, words)
            case "cancel":
                await self.runtime.cancel(handle)
            case "cancel last" if self.runs:
                await self.runs[-1].cancel()
            case "compact":
                self.compactions.append(asyncio.ensure_future(self.runtime.compact(handle)))
        for _ in range(pause):
            await asyncio.sleep(0)

    async def start(self, handle: str, words: str, *, wait: bool) -> None:
        try:
            run = await self.runtime.start(handle, words, wait=wait, compact=len(words) % 2 == 0)
        except Busy:
            return
        self.said[handle].append(words)
        self.runs.append(run)

    async def steer(self, handle: str, words: str) -> None:
        try:
            await self.runtime.steer(handle, words)
        except NotRunning:
            return
        self.said[handle].append(words)

    async def settle(self) -> None:
        await self.runtime.drain()
        for outcome in await asyncio.gather(*self.compactions, return_exceptions=True):
            assert outcome is None or isinstance(outcome, str | IncompleteReply | ProviderError), outcome
        for run in self.runs:
            with suppress(ProviderError, IncompleteReply):
                await run.result()

    async def require_nothing_lost(self) -> None:
        assert self.runtime.live() == []
        for handle in HANDLES:
            entries = await self.scene.store.sessions.messages(handle)
            stored = [entry.text for entry in entries if entry.role == "user"]
            back = [entry.text for run in self.runs if run.handle == handle for entry in run.untaken]
            assert Counter([*stored, *back]) == Counter(self.said[handle])
            await self.require_ends(handle)
            await self.require_valid(handle)

    async def require_ends(self, handle: str) -> None:
        """A trace ends once for every run that began."""
        events = await self.scene.store.sessions.events(handle)
        begun = [run for run in self.runs if run.handle == handle and not _never_began(run)]
        assert len([line for line in events if isinstance(line, Done)]) == len(begun)

    async def require_valid(self, handle: str) -> None:
        loaded = await self.scene.store.sessions.load(handle)
        assert loaded is not None
        for provider in (AnthropicProvider("key"), OpenAIProvider("key")):
            entries = (*loaded.entries, HistoryEntry.user("next", format=provider.format))
            request = provider.parameters(Request(model="m", entries=entries))
            require_valid(provider.format.partition("-")[0], request)


def _never_began(run: Run) -> bool:
    return any(entry.text.startswith("start") for entry in run.untaken)


@settings(max_examples=150, deadline=None)
@given(steps, turns, st.sampled_from(["anthropic", "openai-chat"]))
@example(  # what was steered waited behind a compaction, which could hand nothing back
    [("start", "h", 0), ("compact", "h", 1), ("steer", "h", 0), ("cancel", "h", 0)],
    [ScriptedTurn(text="said")],
    "anthropic",
)
def test_nothing_said_is_lost_or_doubled_in_whatever_order(
    script: list[Step], played: list[ScriptedTurn], format: str
) -> None:
    async def scenario() -> None:
        scene = await begin(play(*played, format=format, repeat=True), [Echo()])
        await scene.store.sessions.open("other", agent=scene.agent.id, created_by="me")
        told = Told(scene)
        for step in script:
            await told.take(step)
        await told.settle()
        await told.require_nothing_lost()

    asyncio.run(scenario())
