"""Agents, memory, skills and harness images."""

from __future__ import annotations

from ..agents import AgentConfig
from ..backend import Backend
from ..batch import Column
from ..errors import InvalidArgument, NameTaken, NotFound
from ..memory import MemoryEntry
from ..skills import InvalidSkill
from .cases import HOSTILE_NAMES, Contract, case, contents, raises

__all__ = ["SKILL", "EntityContract"]

SKILL = "---\nname: review-code\ndescription: How to review a change.\n---\n# Review\nRead it twice.\n"


class EntityContract(Contract):
    """What is addressed by name."""

    @case
    async def test_agents_are_found_by_id_and_by_name_and_listed_by_name(self, store: Backend) -> None:
        made = [await store.agents.create(AgentConfig(name=name)) for name in HOSTILE_NAMES]
        for agent in made:
            assert await store.agents.get(agent.id) == agent
            assert await store.agents.named(agent.name) == agent
        assert set(await store.agents.ids()) == {agent.id for agent in made}
        assert len(await store.agents.configs()) == len(made)
        await raises(NameTaken, store.agents.create, AgentConfig(name="a"))
        for bad in ("", "x" * 129, "line\nbreak", "\x00"):
            await raises(InvalidArgument, store.agents.create, AgentConfig(name=bad))
        assert (await store.agents.ensure("a/b")).id == made[1].id

    @case
    async def test_renaming_an_agent_moves_its_label_and_deleting_it_clears_the_default(
        self, store: Backend
    ) -> None:
        agent = await store.agents.create(AgentConfig(name="before"))
        await store.agents.set_default(agent.id)
        agent.name = "after"
        await store.agents.put(agent)
        assert await store.agents.named("before") is None
        assert await store.agents.named("after") == agent
        assert await store.agents.default() == agent.id
        await raises(NotFound, store.agents.set_default, "nobody")
        assert await store.agents.delete(agent.id) is True
        assert await store.agents.delete(agent.id) is False
        assert all(not rows for rows in (await contents(store)).values())

    @case
    async def test_memory_is_found_by_name_and_by_its_words(self, store: Backend) -> None:
        for name in HOSTILE_NAMES:
            await store.memory.put(MemoryEntry(name=name, content=f"entry {len(name)}", aliases=["nickname"]))
        assert sorted(await store.memory.names()) == sorted(HOSTILE_NAMES)
        await store.memory.put(MemoryEntry(name="a/b", content="the staging password rotates monthly"))
        [hit] = await store.memory.search("rotating monthly")
        assert hit.entry.name == "a/b"
        assert len(await store.memory.search("nickname")) == len(HOSTILE_NAMES) - 1
        assert await store.memory.search("nickname", kind="archive") == []
        for name in HOSTILE_NAMES:
            assert await store.memory.delete(name) is True
        assert await store.memory.delete("a") is False
        assert await store.memory.search("nickname") == []
        assert await store.scan_keys(Column.MEMORY, store.prefix()) == []

    @case
    async def test_skills_are_listed_by_summary_and_bad_ones_are_refused(self, store: Backend) -> None:
        summary = await store.skills.put(SKILL)
        assert await store.skills.summaries() == [summary]
        assert await store.skills.summaries(["none-such", summary.name]) == [summary]
        assert await store.skills.get("review-code") == SKILL
        for bad in ("", "# no front matter", "---\nname: X\ndescription: d\n---\n", "---\nname: x\n---\n"):
            await raises(InvalidSkill, store.skills.put, bad)
        assert await store.skills.summaries() == [summary]
        assert await store.skills.delete("review-code") is True
        assert await store.skills.delete("review-code") is False
        assert await store.scan_keys(Column.SKILL, store.prefix()) == []

    @case
    async def test_harness_images_are_addressed_by_digest_and_named(self, store: Backend) -> None:
        digest = await store.harnesses.put(b"\x7fELF" + bytes(1000), "os")
        assert await store.harnesses.get(digest) == b"\x7fELF" + bytes(1000)
        assert await store.harnesses.resolve("os") == digest
        await store.harnesses.set_name("os/latest", digest)
        assert await store.harnesses.names() == {"os": digest, "os/latest": digest}
        await raises(NotFound, store.harnesses.set_name, "x", digest[:10])
        assert await store.harnesses.digests() == [digest]
        assert await store.harnesses.delete(digest) is True
        assert await store.harnesses.delete(digest) is False
        assert await store.scan_keys(Column.HARNESS, store.prefix()) == []
