"""Every harness in one run, and what all of them hold: as much as the agents that work need, and no more."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.store.counting import CountingBackend

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import Run, standard_harnesses
from crabstore.runtime.harness.images import ImagesHarness
from crabstore.runtime.harness.mcp import Limits, McpHarness
from crabstore.runtime.harness.skills import SkillsHarness
from crabstore.runtime.harness.wasm import WasmSandbox
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration, McpServer
from crabstore.store.backend import Backend
from crabstore.store.memory import MemoryEntry
from crabstore.store.messages import HistoryEntry

from ..scene import begin, call, heard, play
from .modules import replying
from .rig import played, reported, results
from .test_mcp import SCRIPT, Clockwork, Servers, config, served

SKILL = "---\nname: bake\ndescription: How to bake.\n---\nMix, then wait.\n"


async def stocked(store: Backend) -> None:
    await store.skills.put(SKILL)
    await store.harnesses.put(replying({"text": "HEY"}), "loud")
    await store.memory.put(MemoryEntry(name="oven", content="The oven of Ada runs hot."))


def everything(root: Path, name: str = "a") -> AgentConfig:
    return AgentConfig(
        name=name,
        model="m",
        description="You bake.",
        max_iterations=30,
        skills=["bake"],
        mcps=[McpServer(name="tools", command=sys.executable, args=[SCRIPT])],
        harnesses=[
            HarnessDeclaration(name="os", root=str(root), system=True),
            HarnessDeclaration(name="skills"),
            HarnessDeclaration(name="sessions"),
            HarnessDeclaration(name="loud"),
        ],
    )


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat"])
def test_one_run_calls_the_tools_of_every_harness(tmp_path: Path, format_name: str) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await stocked(store)
        agent = await store.agents.create(everything(tmp_path))
        await store.sessions.open("before", agent=agent.id, created_by="me")
        await store.sessions.append_messages(
            "before", [HistoryEntry.user("hello, bread is done at 94 degrees")]
        )
        calls = [
            (call("remember", name="bread", content="Done at 94 degrees."), "remembered as 'bread'"),
            (call("recall", query="degrees"), "Done at 94 degrees."),
            (call("forget", name="bread"), "forgot 'bread'"),
            (call("load_skill", name="bake"), "Mix, then wait."),
            (call("search_sessions", query="bread"), "before"),
            (call("read_session", session="before"), "94 degrees"),
            (call("write", path="log.txt", content="mixed"), "created log.txt"),
            (call("edit", path="log.txt", old="mixed", new="baked"), "replaced 1 place"),
            (call("read", path="log.txt"), "baked"),
            (call("list"), "log.txt (5 bytes)"),
            (call("exec", command="cat log.txt"), "baked\n[exit 0]"),
            (call("tools__add", a="40", b="2"), "42"),
            (call("shout", text="hey"), "HEY"),
        ]
        turns = [ScriptedTurn(calls=[each]) for each, _ in calls]
        harnesses = standard_harnesses(store)
        provider = play(*turns, ScriptedTurn(text="done"), format=format_name)
        scene = await begin(provider, harnesses, store=store, agent=everything(tmp_path, "b"))
        meta = await store.sessions.open("mine", agent=agent.id, created_by="me")
        run = await scene.runtime.start(meta.handle, "how hot is the oven of Ada?")
        assert (await run.result()).text == "done"
        assert await reported(run) == []
        answers = await results(store, "mine")
        for (asked, expected), answered in zip(calls, answers, strict=True):
            assert expected in answered.text, asked.name
            assert not answered.is_error, asked.name
        first = provider.requests[0]
        assert "The oven of Ada runs hot." in first.entries[0].text
        assert len(first.tools) == len({tool.name for tool in first.tools}) == 20
        assert first.system.startswith("You bake.")
        await scene.runtime.close()

    asyncio.run(scenario())


def test_an_agent_that_declares_nothing_has_its_memory_and_nothing_else() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await stocked(store)
        scene, run = await played(
            standard_harnesses(store), store=store, agent=AgentConfig(name="bare", model="m")
        )
        assert [tool.name for tool in scene.provider.requests[0].tools] == ["remember", "recall", "forget"]
        assert await reported(run) == []

    asyncio.run(scenario())


def test_a_harness_of_the_host_is_no_image() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        agent = AgentConfig(name="a", model="m", harnesses=[HarnessDeclaration(name="mine")])
        _, run = await played(standard_harnesses(store, others=["mine"]), store=store, agent=agent)
        assert await reported(run) == []
        _, run = await played(standard_harnesses(store), store=VolatileBackend(), agent=agent)
        assert [hook for _, hook, _ in await reported(run)] == ["on_resolve_agent"]

    asyncio.run(scenario())


def test_state_is_proportional_to_the_agents_at_work() -> None:
    """A thousand agents exist, each of which declares everything; two work."""

    async def scenario() -> None:
        store = VolatileBackend()
        await stocked(store)
        servers, clock = Servers(), Clockwork()
        skills = SkillsHarness(store)
        mcp = McpHarness(limits=Limits(idle=60), clock=clock, connect=servers)
        images = ImagesHarness(store, WasmSandbox(), others=["skills", "mcp"])
        turns = play(ScriptedTurn(text="hm", wait="go"), repeat=True)
        scene = await begin(turns, [skills, mcp, images], store=store)
        agents = []
        for number in range(1000):
            agent = config(served(), name=str(number))
            agent.skills = ["bake"]
            agent.harnesses = [HarnessDeclaration(name="skills"), HarnessDeclaration(name="loud")]
            agents.append(await store.agents.create(agent))
        runs: list[Run] = []
        for agent in agents[:2] * 3:
            meta = await store.sessions.open(agent=agent.id, created_by="me")
            runs.append(await scene.runtime.start(meta.handle, "hello"))
        for run in runs:
            await heard(run, "hm")
        working = {agent.id for agent in agents[:2]}
        assert skills.at_work == mcp.at_work == images.at_work == working
        assert (len(images.loaded), len(servers.running)) == (1, 2)
        scene.provider.release("go")
        await scene.runtime.drain()
        assert skills.at_work == images.at_work == images.loaded == frozenset()
        assert mcp.at_work == working, "a server is kept warm for a while"
        await clock.pass_(61)
        assert (mcp.at_work, servers.running) == (frozenset(), [])
        await scene.runtime.close()

    asyncio.run(scenario())


def test_a_run_reads_what_its_agent_declares_however_much_there_is() -> None:
    async def scenario() -> None:
        read = []
        for others in (0, 50):
            store = CountingBackend()
            await stocked(store)
            for number in range(others):
                await store.skills.put(SKILL.replace("bake", f"s{number}"))
                await store.harnesses.put(replying({"text": str(number)}), f"image {number}")
                await store.agents.ensure(f"agent {number}")
            agent = AgentConfig(name="a", model="m", skills=["bake"])
            agent.harnesses = [HarnessDeclaration(name="skills"), HarnessDeclaration(name="loud")]
            stored = await store.agents.create(agent)
            store.reset()
            for harness in standard_harnesses(store):
                await harness.on_resolve_agent(stored)
                await harness.close()
            read.append((store.read.total(), store.listed))
        # The skill's summary, the image's name and the image.
        assert read == [(3, 0), (3, 0)]

    asyncio.run(scenario())
