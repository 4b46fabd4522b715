"""A process killed at any step of a run: what is loaded afterwards is valid for every provider, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import (
    AnthropicProvider,
    MessageStored,
    NotRunning,
    OpenAIProvider,
    Request,
    Run,
    RunEvent,
    Runtime,
)
from crabstore.runtime.providers.scripted import ScriptedProvider, ScriptedTurn
from crabstore.store.backend import Backend
from crabstore.store.batch import Batch, Column
from crabstore.store.messages import HistoryEntry
from crabstore.store.session_records import Done

from .scene import Scene, begin, call, heard, play
from .test_runs import Echo
from .validity import require_valid

FORMATS = ["anthropic", "openai-chat"]
OTHER = {"anthropic": "openai-chat", "openai-chat": "anthropic"}


class Killed(Exception):
    """The process is gone."""


class Fuse:
    """Kills the process around its n-th write: before it, or after it went through."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False
        self.burnt = False

    async def around(self, write: Awaitable[Any]) -> Any:
        doomed = self.left == 0
        if self.burnt or (doomed and not self.after):
            self.burnt = True
            close: Callable[[], None] = getattr(write, "close", lambda: None)
            close()
            raise Killed
        result = await write
        if doomed:
            self.burnt = True
            raise Killed
        if self.left is not None:
            self.left -= 1
        return result


class Atomic(VolatileBackend):
    """An engine whose commits are all or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.fuse = Fuse()

    async def commit(self, batch: Batch) -> None:
        await self.fuse.around(super().commit(batch))


class Plain(Backend):
    """Five methods and no more: a commit may stop half way."""

    def __init__(self) -> None:
        self.inner = VolatileBackend()
        self.fuse = Fuse()

    async def get(self, col: Column, key: bytes) -> bytes | None:
        return await self.inner.get(col, key)

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        await self.fuse.around(self.inner.put(col, key, value))

    async def delete(self, col: Column, key: bytes) -> bool:
        return bool(await self.fuse.around(self.inner.delete(col, key)))

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        return await self.inner.scan_keys(col, prefix)

    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return await self.inner.scan(col, prefix)


TURNS = (
    ScriptedTurn(text="let me look", calls=[call("echo", text="a"), call("echo", text="b")]),
    ScriptedTurn(calls=[call("echo", text="c"), call("nothing", text="d")]),
    ScriptedTurn(text="done"),
    ScriptedTurn(text="a summary"),
    ScriptedTurn(calls=[call("echo", text="e")]),
    ScriptedTurn(text=["cut ", "off"], wait="never"),
)


@dataclass
class Witness:
    """What the people of a session said, and what they were told."""

    told: list[HistoryEntry] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    async def start(self, scene: Scene, words: str) -> Run:
        """Start a run, and collect what it tells is stored, as it tells it."""
        run = await scene.run(words)
        self.said.append(words)
        self.runs.append(run)
        put = run.feed.put

        def listen(event: RunEvent) -> None:
            if isinstance(event, MessageStored):
                self.told.append(event.entry)
            put(event)

        run.feed.put = listen  # type: ignore[method-assign]
        return run


Life = Callable[[Scene, Echo, Witness], Awaitable[None]]


async def a_long_life(scene: Scene, echo: Echo, witness: Witness) -> None:
    """A run with a steer in the middle of a call, a compaction, a run that is cancelled in its answer."""
    echo.gate.clear()
    run = await witness.start(scene, "hello")
    await begun_or_over(run, echo)
    with suppress(NotRunning):  # killed before the call
        await scene.runtime.steer("h", "and hurry")
        witness.said.append("and hurry")
    echo.gate.set()
    await run.result()
    await scene.runtime.compact("h")
    run = await witness.start(scene, "again")
    await heard(run, "off")
    await run.cancel()
    await run.result()


async def a_life_cut_short_in_a_call(scene: Scene, echo: Echo, witness: Witness) -> None:
    """A run that is cancelled in the middle of a tool call."""
    echo.gate.clear()
    run = await witness.start(scene, "hello")
    await begun_or_over(run, echo)
    await run.cancel()
    await run.result()


async def begun_or_over(run: Run, echo: Echo) -> None:
    waiting = [asyncio.ensure_future(run.wait()), asyncio.ensure_future(echo.began.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for future in waiting:
        future.cancel()


async def killed(engine: type[Atomic | Plain], format: str, life: Life, writes: int, *, after: bool) -> bool:
    """Live until the write number `writes`, then check what is left; whether it came so far."""
    store, echo, witness = engine(), Echo(), Witness()
    scene = await begin(play(*TURNS, format=format), [echo], store=store)
    store.fuse.left, store.fuse.after = writes, after
    reached = True
    try:
        await life(scene, echo, witness)
        reached = False
    except Killed:
        pass
    await scene.runtime.close()
    store.fuse = Fuse()
    await require_sound(store, witness)
    for continued in FORMATS:
        await require_goes_on(store, continued)
    return reached


async def require_sound(store: Backend, witness: Witness) -> None:
    """Whatever was told is there, what was said is there or handed back, and both providers take the history."""
    stored = await store.sessions.messages("h")
    assert [entry for entry in witness.told if entry not in stored] == []
    back = [entry.text for run in witness.runs for entry in run.untaken]
    assert set(witness.said) <= {*back, *(entry.text for entry in stored)}
    loaded = await store.sessions.load("h")
    assert loaded is not None
    for provider in (AnthropicProvider("key"), OpenAIProvider("key")):
        entries = (*loaded.entries, HistoryEntry.user("next", format=provider.format))
        kind = provider.format.partition("-")[0]
        require_valid(kind, provider.parameters(Request(model="m", entries=entries)))


async def require_goes_on(store: Backend, format: str) -> None:
    """Another process goes on with the session, over this provider, and its requests are valid."""
    provider = play(
        ScriptedTurn(text="ok", calls=[call("echo", text="z")]), ScriptedTurn(text="finished"), format=format
    )
    runtime = Runtime(store, provider, [Echo()])
    assert (await (await runtime.start("h", "go on")).result()).text == "finished"
    for request in provider.requests:
        sent = rendered(provider, request)
        require_valid(format.partition("-")[0], sent)
    done = (await store.sessions.events("h"))[-1]
    assert isinstance(done, Done)


def rendered(provider: ScriptedProvider, request: Request) -> dict[str, Any]:
    real = AnthropicProvider("key") if provider.format == "anthropic" else OpenAIProvider("key")
    return real.parameters(request)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("engine", [Atomic, Plain])
@pytest.mark.parametrize(
    ("life", "least"), [(a_long_life, 15), (a_life_cut_short_in_a_call, 4)], ids=["long", "short"]
)
def test_killed_around_any_write_the_history_stays_valid(
    life: Life, least: int, engine: type[Atomic | Plain], format: str, after: bool
) -> None:
    async def sweep() -> int:
        writes = 0
        while await killed(engine, format, life, writes, after=after):
            writes += 1
        return writes

    assert asyncio.run(sweep()) >= least
