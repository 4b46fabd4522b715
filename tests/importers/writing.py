"""Writes small transcripts as the programs do, and reads events back; nothing here is a test."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from crabstore.backends.volatile import VolatileBackend
from crabstore.importers import Report, claude_code, codex, ingest, messages_jsonl
from crabstore.importers.events import Closed, Event, Message, Problem, Session
from crabstore.store.backend import Backend
from crabstore.store.messages import HistoryEntry

SID = "11111111-1111-4111-8111-111111111111"
FORK = "22222222-2222-4222-8222-222222222222"


def stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))


def jsonl(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


# -- Claude Code --


def line(kind: str, uuid: str, parent: str | None, message: Any = None, **members: Any) -> dict[str, Any]:
    """One line; its time follows from its uuid, so that the same line is the same everywhere."""
    row = {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SID,
        "cwd": "/home/ada/tidewatch",
        "type": kind,
        "uuid": uuid,
        "timestamp": f"2026-03-01T10:00:{sum(map(ord, uuid)) % 60:02}.000Z",
    }
    return row | ({} if message is None else {"message": message}) | members


def user(uuid: str, parent: str | None, content: Any, **members: Any) -> dict[str, Any]:
    return line("user", uuid, parent, {"role": "user", "content": content}, **members)


def assistant(uuid: str, parent: str | None, message_id: str, *blocks: Any, **members: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    message = {
        "id": message_id,
        "role": "assistant",
        "model": "m",
        "content": content,
        "usage": {"output_tokens": 1},
    }
    return line("assistant", uuid, parent, message, **members)


def use(call: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {"command": "ls"}}


def result(call: str, answer: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": answer}


def read_claude(rows: Iterable[Any], path: str = f"{SID}.jsonl", **sidecar: Any) -> list[Event]:
    return list(claude_code.read(stream(jsonl(rows)), PurePath(path), sidecar))


# -- Codex --

ROLLOUT = "019c8a4d-8f45-7010-8b5d-7fad920aa6f9"


def rollout(kind: str, payload: Any, at: int = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-02-23T11:41:{at % 60:02}.000Z", "type": kind, "payload": payload}


def meta(original_id: str = ROLLOUT, **members: Any) -> dict[str, Any]:
    stamp = "2026-02-23T11:41:04.709Z"
    return rollout(
        "session_meta", {"id": original_id, "timestamp": stamp, "cwd": "/home/ada/tidewatch"} | members
    )


def item(kind: str, at: int = 0, **members: Any) -> dict[str, Any]:
    return rollout("response_item", {"type": kind, **members}, at)


def said(role: str, text: str, at: int = 0) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    return item("message", at, role=role, content=[{"type": part, "text": text}])


def notice(kind: str, text: str, at: int = 0) -> dict[str, Any]:
    return rollout("event_msg", {"type": kind, "message": text}, at)


def event(kind: str, **members: Any) -> dict[str, Any]:
    return rollout("event_msg", {"type": kind, **members})


def turn(turn_id: str) -> dict[str, Any]:
    return event("task_started", turn_id=turn_id)


def read_codex(rows: Iterable[Any], path: str = f"rollout-x-{ROLLOUT}.jsonl", **titles: str) -> list[Event]:
    data = jsonl(rows)
    return list(codex.read(lambda: stream(data), PurePath(path), titles))


# -- messages --


def read_messages(rows: Iterable[Any], path: str = "talks.jsonl") -> list[Event]:
    return list(messages_jsonl.read(stream(jsonl(rows)), PurePath(path), "2026-01-01T00:00:00.000000Z"))


# -- what came out --


def entries(events: Iterable[Event], original_id: str | None = None) -> list[HistoryEntry]:
    """The entries as a store would hold them: one that comes again replaces itself."""
    held: dict[tuple[str, str], HistoryEntry] = {}
    for found in events:
        if isinstance(found, Message) and original_id in (None, found.original_id):
            held[found.original_id, found.entry.id] = found.entry
    return list(held.values())


def facts(events: Iterable[Event]) -> dict[str, Session]:
    """What is known of each session in the end."""
    known: dict[str, Session] = {}
    for found in events:
        if isinstance(found, Session):
            old = known.get(found.original_id, Session(found.original_id))
            known[found.original_id] = Session(
                found.original_id,
                found.project or old.project,
                old.created_at or found.created_at,
                found.title or old.title,
                found.parent or old.parent,
                old.lineage or found.lineage,
            )
    return known


def title(events: Iterable[Event]) -> str:
    (only,) = facts(events).values()
    return only.title


def inactive(events: Iterable[Event]) -> set[str]:
    return {entry for found in events if isinstance(found, Closed) for entry in found.inactive}


def problems(events: Iterable[Event]) -> list[Problem]:
    return [found for found in events if isinstance(found, Problem)]


# -- stores --


def imported(store: Backend, *paths: Path, again: bool = False) -> Report:
    return asyncio.run(ingest(store, paths, again=again))


Row = tuple[Any, ...]


async def rows(store: Backend) -> dict[tuple[str, str], Row]:
    """Everything that an import made, by tool and original id; handles and agents are the store's own."""
    held: dict[tuple[str, str], Row] = {}
    for handle in await store.sessions.handles():
        meta = await store.sessions.meta(handle)
        assert meta is not None
        agent = await store.agents.get(meta.agent)
        assert agent is not None
        assert agent.name == meta.source.tool
        messages = await store.sessions.messages(handle)
        assert meta.message_count == len(messages)
        row = (meta.title, meta.created_by, meta.created_at, meta.updated_at, meta.source, messages)
        held[meta.source.tool, meta.source.original_id] = row
    return held


class Stored:
    """A store that outlives several imports in one test."""

    def __init__(self) -> None:
        self.store = VolatileBackend()

    def run(self, *paths: Path, again: bool = False) -> tuple[Report, dict[tuple[str, str], Row]]:
        async def both() -> tuple[Report, dict[tuple[str, str], Row]]:
            report = await ingest(self.store, paths, again=again)
            return report, await rows(self.store)

        return self.loop.run_until_complete(both())

    def __enter__(self) -> Stored:
        self.loop = asyncio.new_event_loop()
        return self

    def __exit__(self, *exc: object) -> None:
        self.loop.close()
