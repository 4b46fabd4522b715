"""An engine without transactions may stop in the middle of a commit: no index entry then points at nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from crabstore.store.agents import AgentConfig
from crabstore.store.backend import Backend
from crabstore.store.batch import Column
from crabstore.store.memory import MemoryEntry
from crabstore.store.messages import HistoryEntry
from crabstore.store.reindex import reindex
from crabstore.store.session_records import Source
from crabstore.store.testing import contents
from crabstore.store.testing.entities import SKILL

Operation = Callable[[Backend], Awaitable[object]]


class Stopped(Exception):
    """The engine stopped."""


class PlainBackend(Backend):
    """Five methods over a dict that stop before the write number `fuse`, and then refuse everything."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Column, bytes], bytes] = {}
        self.fuse: int | None = None

    def _write(self) -> None:
        if self.fuse is not None:
            if self.fuse == 0:
                raise Stopped
            self.fuse -= 1

    async def get(self, col: Column, key: bytes) -> bytes | None:
        return self.rows.get((col, key))

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        self._write()
        self.rows[col, key] = value

    async def delete(self, col: Column, key: bytes) -> bool:
        self._write()
        return self.rows.pop((col, key), None) is not None

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        return sorted(key for column, key in self.rows if column == col and key.startswith(prefix))

    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return [(key, self.rows[col, key]) for key in await self.scan_keys(col, prefix)]


async def begin() -> PlainBackend:
    store = PlainBackend()
    await store.agents.put(AgentConfig(id="A", name="coder"))
    await store.agents.set_default("A")
    await store.skills.put(SKILL)
    source = Source(tool="codex", original_id="o")
    await store.sessions.open("h", agent="A", created_by="me", title="crab", source=source)
    entries = [
        HistoryEntry.user(f"crab word{n}", id=str(n), ts="2026-01-01T00:00:00.000000Z") for n in range(3)
    ]
    await store.sessions.append_messages("h", entries)
    await store.memory.put(MemoryEntry(name="note", content="milk"))
    return store


def points_at(store: Backend, col: Column, key: bytes, value: bytes) -> tuple[Column, bytes] | None:
    """The content that an index entry points at; None for what is content itself, or a counter."""
    parts = store.parts(key)
    match parts:
        case ["idx", "agent", _]:
            return Column.AGENT, store.key("agent", value.decode())
        case ["idx", "sess" | "recent", *_, handle]:
            return Column.SESSION, store.key("session", handle, "meta")
        case ["session", handle, "id", _]:
            return Column.SESSION, store.key("session", handle, "msg", f"{int(value):012}")
        case ["idx", "text", _, "term", _, *doc]:
            return Column.TEXT, store.key("idx", "text", parts[2], "doc", *doc)
        case ["idx", "text", "msg", "doc", *doc]:
            return Column.SESSION, store.key(*doc)
        case ["skill", "meta", name]:
            return Column.SKILL, store.key("skill", "body", name)
        case ["default_agent"]:
            return Column.AGENT, store.key("agent", value.decode())
    return None


OPERATIONS: dict[str, Operation] = {
    "create an agent": lambda store: store.agents.put(AgentConfig(id="B", name="other")),
    "rename an agent": lambda store: store.agents.put(AgentConfig(id="A", name="renamed")),
    "delete an agent": lambda store: store.agents.delete("A"),
    "open a session": lambda store: store.sessions.open("new", agent="A", created_by="me", title="sea"),
    "append": lambda store: store.sessions.append_messages("h", [HistoryEntry.user("fresh words", id="9")]),
    "replace": lambda store: store.sessions.append_messages("h", [HistoryEntry.user("crab grown", id="1")]),
    "compact a session": lambda store: store.sessions.append_compact("h", "summary"),
    "truncate": lambda store: store.sessions.truncate_messages("h", 1),
    "delete a session": lambda store: store.sessions.delete("h"),
    "delete a memory": lambda store: store.memory.delete("note"),
    "put a skill": lambda store: store.skills.put(SKILL.replace("review-code", "other")),
    "delete a skill": lambda store: store.skills.delete("review-code"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_wherever_it_stops_no_index_entry_points_at_nothing(name: str) -> None:
    async def stop_after(writes: int) -> bool:
        store = await begin()
        store.fuse = writes
        try:
            await OPERATIONS[name](store)
        except Stopped:
            pass
        else:
            return False
        store.fuse = None
        for col, rows in (await contents(store)).items():
            for key, value in rows:
                target = points_at(store, col, key, value)
                assert target is None or target in store.rows, (writes, key)
        await repaired_by_trying_again(store)
        return True

    async def repaired_by_trying_again(store: PlainBackend) -> None:
        await OPERATIONS[name](store)
        await reindex(store)
        indexed = await contents(store)
        await reindex(store)
        assert await contents(store) == indexed

    stops = 0
    while asyncio.run(stop_after(stops)):
        stops += 1
    assert stops > 0


@pytest.mark.parametrize("name", ["append", "truncate"])
def test_wherever_it_stops_the_next_append_takes_the_next_position(name: str) -> None:
    async def stop_after(writes: int) -> bool:
        store = await begin()
        store.fuse = writes
        try:
            await OPERATIONS[name](store)
        except Stopped:
            pass
        else:
            return False
        store.fuse = None
        before = await store.sessions.messages("h")
        await store.sessions.append_messages("h", [HistoryEntry.user("goes on", id="10")])
        entries = await store.sessions.messages("h")
        assert [entry.id for entry in entries] == [*(entry.id for entry in before), "10"]
        assert await store.sessions.entry_position("h", "10") == len(before)
        meta = await store.sessions.meta("h")
        assert meta is not None
        assert meta.message_count == len(entries)
        return True

    stops = 0
    while asyncio.run(stop_after(stops)):
        stops += 1
    assert stops > 0
