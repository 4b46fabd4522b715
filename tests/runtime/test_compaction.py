"""Compaction: the model writes the summary, the next run reads it, and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from crabstore.runtime import (
    Busy,
    Compacted,
    ContextTooLong,
    IncompleteReply,
    NotRunning,
    ProviderUnavailable,
)
from crabstore.runtime.compaction import transcript
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.errors import NotFound
from crabstore.store.messages import HistoryEntry
from crabstore.store.records import Json

from .scene import Scene, begin, call, heard, play, told
from .test_runs import Echo

TALK = ScriptedTurn(text="the answer is 42")
SUMMARY = ScriptedTurn(text="They asked; it is 42.")


async def boundary(scene: Scene) -> int:
    meta = await scene.store.sessions.meta("h")
    assert meta is not None
    return meta.compacted_at


def test_the_next_run_reads_the_summary_in_place_of_what_was_said() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, SUMMARY, ScriptedTurn(text="still 42")))
        await (await scene.run("what is it?")).result()
        name = await scene.runtime.compact("h")
        assert name == "archive-h-1"
        await (await scene.run("sure?")).result()
        asked = scene.provider.requests[2].entries
        assert [entry.role for entry in asked] == ["user", "user"]
        assert asked[0].text.endswith("They asked; it is 42.")
        assert asked[1].text == "sure?"
        archived = await scene.store.memory.get(name)
        assert archived is not None
        assert archived.content == "They asked; it is 42."

    asyncio.run(scenario())


def test_the_originals_stay_addressable_and_searchable() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="the anchovy question"), SUMMARY))
        await (await scene.run()).result()
        await scene.runtime.compact("h")
        assert await boundary(scene) == 2
        assert len(await scene.store.sessions.messages("h")) == 2
        assert [hit.meta.handle for hit in (await scene.store.sessions.search("anchovy")).hits] == ["h"]

    asyncio.run(scenario())


def test_the_model_sees_tool_results_cut_and_an_earlier_summary_whole() -> None:
    async def scenario() -> None:
        agent = AgentConfig(
            name="coder", model="m", compact_tool_max_len=9, harnesses=[HarnessDeclaration(name="echo")]
        )
        turns = [
            SUMMARY,
            ScriptedTurn(calls=[call("echo", text="0123456789")]),
            TALK,
            ScriptedTurn(text="a second summary"),
        ]
        scene = await begin(play(*turns), [Echo()], agent=agent)
        await scene.store.sessions.append_messages("h", [HistoryEntry.user("first")])
        await scene.runtime.compact("h")
        await (await scene.run("second")).result()
        assert await scene.runtime.compact("h") == "archive-h-2"
        asked = scene.provider.requests[3]
        assert (list(asked.tools), len(asked.entries)) == ([], 1)
        question = asked.entries[0].text
        assert "They asked; it is 42." in question
        assert "tool: echo 0123 [6 characters left out]" in question
        assert "user: second" in question
        assert "user: first" not in question
        stored = await scene.store.sessions.messages("h")
        assert stored[3].tool_results[0].text == "echo 0123456789"

    asyncio.run(scenario())


def test_nothing_new_is_nothing_to_summarise() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, SUMMARY))
        assert await scene.runtime.compact("h") is None
        await (await scene.run()).result()
        await scene.runtime.compact("h")
        assert await scene.runtime.compact("h") is None
        assert len(scene.provider.requests) == 2
        with pytest.raises(NotFound):
            await scene.runtime.compact("nowhere")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "turn", [ScriptedTurn(text="half a summ", stop_reason="max_tokens"), ScriptedTurn(text="  ")]
)
def test_a_summary_that_is_not_whole_is_not_stored(turn: ScriptedTurn) -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, turn))
        await (await scene.run()).result()
        with pytest.raises(IncompleteReply):
            await scene.runtime.compact("h")
        assert await boundary(scene) == 0
        assert await scene.store.memory.names() == []

    asyncio.run(scenario())


def test_a_provider_that_stays_away_leaves_the_session_as_it_was() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, *[ScriptedTurn(error="unavailable")] * 4))
        await (await scene.run()).result()
        with pytest.raises(ProviderUnavailable):
            await scene.runtime.compact("h")
        assert await boundary(scene) == 0
        assert scene.runtime.live() == []

    asyncio.run(scenario())


def test_a_compaction_takes_its_turn_and_can_be_cancelled() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, ScriptedTurn(text="a summary", wait="never"), TALK))
        run = await scene.run()
        compaction = asyncio.ensure_future(scene.runtime.compact("h"))
        await run.result()
        while len(scene.provider.requests) < 2:  # noqa: ASYNC110 - it tells of no event
            await asyncio.sleep(0)
        with pytest.raises(Busy):
            await scene.runtime.start("h", "now", wait=False)
        with pytest.raises(NotRunning):
            await scene.runtime.steer("h", "now")
        later = await scene.run("later")
        await scene.runtime.cancel("h")
        with pytest.raises(IncompleteReply) as cancelled:
            await compaction
        assert cancelled.value.stop_reason == "cancelled"
        await later.result()
        assert await boundary(scene) == 0

    asyncio.run(scenario())


def test_what_is_said_while_the_model_summarises_stays_in_the_context() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, ScriptedTurn(text="a summary", wait="go"), TALK))
        await (await scene.run()).result()
        compaction = asyncio.ensure_future(scene.runtime.compact("h"))
        while len(scene.provider.requests) < 2:  # noqa: ASYNC110 - it tells of no event
            await asyncio.sleep(0)
        await scene.store.sessions.append_messages("h", [HistoryEntry.user("by the way")])
        scene.provider.release("go")
        await compaction
        await (await scene.run("now")).result()
        assert [entry.text for entry in scene.provider.requests[2].entries][1:] == ["by the way", "now"]

    asyncio.run(scenario())


def test_a_transcript_shows_everything_but_reasoning_and_bytes() -> None:
    content: list[Json] = [
        {"type": "thinking", "thinking": "secret", "signature": "s"},
        {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "1", "name": "read", "input": {"path": "a"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]
    result: dict[str, Json] = {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": "no such file",
        "is_error": True,
    }
    entries = [
        HistoryEntry(message={"role": "assistant", "content": content}, format="anthropic"),
        HistoryEntry(message={"role": "user", "content": [result]}, format="anthropic"),
    ]
    assert transcript(entries, 7).split("\n\n") == [
        "assistant: look",
        'assistant calls read {"path" [5 characters left out]',
        "assistant: [image]",
        "tool error: no such [5 characters left out]",
    ]


def test_concurrent_requests_for_a_compaction_summarise_once_each_turn() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK, SUMMARY))
        await (await scene.run()).result()
        names = await asyncio.gather(*(scene.runtime.compact("h") for _ in range(3)))
        assert names == ["archive-h-1", None, None]

    asyncio.run(scenario())


def test_a_run_waits_for_the_words_it_is_told() -> None:
    async def scenario() -> None:
        scene = await begin(play(TALK))
        run = await scene.run()
        await heard(run, "the answer is 42")
        assert (await run.result()).text == "the answer is 42"

    asyncio.run(scenario())


def test_a_context_that_became_too_long_is_compacted_in_the_middle_if_that_is_wanted() -> None:
    async def scenario() -> None:
        turns = [
            ScriptedTurn(calls=[call("echo", text="x" * 99)]),
            ScriptedTurn(error="context_too_long"),
            SUMMARY,
            ScriptedTurn(text="done"),
        ]
        scene = await begin(play(*turns), [Echo()])
        run = await scene.runtime.start("h", "look", compact=True)
        assert (await run.result()).text == "done"
        assert Compacted("archive-h-1") in await told(run)
        asked = [entry.text for entry in scene.provider.requests[3].entries]
        assert len(asked) == 2
        assert asked[0].endswith("They asked; it is 42.")
        assert asked[1] == "look"
        assert await boundary(scene) == 3
        assert len(await scene.store.sessions.messages("h")) == 4

    asyncio.run(scenario())


@pytest.mark.parametrize(("compact", "summaries"), [(False, 0), (True, 1)])
def test_a_context_that_stays_too_long_fails_the_run(compact: bool, summaries: int) -> None:
    async def scenario() -> None:
        too_long = ScriptedTurn(error="context_too_long")
        scene = await begin(play(too_long, *[SUMMARY] * summaries, too_long))
        with pytest.raises(ContextTooLong):
            await (await scene.runtime.start("h", "look", compact=compact)).result()
        assert len(await scene.store.memory.names()) == summaries

    asyncio.run(scenario())
