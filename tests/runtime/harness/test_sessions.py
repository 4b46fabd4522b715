"""sessions: an agent finds its own past and nobody else's, whatever it asks for."""

from __future__ import annotations

import asyncio

import pytest

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import ToolOutput
from crabstore.runtime.harness.sessions import SessionsHarness
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.messages import HistoryEntry
from crabstore.store.records import Json

from ..scene import call
from .rig import answer, context, played, results

SECRET: dict[str, Json] = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "c", "content": "hunter2"}],
}


async def past() -> tuple[VolatileBackend, AgentConfig, AgentConfig]:
    """A store in which two agents spoke with two people about crabs."""
    store = VolatileBackend()
    mine, other = await store.agents.ensure("mine"), await store.agents.ensure("other")
    for handle, agent, by in [
        ("with-ann", mine, "ann"),
        ("with-bob", mine, "bob"),
        ("foreign", other, "ann"),
        ("50%/_", other, "ann"),
    ]:
        await store.sessions.open(handle, agent=agent.id, created_by=by, title=f"crabs {handle}")
        call_item: dict[str, Json] = {
            "type": "tool_use",
            "id": "c",
            "name": "look",
            "input": {"key": "hunter2"},
        }
        await store.sessions.append_messages(
            handle,
            [
                HistoryEntry.user(f"a crab, {handle}"),
                HistoryEntry(message={"role": "assistant", "content": [call_item]}, format="anthropic"),
                HistoryEntry(message=SECRET, format="anthropic"),
                HistoryEntry.assistant(f"crab it is, {handle}"),
            ],
        )
    return store, mine, other


def found(output: ToolOutput) -> set[str]:
    return {line[3:].split(":")[0] for line in output.text.splitlines() if line.startswith("## ")}


def test_an_agent_finds_and_reads_its_own_past_through_the_model() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        harnesses = [HarnessDeclaration(name="sessions")]
        scene, _ = await played(
            [SessionsHarness(store)],
            call("search_sessions", query="hello"),
            call("read_session", session="h"),
            store=store,
            agent=AgentConfig(name="a", model="m", harnesses=harnesses),
        )
        searched, read = await results(store)
        assert found(searched) == found(read) == {"h"}
        assert "[0] user: hello" in searched.text
        assert "[1] assistant: search_sessions" in read.text
        assert "search_sessions" in scene.provider.requests[0].system

    asyncio.run(scenario())


def test_the_host_sets_the_scope_and_the_model_cannot_widen_it() -> None:
    async def scenario() -> None:
        store, mine, other = await past()
        harness, where = SessionsHarness(store), context(mine, by="ann")
        assert found(await answer(harness, where, "search_sessions", query="crab")) == {
            "with-ann",
            "with-bob",
        }
        assert (await answer(harness, where, "search_sessions", query="crab", agent=other.id)).is_error
        for foreign in ("foreign", "50%/_", "none", "", "with-ann/", "foreign/meta"):
            assert (await answer(harness, where, "read_session", session=foreign)).is_error
        assert not (await answer(harness, where, "read_session", session="with-bob")).is_error

    asyncio.run(scenario())


def test_a_host_may_narrow_the_scope_to_the_person_who_speaks() -> None:
    async def scenario() -> None:
        store, mine, _ = await past()
        harness, where = SessionsHarness(store, same_person=True), context(mine, by="ann")
        assert found(await answer(harness, where, "search_sessions", query="crab")) == {"with-ann"}
        assert (await answer(harness, where, "read_session", session="with-bob")).is_error
        assert not (await answer(harness, where, "read_session", session="with-ann")).is_error

    asyncio.run(scenario())


def test_what_tools_were_given_and_answered_is_not_shown() -> None:
    async def scenario() -> None:
        store, mine, _ = await past()
        harness, where = SessionsHarness(store), context(mine)
        read = await answer(harness, where, "read_session", session="with-ann")
        searched = await answer(harness, where, "search_sessions", query="crab")
        assert "hunter2" not in read.text + searched.text
        assert "[1] assistant: look" in read.text
        assert "[3] assistant: crab it is" in read.text

    asyncio.run(scenario())


def test_a_window_is_read_by_position_and_long_messages_are_cut() -> None:
    async def scenario() -> None:
        store, mine, _ = await past()
        await store.sessions.append_messages("with-ann", [HistoryEntry.user("long " * 2000)])
        harness, where = SessionsHarness(store), context(mine)
        tail = await answer(harness, where, "read_session", session="with-ann", start=3, count=2)
        assert [line[:3] for line in tail.text.splitlines()[1:]] == ["[3]", "[4]"]
        assert len(tail.text) < 4200
        beyond = await answer(harness, where, "read_session", session="with-ann", start=99)
        assert not beyond.is_error

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "arguments",
    [{"query": "crab", "limit": 0}, {"query": "crab", "role": "tool"}, {"query": None}, {}],
)
def test_a_search_that_makes_no_sense_is_an_answer(arguments: dict[str, Json]) -> None:
    async def scenario() -> None:
        store, mine, _ = await past()
        assert (await answer(SessionsHarness(store), context(mine), "search_sessions", **arguments)).is_error

    asyncio.run(scenario())


def test_filters_of_role_and_time_narrow_a_search() -> None:
    async def scenario() -> None:
        store, mine, _ = await past()
        harness, where = SessionsHarness(store), context(mine)
        nothing = await answer(harness, where, "search_sessions", query="crab", until="2020")
        assert nothing.text == "nothing of that was said"
        one = await answer(
            harness, where, "search_sessions", query="crab", role="user", since="2020", limit=1
        )
        assert len(found(one)) == 1
        assert "There are more" in one.text

    asyncio.run(scenario())
