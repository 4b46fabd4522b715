"""A run from its first message to its end: what is stored, what is told, in which order, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from crabstore.runtime import (
    BadScript,
    Busy,
    Context,
    Harness,
    HarnessFailed,
    MessageStored,
    NotRunning,
    ProviderUnavailable,
    RateLimited,
    Retrying,
    RuntimeClosed,
    TextDelta,
    ThinkingDelta,
    Tool,
    ToolOutput,
    UnknownModel,
    Usage,
)
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.errors import InvalidArgument, NotFound
from crabstore.store.messages import HistoryEntry, ToolCall
from crabstore.store.session_records import Done, ToolResultEvent, ToolStart

from .scene import Scene, begin, call, heard, play, told

FORMATS = ["anthropic", "openai-chat"]


class Echo(Harness):
    """One tool that says what it was given; it can be held."""

    name = "echo"

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return [Tool("echo", "says it again")]

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        self.began.set()
        await self.gate.wait()
        assert isinstance(call.arguments, dict)
        return ToolOutput(f"echo {call.arguments.get('text')}")


TOOL_TURNS = (
    ScriptedTurn(
        text=["let me ", "look"],
        thinking="hm",
        calls=[call("echo", text="a"), call("echo", text="b")],
        usage={"input_tokens": 10, "output_tokens": 2},
    ),
    ScriptedTurn(text="done", usage={"input_tokens": 20, "output_tokens": 3}),
)


async def texts(scene: Scene) -> list[str]:
    return [f"{entry.role}: {said(entry)}" for entry in await scene.store.sessions.messages("h")]


def said(entry: HistoryEntry) -> str:
    return " ".join(
        [entry.text, *(c.name for c in entry.tool_calls), *(r.text for r in entry.tool_results)]
    ).strip()


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_answers_calls_until_the_model_is_done(format: str) -> None:
    async def scenario() -> None:
        scene = await begin(play(*TOOL_TURNS, format=format), [Echo()])
        result = await (await scene.run()).result()
        assert (result.text, result.stop_reason, result.iterations) == ("done", "end_turn", 2)
        assert result.usage == Usage(30, 5)
        assert await texts(scene) == [
            "user: hello",
            "assistant: let me look echo echo",
            "tool: echo a",
            "tool: echo b",
            "assistant: done",
        ]
        entries = await scene.store.sessions.messages("h")
        assert {entry.format for entry in entries} == {format}

    asyncio.run(scenario())


def test_everything_is_stored_before_it_is_told() -> None:
    async def scenario() -> None:
        scene = await begin(play(*TOOL_TURNS), [Echo()])
        run = await scene.run()
        kinds: list[str] = []
        messages = events = 0
        async for event in run.feed.read():
            kinds.append(type(event).__name__)
            if isinstance(event, MessageStored):
                messages += 1
                assert (await scene.store.sessions.messages("h"))[messages - 1] == event.entry
            elif isinstance(event, ToolStart | ToolResultEvent | Done):
                events += 1
                assert (await scene.store.sessions.events("h"))[events - 1] == event
        assert kinds == [
            "MessageStored",
            *("ThinkingDelta", "TextDelta", "TextDelta", "MessageStored", "ToolStart"),
            *("MessageStored", "ToolResultEvent") * 2,
            *("TextDelta", "MessageStored", "Done"),
        ]

    asyncio.run(scenario())


def test_every_reader_hears_every_event_from_the_first_on() -> None:
    async def scenario() -> None:
        scene = await begin(play(*TOOL_TURNS), [Echo()])
        run = await scene.run()
        first, second = await asyncio.gather(told(run), told(run))
        assert first == second == await told(run)
        assert ThinkingDelta("hm") in first
        assert TextDelta("let me ") in first

    asyncio.run(scenario())


def test_the_model_hears_the_history_of_earlier_runs() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one"), ScriptedTurn(text="two")))
        await (await scene.run("first")).result()
        await (await scene.run("second")).result()
        assert [entry.text for entry in scene.provider.requests[1].entries] == ["first", "one", "second"]
        assert scene.provider.requests[1].model == "m"

    asyncio.run(scenario())


def test_an_agent_without_an_end_stops_after_its_iterations() -> None:
    async def scenario() -> None:
        agent = AgentConfig(name="loop", model="m", max_iterations=3)
        scene = await begin(play(ScriptedTurn(calls=[call("echo")]), repeat=True), agent=agent)
        result = await (await scene.run()).result()
        assert (result.stop_reason, result.iterations) == ("max_iterations", 3)
        done = (await scene.store.sessions.events("h"))[-1]
        assert isinstance(done, Done)
        assert (done.stop_reason, done.iterations) == ("max_iterations", 3)

    asyncio.run(scenario())


def test_a_forced_tool_is_forced_once() -> None:
    async def scenario() -> None:
        agent = AgentConfig(name="forced", model="m", tool_choice="any")
        scene = await begin(play(ScriptedTurn(calls=[call("echo")]), ScriptedTurn(text="ok")), agent=agent)
        await (await scene.run()).result()
        assert [request.tool_choice for request in scene.provider.requests] == ["any", "auto"]

    asyncio.run(scenario())


# -- one session, one run at a time --


def test_runs_of_one_session_queue_and_never_interleave() -> None:
    async def scenario() -> None:
        scene = await begin(play(*TOOL_TURNS, repeat=True), [Echo()])
        runs = [await scene.run(f"message {number}") for number in range(5)]
        assert scene.runtime.live()[0].waiting == 4
        for run in runs:
            await run.result()
        heard = await texts(scene)
        assert len(heard) == 25
        assert heard[::5] == [f"user: message {number}" for number in range(5)]
        assert heard[4::5] == ["assistant: done"] * 5
        assert scene.runtime.live() == []

    asyncio.run(scenario())


def test_a_caller_that_does_not_wait_is_refused_while_a_run_goes_on() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="go")))
        run = await scene.run()
        with pytest.raises(Busy) as refused:
            await scene.runtime.start("h", "again", wait=False)
        assert refused.value.handle == "h"
        scene.provider.release("go")
        await run.result()
        assert await texts(scene) == ["user: hello", "assistant: one"]

    asyncio.run(scenario())


def test_runs_of_different_sessions_go_on_side_by_side() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="held", wait="go")))
        runs = []
        for number in range(20):
            await scene.store.sessions.open(f"s{number}", agent=scene.agent.id, created_by="me")
            runs.append(await scene.runtime.start(f"s{number}", "hello"))
        for run in runs:
            await heard(run, "held")
        scene.provider.release("go")
        assert {(await run.result()).text for run in runs} == {"held"}

    asyncio.run(scenario())


# -- steering --


def test_a_steered_message_reaches_the_model_before_its_next_step() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.gate.clear()
        scene = await begin(play(*TOOL_TURNS), [echo])
        run = await scene.run()
        await echo.began.wait()
        await scene.runtime.steer("h", "and hurry")
        assert "user: and hurry" not in await texts(scene)
        echo.gate.set()
        await run.result()
        assert (await texts(scene))[4:] == ["user: and hurry", "assistant: done"]
        assert scene.provider.requests[1].entries[-1].text == "and hurry"
        assert run.untaken == []

    asyncio.run(scenario())


def test_a_message_steered_into_the_last_answer_is_answered_too() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="go"), ScriptedTurn(text="two")))
        run = await scene.run()
        await heard(run, "one")
        await scene.runtime.steer("h", "wait")
        scene.provider.release("go")
        assert (await run.result()).text == "two"
        assert await texts(scene) == ["user: hello", "assistant: one", "user: wait", "assistant: two"]

    asyncio.run(scenario())


def test_steering_without_a_run_is_refused() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one")))
        with pytest.raises(NotRunning):
            await scene.runtime.steer("h", "too early")
        await (await scene.run()).result()
        with pytest.raises(NotRunning):
            await scene.runtime.steer("h", "too late")

    asyncio.run(scenario())


def test_work_behind_a_cancelled_run_hears_nothing_that_is_steered() -> None:
    async def scenario() -> None:
        scene = await begin(
            play(ScriptedTurn(text="one", wait="never"), ScriptedTurn(text="a summary", wait="go"))
        )
        run = await scene.run()
        await heard(run, "one")
        compaction = asyncio.ensure_future(scene.runtime.compact("h"))
        await asyncio.sleep(0)
        await run.cancel()
        with pytest.raises(NotRunning):
            await scene.runtime.steer("h", "anybody?")
        scene.provider.release("go")
        assert await compaction == "archive-h-1"

    asyncio.run(scenario())


def test_what_was_steered_and_never_taken_is_handed_back() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="never")))
        run = await scene.run()
        await heard(run, "one")
        await scene.runtime.steer("h", "lost?")
        await run.cancel()
        assert [entry.text for entry in run.untaken] == ["lost?"]
        assert await texts(scene) == ["user: hello", "assistant: one"]

    asyncio.run(scenario())


# -- cancelling --


def test_a_cancelled_answer_is_kept_as_far_as_it_came() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text=["half an ", "answer"], wait="never")))
        run = await scene.run()
        await heard(run, "answer")
        assert await scene.runtime.cancel("h")
        result = await run.result()
        assert (result.text, result.stop_reason) == ("half an answer", "cancelled")
        entries = await scene.store.sessions.messages("h")
        assert [(entry.text, entry.mark) for entry in entries] == [
            ("hello", ""),
            ("half an answer", "partial"),
        ]
        done = (await scene.store.sessions.events("h"))[-1]
        assert isinstance(done, Done)
        assert done.stop_reason == "cancelled"
        assert not await scene.runtime.cancel("h")

    asyncio.run(scenario())


def test_a_run_cancelled_in_a_tool_call_leaves_a_valid_history() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.gate.clear()
        scene = await begin(play(*TOOL_TURNS), [echo])
        run = await scene.run()
        await echo.began.wait()
        await run.cancel()
        assert (await run.result()).stop_reason == "cancelled"
        assert await texts(scene) == ["user: hello", "assistant: let me look echo echo"]
        assert not any(isinstance(event, HarnessFailed) for event in await told(run))
        await (await scene.run("go on")).result()
        entries = scene.provider.requests[-1].entries
        assert [len(entry.tool_results) for entry in entries] == [0, 0, 2, 0]

    asyncio.run(scenario())


def test_a_run_cancelled_before_its_turn_never_begins() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="go")))
        first, second = await scene.run("first"), await scene.run("second")
        await second.cancel()
        scene.provider.release("go")
        await first.result()
        assert (await second.result()).stop_reason == "cancelled"
        assert [entry.text for entry in second.untaken] == ["second"]
        assert await texts(scene) == ["user: first", "assistant: one"]
        assert await told(second) == []

    asyncio.run(scenario())


def test_a_harness_that_swallows_a_cancellation_does_not_keep_the_run() -> None:
    class Stubborn(Echo):
        async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
            self.began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return ToolOutput("nothing happened")
            return ToolOutput("")

    async def scenario() -> None:
        stubborn = Stubborn()
        scene = await begin(play(*TOOL_TURNS), [stubborn])
        run = await scene.run()
        await stubborn.began.wait()
        await run.cancel()
        assert (await run.result()).stop_reason == "cancelled"
        assert len(scene.provider.requests) == 1

    asyncio.run(scenario())


def test_a_harness_that_swallows_a_cancellation_before_the_model_is_asked_does_not_keep_the_run_either() -> (
    None
):
    class Stubborn(Echo):
        async def preprocess(self, context: Context, entry: HistoryEntry) -> Sequence[HistoryEntry]:
            self.began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return ()

    async def scenario() -> None:
        stubborn = Stubborn()
        scene = await begin(play(*TOOL_TURNS), [stubborn])
        run = await scene.run()
        await stubborn.began.wait()
        await run.cancel()
        assert (await run.result()).stop_reason == "cancelled"
        assert scene.provider.requests == []

    asyncio.run(scenario())


def test_a_caller_that_goes_away_leaves_the_run_alone() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="go")))
        run = await scene.run()
        waiting = asyncio.ensure_future(run.result())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        scene.provider.release("go")
        assert (await run.result()).text == "one"

    asyncio.run(scenario())


# -- providers that fail --


def test_a_transient_failure_is_asked_again_after_a_growing_wait() -> None:
    async def scenario() -> None:
        turns = [
            ScriptedTurn(error="unavailable"),
            ScriptedTurn(error="rate_limited", retry_after=7),
            ScriptedTurn(text="half", breaks=True),
            ScriptedTurn(text="whole"),
        ]
        scene = await begin(play(*turns))
        run = await scene.run()
        assert (await run.result()).text == "whole"
        assert scene.clock.slept == [1.0, 7, 4.0]
        retries = [event for event in await told(run) if isinstance(event, Retrying)]
        assert [(type(event.error).__name__, event.attempt) for event in retries] == [
            ("ProviderUnavailable", 1),
            ("RateLimited", 2),
            ("BrokenStream", 3),
        ]
        assert await texts(scene) == ["user: hello", "assistant: whole"]

    asyncio.run(scenario())


def test_a_provider_that_stays_away_fails_the_run_and_leaves_a_trace() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(error="unavailable"), repeat=True))
        run = await scene.run()
        with pytest.raises(ProviderUnavailable) as failed:
            await run.result()
        assert failed.value.status == 529
        with pytest.raises(ProviderUnavailable):
            await told(run)
        assert len(scene.provider.requests) == 4
        done = (await scene.store.sessions.events("h"))[-1]
        assert isinstance(done, Done)
        assert done.stop_reason == "error"
        assert scene.runtime.live() == []

    asyncio.run(scenario())


def test_a_limit_that_lasts_too_long_is_handed_to_the_caller() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(error="rate_limited", retry_after=3600)))
        with pytest.raises(RateLimited) as failed:
            await (await scene.run()).result()
        assert failed.value.retry_after == 3600
        assert scene.clock.slept == []

    asyncio.run(scenario())


def test_words_of_an_answer_that_broke_off_for_good_are_kept() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="half", breaks=True), repeat=True))
        run = await scene.run()
        with pytest.raises(Exception, match="breaks off"):
            await run.result()
        entry = (await scene.store.sessions.messages("h"))[-1]
        assert (entry.text, entry.mark) == ("half", "partial")

    asyncio.run(scenario())


# -- what cannot begin --


def test_a_run_that_cannot_begin_stores_nothing() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one")))
        with pytest.raises(NotFound):
            await scene.runtime.start("nowhere", "hello")
        passing = HistoryEntry.user("never stored")
        passing.auto_injected = True
        for message in ("", " ", passing, HistoryEntry.assistant("not a user")):
            with pytest.raises(InvalidArgument):
                await scene.runtime.start("h", message)
        await scene.store.agents.delete(scene.agent.id)
        run = await scene.run()
        with pytest.raises(NotFound):
            await run.result()
        assert [entry.text for entry in run.untaken] == ["hello"]
        assert await texts(scene) == []

    asyncio.run(scenario())


def test_a_model_that_no_provider_serves_is_named() -> None:
    async def scenario() -> None:
        scene = await begin(play())
        runtime = type(scene.runtime)(scene.store, {"local": play(ScriptedTurn(text="ok"))})
        with pytest.raises(UnknownModel) as unknown:
            await (await runtime.start("h", "hello")).result()
        assert (unknown.value.model, unknown.value.known) == ("m", ("local",))

    asyncio.run(scenario())


def test_a_model_goes_to_the_provider_that_its_name_begins_with() -> None:
    async def scenario() -> None:
        agent = AgentConfig(name="coder", model="local/family/large")
        scene = await begin(play(), agent=agent)
        local, default = play(ScriptedTurn(text="local")), play(ScriptedTurn(text="default"))
        runtime = type(scene.runtime)(scene.store, {"local": local, "": default})
        assert (await (await runtime.start("h", "hello")).result()).text == "local"
        assert local.requests[0].model == "family/large"
        assert default.requests == []

    asyncio.run(scenario())


def test_a_closed_runtime_stops_its_runs_and_takes_no_more() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="never")))
        first, second = await scene.run("first"), await scene.run("second")
        await heard(first, "one")
        await scene.runtime.close()
        assert (await first.result()).stop_reason == "cancelled"
        assert (await second.result()).stop_reason == "cancelled"
        with pytest.raises(RuntimeClosed):
            await scene.run()
        assert await texts(scene) == ["user: first", "assistant: one"]

    asyncio.run(scenario())


def test_other_providers_are_asked_by_all_that_begins_after_the_change() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="old", wait="go"), ScriptedTurn(text="old too")))
        run = await scene.run()
        await heard(run, "old")
        former = scene.runtime.use(play(ScriptedTurn(text="new"), ScriptedTurn(text="a summary")))
        scene.provider.release("go")
        assert (await run.result()).text == "old"
        await former.close()
        assert (await (await scene.run("again")).result()).text == "new"
        assert await scene.runtime.compact("h") == "archive-h-1"

    asyncio.run(scenario())


def test_a_runtime_closes_itself_and_may_be_closed_again() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one", wait="never")))
        async with scene.runtime:
            run = await scene.run()
            await heard(run, "one")
        assert run.done
        await scene.runtime.close()

    asyncio.run(scenario())


def test_draining_waits_for_every_run() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one"), repeat=True))
        runs = [await scene.run(str(number)) for number in range(3)]
        await scene.runtime.drain()
        assert all(run.done for run in runs)

    asyncio.run(scenario())


def test_a_run_cancelled_twice_still_ends_in_order() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="half", wait="never")))
        run = await scene.run()
        await heard(run, "half")
        await asyncio.gather(*(run.cancel() for _ in range(3)))
        assert (await run.result()).text == "half"
        assert await texts(scene) == ["user: hello", "assistant: half"]
        assert len(await scene.store.sessions.events("h")) == 1

    asyncio.run(scenario())


def test_a_script_that_is_over_fails_the_run_and_leaves_a_trace() -> None:
    async def scenario() -> None:
        scene = await begin(play())
        with pytest.raises(BadScript):
            await (await scene.run()).result()
        done = (await scene.store.sessions.events("h"))[-1]
        assert isinstance(done, Done)
        assert done.stop_reason == "error"

    asyncio.run(scenario())


def test_half_a_surrogate_pair_of_a_model_or_a_tool_takes_no_run_down() -> None:
    class Halves(Echo):
        async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
            return ToolOutput("a name \udcff of a file")

    async def scenario() -> None:
        turns = [
            ScriptedTurn(text=["\ud83d", "\ude00", "\ud800"], calls=[call("echo", text="\ud800")]),
            ScriptedTurn(text="ok"),
        ]
        scene = await begin(play(*turns), [Halves()])
        assert (await (await scene.run()).result()).text == "ok"
        _, answer, result, _ = await scene.store.sessions.messages("h")
        assert answer.text == "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"
        assert result.tool_results[0].text == "a name \N{REPLACEMENT CHARACTER} of a file"
        with pytest.raises(InvalidArgument):
            await scene.run("\ud800")

    asyncio.run(scenario())


def test_a_run_in_its_last_step_hears_no_more() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.gate.clear()
        declared = [HarnessDeclaration(name="echo")]
        agent = AgentConfig(name="short", model="m", max_iterations=1, harnesses=declared)
        scene = await begin(play(*TOOL_TURNS), [echo], agent=agent)
        run = await scene.run()
        await echo.began.wait()
        with pytest.raises(NotRunning):
            await scene.runtime.steer("h", "too late")
        echo.gate.set()
        assert (await run.result()).stop_reason == "max_iterations"

    asyncio.run(scenario())
