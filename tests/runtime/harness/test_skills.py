"""skills: listed in the system message, read on use, and never more than the agent's configuration names."""

from __future__ import annotations

import asyncio

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime.harness.skills import SkillsHarness
from crabstore.runtime.providers.scripted import ScriptedTurn as Turn
from crabstore.store.agents import AgentConfig, HarnessDeclaration

from ..scene import begin, call, heard, play
from .rig import played, reported, results


def skill(name: str) -> str:
    return f"---\nname: {name}\ndescription: How to {name}.\n---\nFirst, {name}.\n"


async def stocked() -> VolatileBackend:
    store = VolatileBackend()
    for name in ("bake", "sail", "steal"):
        await store.skills.put(skill(name))
    return store


def config(*skills: str, declared: bool = True) -> AgentConfig:
    harnesses = [HarnessDeclaration(name="skills")] if declared else []
    return AgentConfig(name="a", model="m", skills=list(skills), harnesses=harnesses)


def test_skills_are_listed_in_the_system_message_and_read_on_use() -> None:
    async def scenario() -> None:
        store = await stocked()
        harness = SkillsHarness(store)
        scene, _ = await played(
            [harness],
            call("load_skill", name="sail"),
            call("load_skill", name="steal"),
            store=store,
            agent=config("sail", "bake"),
        )
        system = scene.provider.requests[0].system
        assert system.endswith("- sail: How to sail.\n- bake: How to bake.")
        loaded, refused = await results(store)
        assert (loaded.text, loaded.is_error) == (skill("sail"), False)
        assert refused.is_error
        assert "sail, bake" in refused.text
        assert harness.at_work == frozenset()

    asyncio.run(scenario())


def test_without_a_declaration_or_a_skill_nothing_is_registered() -> None:
    async def scenario() -> None:
        for agent in (config("sail", declared=False), config()):
            store = await stocked()
            scene, run = await played([SkillsHarness(store)], store=store, agent=agent)
            assert list(scene.provider.requests[0].tools) == []
            assert scene.provider.requests[0].system == ""
            assert await reported(run) == []

    asyncio.run(scenario())


def test_a_skill_that_is_not_there_is_reported_and_the_others_stay() -> None:
    async def scenario() -> None:
        store = await stocked()
        scene, run = await played([SkillsHarness(store)], store=store, agent=config("gone", "sail"))
        assert await reported(run) == [("skills", "on_resolve_agent", "the store has no skill gone")]
        assert "- sail:" in scene.provider.requests[0].system
        assert "gone" not in scene.provider.requests[0].system

    asyncio.run(scenario())


def test_a_skill_that_was_deleted_during_the_run_is_refused() -> None:
    async def scenario() -> None:
        store = await stocked()
        turns = [Turn(text="hm", calls=[call("load_skill", name="sail")], wait="go"), Turn(text="ok")]
        scene = await begin(play(*turns), [SkillsHarness(store)], store=store, agent=config("sail"))
        run = await scene.run()
        await heard(run, "hm")
        await store.skills.delete("sail")
        scene.provider.release("go")
        await run.result()
        assert [result.is_error for result in await results(store)] == [True]

    asyncio.run(scenario())
