"""Runs over HTTP: started, read as a stream of server-sent events, steered and cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Literal

import msgspec
from starlette.responses import StreamingResponse

from ...answers.documents import Document
from ...answers.lookup import find_session
from ...runtime import RuntimeClosed
from ...store.messages import HistoryEntry
from ...store.records import Json
from ..application import Daemon
from ..runs import LiveRun
from .operations import Ask, Nothing, Operations, Params

__all__ = ["operations"]

operations = Operations()


class Said(Params, frozen=True):
    """A message: text, or a user's message in one of the formats; `sender` is who says it."""

    message: str | dict[str, Json]
    format: Literal["anthropic", "openai-chat"] = "anthropic"
    sender: str = ""

    def entry(self) -> str | HistoryEntry:
        """As the runtime takes it."""
        if isinstance(self.message, str):
            return self.message
        return HistoryEntry(message=self.message, format=self.format)


class NewRun(Said, frozen=True):
    """A message to answer; without `wait`, a session that has a run refuses it."""

    wait: bool = True


class Patience(Params, frozen=True):
    """Whether to wait for the session's turn."""

    wait: bool = True


@operations.add("POST", "/v1/sessions/{handle}/runs", Nothing, NewRun, streams=True)
async def start_run(daemon: Daemon, ask: Ask[Nothing, NewRun]) -> StreamingResponse:
    """Answer a message. The answer is a stream; the run goes on if nobody reads it."""
    handle = await _handle(daemon, ask.path)
    live = await daemon.start(handle, ask.body.entry(), sender=ask.body.sender, wait=ask.body.wait)
    return _stream(live, ask.last_event)


@operations.add("GET", "/v1/runs", Nothing, Nothing)
async def list_runs(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """The sessions that have work, and the runs that can be read: those that go on, and the last that ended."""
    sessions = [
        {"session": live.handle, "agent": live.agent_id, "waiting": live.waiting}
        for live in daemon.runtime.live()
    ]
    runs = [{"run": live.id, "session": live.run.handle, "done": live.run.done} for live in daemon.runs]
    return {"sessions": sessions, "runs": runs}


@operations.add("GET", "/v1/runs/{run}", Nothing, Nothing, streams=True)
async def read_run(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> StreamingResponse:
    """The events of a run, from its first one, or behind the one that the header Last-Event-ID names."""
    return _stream(daemon.runs.find(ask.path["run"]), ask.last_event)


@operations.add("POST", "/v1/sessions/{handle}/steer", Nothing, Said)
async def steer_run(daemon: Daemon, ask: Ask[Nothing, Said]) -> Document:
    """Say something to the run that is going on; the model hears it before its next step."""
    handle = await _handle(daemon, ask.path)
    await daemon.runtime.steer(handle, ask.body.entry(), sender=ask.body.sender)
    return {"steered": {"session": handle}}


@operations.add("POST", "/v1/sessions/{handle}/cancel", Nothing, Nothing)
async def cancel_run(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Stop what the session works on; whether there was something."""
    handle = await _handle(daemon, ask.path)
    return {"cancelled": {"session": handle, "running": await daemon.runtime.cancel(handle)}}


@operations.add("POST", "/v1/sessions/{handle}/compact", Patience, Nothing)
async def compact_session(daemon: Daemon, ask: Ask[Patience, Nothing]) -> Document:
    """Let the model summarise what is in the session's context; the originals stay, and stay searchable."""
    if daemon.closing:
        raise RuntimeClosed
    handle = await _handle(daemon, ask.path)
    archive = await daemon.runtime.compact(handle, wait=ask.query.wait)
    return {"compacted": {"session": handle, "archive": archive}}


async def _handle(daemon: Daemon, path: Mapping[str, str]) -> str:
    return (await find_session(daemon.store, path["handle"])).handle


def _stream(live: LiveRun, after: int) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no", "location": f"/v1/runs/{live.id}"}
    return StreamingResponse(_lines(live, after), headers=headers, media_type="text/event-stream")


async def _lines(live: LiveRun, after: int) -> AsyncIterator[bytes]:
    async with aclosing(live.events(after)) as events:
        async for event in events:
            data = msgspec.json.encode(event.data)
            yield b"id: %d\nevent: %b\ndata: %b\n\n" % (event.number, event.kind.encode(), data)
