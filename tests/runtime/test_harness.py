"""The harness seam: the declaration is the grant, state follows the work, failures end where they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from crabstore.runtime import (
    Context,
    Harness,
    HarnessFailed,
    Hooks,
    MessageStored,
    PartlyResolved,
    Run,
    Tool,
    ToolOutput,
)
from crabstore.runtime.events import Told
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.errors import InvalidArgument
from crabstore.store.messages import HistoryEntry, ToolCall
from crabstore.store.records import evolve

from .scene import begin, call, heard, play, told


class Keeper(Harness):
    """Keeps state for each agent at work, and counts what it is called for."""

    name = "keeper"

    def __init__(self) -> None:
        self.state: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.heard: list[str] = []

    async def on_resolve_agent(self, agent: AgentConfig) -> None:
        self.calls["resolve"] += 1
        self.state.setdefault(agent.id, agent.name)

    async def on_release_agent(self, agent_id: str) -> None:
        self.calls["release"] += 1
        self.state.pop(agent_id, None)

    async def on_forget_agent(self, agent_id: str) -> None:
        self.calls["forget"] += 1
        self.heard.append(agent_id)

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        assert agent.id in self.state, "asked for tools before its state was in place"
        return [Tool("keep"), Tool("drop")]

    def usage(self, agent: AgentConfig) -> str:
        return f"{agent.name} may keep things."

    async def preprocess(self, context: Context, entry: HistoryEntry) -> Sequence[HistoryEntry]:
        return [HistoryEntry.user(f"recalled for {entry.text}")]

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        self.calls[call.name] += 1
        return ToolOutput(f"kept in {self.state[context.agent.id]} by {context.sender or 'nobody'}")

    async def on_event(self, context: Context, event: Told) -> None:
        self.calls[type(event).__name__] += 1

    async def close(self) -> None:
        self.calls["close"] += 1


def failures(events: Sequence[object]) -> list[tuple[str, str]]:
    return [(event.harness, event.hook) for event in events if isinstance(event, HarnessFailed)]


# -- scope --


def test_an_agent_that_declares_nothing_is_told_of_nothing_and_reaches_nothing() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        agent = AgentConfig(name="bare", model="m", description="You are bare.")
        scene = await begin(
            play(ScriptedTurn(calls=[call("keep")]), ScriptedTurn(text="ok")), [keeper], agent=agent
        )
        run = await scene.run()
        await run.result()
        first = scene.provider.requests[0]
        assert (list(first.tools), first.system) == ([], "You are bare.")
        assert [entry.text for entry in first.entries] == ["hello"]
        answer = (await scene.store.sessions.messages("h"))[2].tool_results[0]
        assert answer.is_error
        assert "there is no tool 'keep'" in answer.text
        assert keeper.calls["keep"] == 0
        assert failures(await told(run)) == []

    asyncio.run(scenario())


def test_an_agent_that_declares_a_harness_has_its_tools_its_usage_and_its_context() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        scene = await begin(play(ScriptedTurn(calls=[call("keep")]), ScriptedTurn(text="ok")), [keeper])
        run = await scene.runtime.start("h", "hello", sender="ann")
        await run.result()
        first = scene.provider.requests[0]
        assert [tool.name for tool in first.tools] == ["keep", "drop"]
        assert first.system == "coder may keep things."
        assert [entry.text for entry in first.entries] == ["recalled for hello", "hello"]
        stored = await scene.store.sessions.messages("h")
        assert [entry.text for entry in stored] == ["hello", "", "", "ok"]
        assert stored[2].tool_results[0].text == "kept in coder by ann"
        assert keeper.calls["MessageStored"] == 4
        assert (keeper.calls["ToolStart"], keeper.calls["ToolResultEvent"], keeper.calls["Done"]) == (1, 1, 1)

    asyncio.run(scenario())


def test_a_harness_may_grant_a_part_of_what_it_has() -> None:
    class Sparing(Keeper):
        def scoped_tools(self, agent: AgentConfig) -> Sequence[str]:
            return ["drop", "nothing-like-it"]

    async def scenario() -> None:
        sparing = Sparing()
        scene = await begin(play(ScriptedTurn(calls=[call("keep")]), ScriptedTurn(text="ok")), [sparing])
        await (await scene.run()).result()
        assert [tool.name for tool in scene.provider.requests[0].tools] == ["drop"]
        assert sparing.calls["keep"] == 0

    asyncio.run(scenario())


def test_a_tool_belongs_to_the_first_harness_that_has_it() -> None:
    class Second(Keeper):
        name = "second"

    async def scenario() -> None:
        first, second = Keeper(), Second()
        scene = await begin(
            play(ScriptedTurn(calls=[call("keep")]), ScriptedTurn(text="ok")), [first, second]
        )
        run = await scene.run()
        await run.result()
        assert (first.calls["keep"], second.calls["keep"]) == (1, 0)
        assert failures(await told(run)) == [("second", "schema"), ("second", "schema")]
        assert len(scene.provider.requests[0].tools) == 2

    asyncio.run(scenario())


def test_a_tool_that_no_model_could_be_told_of_is_left_out() -> None:
    class Odd(Harness):
        name = "odd"

        def schema(self, agent: AgentConfig) -> Sequence[Tool]:
            return [Tool("no spaces"), Tool(""), Tool("x" * 65), Tool("fine")]

    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="ok")), [Odd()])
        run = await scene.run()
        await run.result()
        assert [tool.name for tool in scene.provider.requests[0].tools] == ["fine"]
        assert failures(await told(run)) == [("odd", "schema")] * 3

    asyncio.run(scenario())


def test_arguments_that_are_no_object_never_reach_a_harness() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        bad = call("keep")
        bad.arguments = "{broken"
        scene = await begin(play(ScriptedTurn(calls=[bad]), ScriptedTurn(text="ok")), [keeper])
        await (await scene.run()).result()
        assert keeper.calls["keep"] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("names", [["", "a"], ["a", "a"]])
def test_harnesses_have_names_of_their_own(names: list[str]) -> None:
    harnesses = [type("Named", (Harness,), {"name": name})() for name in names]
    with pytest.raises(InvalidArgument):
        Hooks(harnesses)


# -- state is proportional to the agents at work --


def test_state_is_in_place_before_the_run_and_gone_after_the_last_one() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        scene = await begin(play(ScriptedTurn(text="one", wait="go"), repeat=True), [keeper])
        await scene.store.sessions.open("other", agent=scene.agent.id, created_by="me")
        first, second = await scene.run(), await scene.runtime.start("other", "hello")
        await heard(first, "one")
        await heard(second, "one")
        assert list(keeper.state) == [scene.agent.id]
        assert (keeper.calls["resolve"], keeper.calls["release"]) == (2, 0)
        await first.cancel()
        assert list(keeper.state) == [scene.agent.id]
        scene.provider.release("go")
        await second.result()
        assert keeper.state == {}
        assert keeper.calls["release"] == 1

    asyncio.run(scenario())


def test_a_run_that_begins_while_another_ends_has_its_state_all_the_same() -> None:
    class Slow(Keeper):
        async def on_resolve_agent(self, agent: AgentConfig) -> None:
            await asyncio.sleep(0)
            await super().on_resolve_agent(agent)
            await asyncio.sleep(0)

        async def on_release_agent(self, agent_id: str) -> None:
            await asyncio.sleep(0)
            await super().on_release_agent(agent_id)
            await asyncio.sleep(0)

    async def scenario(steps: int) -> bool:
        slow = Slow()
        turns = [ScriptedTurn(calls=[call("keep")]), ScriptedTurn(text="ok")]
        scene = await begin(play(*turns), [slow])
        await scene.store.sessions.open("other", agent=scene.agent.id, created_by="me")
        first = await scene.run()
        for _ in range(steps):
            await asyncio.sleep(0)
        over = first.done
        second = await scene.runtime.start("other", "hello")
        for run in (first, second):
            assert (await run.result()).text == "ok"
            assert failures(await told(run)) == []
        assert slow.state == {}
        return over

    steps = 0
    while not asyncio.run(scenario(steps)):
        steps += 1
    assert steps > 20


def test_a_thousand_agents_that_do_not_work_cost_nothing() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        scene = await begin(play(ScriptedTurn(text="one", wait="go"), repeat=True), [keeper])
        for number in range(1000):
            config = AgentConfig(name=f"idle {number}", harnesses=[HarnessDeclaration(name="keeper")])
            await scene.store.agents.create(config)
        runs: list[Run] = []
        for number in range(3):
            await scene.store.sessions.open(f"s{number}", agent=scene.agent.id, created_by="me")
            runs.append(await scene.runtime.start(f"s{number}", "hello"))
        for run in runs:
            await heard(run, "one")
        assert len(keeper.state) == 1
        assert len(scene.runtime.live()) == 3
        scene.provider.release("go")
        await scene.runtime.drain()
        assert (keeper.state, scene.runtime.live()) == ({}, [])

    asyncio.run(scenario())


def test_an_agent_that_changed_between_two_runs_runs_as_it_is_now() -> None:
    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="one"), repeat=True))
        await (await scene.run()).result()
        await scene.store.agents.put(evolve(scene.agent, description="You are another.", model="n"))
        await (await scene.run()).result()
        assert [request.system for request in scene.provider.requests] == ["", "You are another."]
        assert [request.model for request in scene.provider.requests] == ["m", "n"]

    asyncio.run(scenario())


def test_a_deleted_agent_is_stopped_and_then_forgotten_once() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        scene = await begin(play(ScriptedTurn(text="one", wait="never")), [keeper])
        run = await scene.run()
        await heard(run, "one")
        assert await scene.runtime.delete_agent(scene.agent.id)
        assert (await run.result()).stop_reason == "cancelled"
        assert (keeper.heard, keeper.state) == ([scene.agent.id], {})
        assert not await scene.runtime.delete_agent(scene.agent.id)
        assert keeper.calls["forget"] == 1

    asyncio.run(scenario())


def test_closing_the_runtime_closes_its_harnesses() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        scene = await begin(play(), [keeper])
        await scene.runtime.close()
        assert keeper.calls["close"] == 1

    asyncio.run(scenario())


# -- building --


def test_a_harness_may_change_how_the_agent_is_built_but_not_who_it_is() -> None:
    class Model(Harness):
        name = "model"

        async def on_build_agent(self, agent: AgentConfig) -> AgentConfig:
            return evolve(agent, model="built")

    class Thief(Harness):
        name = "thief"

        async def on_build_agent(self, agent: AgentConfig) -> AgentConfig:
            return evolve(agent, id="another", model="stolen")

    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="ok")), [Model(), Thief()])
        run = await scene.run()
        await run.result()
        assert scene.provider.requests[0].model == "built"
        assert failures(await told(run)) == [("thief", "on_build_agent")]
        stored = await scene.store.agents.get(scene.agent.id)
        assert stored is not None
        assert stored.model == "m"

    asyncio.run(scenario())


# -- a failing harness --

HOOKS = [
    *("on_build_agent", "on_resolve_agent", "on_release_agent", "scoped_tools", "schema", "usage"),
    *("takes_part", "preprocess", "dispatch", "on_event"),
]
SYNCHRONOUS = {"scoped_tools", "schema", "usage", "takes_part"}


def failing(hook: str, error: BaseException) -> Harness:
    """A harness that raises in one hook and is fine in every other."""

    async def later(self: Harness, *args: object) -> object:
        raise error

    def now(self: Harness, *args: object) -> object:
        raise error

    members = {"name": "failing", hook: now if hook in SYNCHRONOUS else later}
    tools: dict[str, object] = {"schema": lambda self, agent: [Tool("fragile")]}
    harness = type("Failing", (Harness,), {**tools, **members})()
    assert isinstance(harness, Harness)
    return harness


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [ValueError("oops"), asyncio.CancelledError()], ids=["error", "leaked"])
def test_a_failing_harness_takes_no_run_down_and_no_other_harness_with_it(
    hook: str, error: BaseException
) -> None:
    async def scenario() -> None:
        keeper = Keeper()
        turns = [ScriptedTurn(calls=[call("fragile"), call("keep")]), ScriptedTurn(text="ok")]
        scene = await begin(play(*turns), [failing(hook, error), keeper])
        run = await scene.run()
        result = await run.result()
        assert (result.text, result.stop_reason) == ("ok", "end_turn")
        assert keeper.calls["keep"] == 1
        reported = {name for _, name in failures(await told(run))}
        expected = {"scoped_tools": "schema", "usage": "schema", "takes_part": "preprocess"}.get(hook, hook)
        assert expected in reported
        answers = [
            entry.tool_results[0] for entry in await scene.store.sessions.messages("h") if entry.tool_results
        ]
        assert answers[0].is_error
        assert not answers[1].is_error

    asyncio.run(scenario())


def test_what_a_failed_tool_says_reaches_the_model_as_an_error() -> None:
    async def scenario() -> None:
        scene = await begin(
            play(ScriptedTurn(calls=[call("fragile")]), ScriptedTurn(text="ok")),
            [failing("dispatch", ValueError("no such disk"))],
        )
        run = await scene.run()
        stored = [event.entry for event in await told(run) if isinstance(event, MessageStored)]
        assert stored[2].tool_results[0].text == "fragile failed: ValueError: no such disk"

    asyncio.run(scenario())


def test_a_tool_that_answers_nonsense_is_an_error_too() -> None:
    class Silent(Keeper):
        async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
            return None  # type: ignore[return-value]

    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(calls=[call("keep")]), ScriptedTurn(text="ok")), [Silent()])
        run = await scene.run()
        await run.result()
        assert failures(await told(run)) == [("keeper", "dispatch")]

    asyncio.run(scenario())


def test_a_harness_that_could_not_be_resolved_takes_no_part() -> None:
    async def scenario() -> None:
        scene = await begin(
            play(ScriptedTurn(text="ok")), [failing("on_resolve_agent", ValueError("no server"))]
        )
        await (await scene.run()).result()
        assert list(scene.provider.requests[0].tools) == []

    asyncio.run(scenario())


def test_a_harness_that_is_partly_resolved_takes_part_with_what_it_has() -> None:
    class Partly(Keeper):
        async def on_resolve_agent(self, agent: AgentConfig) -> None:
            await super().on_resolve_agent(agent)
            raise PartlyResolved("one of two servers is down")

    async def scenario() -> None:
        scene = await begin(play(ScriptedTurn(text="ok")), [Partly()])
        run = await scene.run()
        await run.result()
        assert len(scene.provider.requests[0].tools) == 2
        assert failures(await told(run)) == [("keeper", "on_resolve_agent")]

    asyncio.run(scenario())
