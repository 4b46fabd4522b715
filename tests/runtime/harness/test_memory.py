"""memory: notes outlast a conversation, what fits is recalled, and summaries of sessions are out of reach."""

from __future__ import annotations

import asyncio

import pytest

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime.harness.memory import MemoryHarness
from crabstore.runtime.providers.scripted import ScriptedTurn as Turn
from crabstore.store.agents import AgentConfig, AgentHooks, MemoryHook
from crabstore.store.memory import MemoryEntry

from ..scene import begin, call, play
from .rig import answer, context, played, results


def config(recall_limit: int = 5) -> AgentConfig:
    return AgentConfig(name="a", model="m", hooks=AgentHooks(memory=MemoryHook(recall_limit=recall_limit)))


def test_what_was_remembered_is_recalled_and_forgotten_through_the_model() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await played(
            [MemoryHarness(store)],
            call("remember", name="deploy key", content="It is kept in the blue vault."),
            call("recall", query="vault"),
            call("recall", query="deploy"),
            call("forget", name="deploy key"),
            call("recall", query="vault"),
            store=store,
            agent=config(),
        )
        texts = [result.text for result in await results(store)]
        assert texts[0] == "remembered as 'deploy key'"
        assert "blue vault" in texts[1]
        assert "blue vault" in texts[2], "a note is found by its name, too"
        assert texts[3:] == ["forgot 'deploy key'", "no note is about that"]

    asyncio.run(scenario())


def test_notes_that_fit_a_message_stand_before_it_and_are_not_stored() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        for number in range(9):
            await store.memory.put(MemoryEntry(name=f"n{number}", content=f"crab fact {number}"))
        scene = await begin(play(Turn(text="ok")), [MemoryHarness(store)], store=store, agent=config(3))
        await (await scene.run("tell me of a crab")).result()
        recalled, said = scene.provider.requests[0].entries
        assert recalled.text.count("crab fact") == 3
        assert said.text == "tell me of a crab"
        assert [entry.text for entry in await store.sessions.messages("h")] == ["tell me of a crab", "ok"]

    asyncio.run(scenario())


@pytest.mark.parametrize(("limit", "message"), [(0, "crab"), (-1, "crab"), (5, "lobster"), (5, "...")])
def test_nothing_is_recalled_when_it_is_switched_off_or_nothing_fits(limit: int, message: str) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.memory.put(MemoryEntry(name="n", content="crab fact"))
        scene = await begin(play(Turn(text="ok")), [MemoryHarness(store)], store=store, agent=config(limit))
        await (await scene.run(message)).result()
        assert [entry.text for entry in scene.provider.requests[0].entries] == [message]

    asyncio.run(scenario())


def test_summaries_of_sessions_are_neither_shown_nor_replaced_nor_forgotten() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        harness, where = MemoryHarness(store), context(AgentConfig(name="a", id="1"))
        summary = MemoryEntry(name="quarter", content="crab", kind="archive")
        await store.memory.put(summary)
        for name in ("quarter", "archive-h-1"):
            assert (await answer(harness, where, "remember", name=name, content="lie")).is_error
            assert (await answer(harness, where, "forget", name=name)).is_error
        assert (await answer(harness, where, "recall", query="crab")).text == "no note is about that"
        assert [entry.content for entry in await store.memory.entries()] == ["crab"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("remember", {"name": "n"}),
        ("remember", {"name": "", "content": "x"}),
        ("remember", {"name": "a\x00b", "content": "x"}),
        ("remember", {"name": "n", "content": "x" * 20_001}),
        ("remember", {"name": "n", "content": "x", "kind": "archive"}),
        ("recall", {"query": "x", "limit": 1000}),
        ("recall", {"query": 3}),
        ("forget", {"name": "nothing-like-it"}),
    ],
)
def test_what_a_model_gets_wrong_is_an_answer_and_writes_nothing(
    tool: str, arguments: dict[str, str]
) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        where = context(AgentConfig(name="a", id="1"))
        output = await answer(MemoryHarness(store), where, tool, **arguments)
        assert output.is_error
        assert await store.memory.names() == []

    asyncio.run(scenario())


def test_a_long_note_is_cut_where_nobody_asked_for_it_and_says_so() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.memory.put(MemoryEntry(name="n", content="crab " * 3000))
        scene = await begin(play(Turn(text="ok")), [MemoryHarness(store)], store=store, agent=config())
        await (await scene.run("crab")).result()
        text = scene.provider.requests[0].entries[0].text
        assert len(text) < 2500
        assert "13000 more characters" in text

    asyncio.run(scenario())
