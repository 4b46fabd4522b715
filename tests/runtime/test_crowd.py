"""Many runs at once over a store on disk: nothing lost, nothing interleaved, whatever comes in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import crabstore
from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import Run, Runtime
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.batch import Batch
from crabstore.store.session_records import Done

from .scene import begin, call, play
from .test_runs import Echo

TURNS = (
    ScriptedTurn(text="I look", calls=[call("echo", text="a"), call("echo", text="b")]),
    ScriptedTurn(text="done"),
)
EACH = ["hello", "I look", "", "", "done"]


def test_twenty_runs_at_once_lose_and_interleave_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with crabstore.open(tmp_path / "store.crmem") as store:
            declared = [HarnessDeclaration(name="echo")]
            agent = await store.agents.create(AgentConfig(name="coder", model="m", harnesses=declared))
            runtime = Runtime(store, play(*TURNS, repeat=True), [Echo()])
            handles = [(await store.sessions.open(agent=agent.id, created_by="me")).handle for _ in range(20)]
            runs: list[Run] = []
            for _ in range(3):
                runs += [await runtime.start(handle, "hello") for handle in handles]
            for run in runs:
                assert (await run.result()).text == "done"
            for handle in handles:
                assert [entry.text for entry in await store.sessions.messages(handle)] == EACH * 3
                ends = [line for line in await store.sessions.events(handle) if isinstance(line, Done)]
                assert [done.stop_reason for done in ends] == ["end_turn"] * 3
            await runtime.close()

    asyncio.run(scenario())


def test_runs_cancelled_at_any_step_leave_sessions_that_go_on(tmp_path: Path) -> None:
    async def cancelled_after(steps: int, runtime: Runtime, handle: str) -> bool:
        run = await runtime.start(handle, "hello")
        for _ in range(steps):
            await asyncio.sleep(0)
        reached = not run.done
        await run.cancel()
        return reached

    async def scenario() -> None:
        async with crabstore.open(tmp_path / "store.crmem") as store:
            declared = [HarnessDeclaration(name="echo")]
            agent = await store.agents.create(AgentConfig(name="coder", model="m", harnesses=declared))
            runtime = Runtime(store, play(*TURNS, repeat=True), [Echo()])
            steps = 0
            while True:
                handle = (await store.sessions.open(agent=agent.id, created_by="me")).handle
                if not await cancelled_after(steps, runtime, handle):
                    break
                assert runtime.live() == []
                result = await (await runtime.start(handle, "go on")).result()
                assert result.stop_reason == "end_turn"
                steps += 1
            assert steps > 20
            await runtime.close()

    asyncio.run(scenario())


class Slow(VolatileBackend):
    """An engine whose commits take their time, and may be cut in the middle if nobody takes care."""

    def __init__(self) -> None:
        super().__init__()
        self.going_on = 0
        self.cut = 0

    async def commit(self, batch: Batch) -> None:
        self.going_on += 1
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            await super().commit(batch)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.going_on -= 1


def test_a_cancelled_run_cuts_no_write_of_a_slow_engine() -> None:
    async def scenario() -> None:
        steps = 0
        while True:
            store = Slow()
            scene = await begin(play(*TURNS), [Echo()], store=store)
            run = await scene.run()
            for _ in range(steps):
                await asyncio.sleep(0)
            over = run.done
            await run.cancel()
            assert (store.going_on, store.cut) == (0, 0)
            if over:
                break
            steps += 1
        assert steps > 40

    asyncio.run(scenario())
