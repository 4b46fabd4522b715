"""What the tests of the harnesses share: a context to call one in, and a run whose tool results are read."""

from __future__ import annotations

from collections.abc import Sequence

from crabstore.runtime import Context, Harness, HarnessFailed, Run, ToolOutput
from crabstore.runtime.providers.scripted import ScriptedCall, ScriptedTurn
from crabstore.store.agents import AgentConfig
from crabstore.store.backend import Backend
from crabstore.store.messages import ToolCall
from crabstore.store.records import Json
from crabstore.store.session_records import SessionMeta

from ..scene import Scene, begin, play, told

__all__ = ["answer", "context", "played", "reported", "results"]

TIME = "2026-01-01T00:00:00.000000Z"


def context(agent: AgentConfig, *, by: str = "me") -> Context:
    """A run of `agent` in a session with `by`."""
    meta = SessionMeta(handle="h", agent=agent.id, created_by=by, created_at=TIME, updated_at=TIME)
    return Context(agent, meta)


async def answer(harness: Harness, where: Context, name: str, /, **arguments: Json) -> ToolOutput:
    """One call of a tool, as `Hooks` would make it."""
    return await harness.dispatch(where, ToolCall("c", name, dict(arguments)))


async def results(store: Backend, handle: str = "h") -> list[ToolOutput]:
    """What the tools of a session answered, in order."""
    return [
        ToolOutput(result.text, result.is_error)
        for entry in await store.sessions.messages(handle)
        for result in entry.tool_results
    ]


async def played(
    harnesses: Sequence[Harness], *calls: ScriptedCall, store: Backend, agent: AgentConfig
) -> tuple[Scene, Run]:
    """A run, come to its end, in which the model made these calls, each in a step of its own."""
    turns = [ScriptedTurn(calls=[call]) for call in calls]
    scene = await begin(play(*turns, ScriptedTurn(text="done")), harnesses, store=store, agent=agent)
    run = await scene.run()
    assert (await run.result()).text == "done"
    return scene, run


async def reported(run: Run) -> list[tuple[str, str, str]]:
    """The failures of harnesses that a run told: harness, hook, text."""
    return [
        (event.harness, event.hook, str(event.error))
        for event in await told(run)
        if isinstance(event, HarnessFailed)
    ]
