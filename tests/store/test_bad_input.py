"""Bad input to any method is a clear typed error, and the store is as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.agents import AgentConfig
from crabstore.store.errors import InvalidArgument, NotFound, StoreError
from crabstore.store.memory import MemoryEntry
from crabstore.store.messages import HistoryEntry
from crabstore.store.records import Json
from crabstore.store.session_records import Done, Source
from crabstore.store.testing import contents

Call = Callable[[VolatileBackend], Awaitable[object]]


class Anything:
    """Passes for whatever a signature asks for, and is none of it."""


WRONG: object = Anything()


def entry(content: object) -> HistoryEntry:
    message: dict[str, Json] = {"role": "user", "content": content}  # type: ignore[dict-item]
    return HistoryEntry(message=message, format="anthropic")


def append(store: VolatileBackend, content: object) -> Awaitable[object]:
    return store.sessions.append_messages("h", [HistoryEntry.user("fine"), entry(content)])


AT = "2026-01-01T00:00:00.000000Z"
DONE = Done(model="m", iterations=1, stop_reason="end", ts=AT)

CALLS: dict[str, Call] = {
    "a column that is none": lambda s: s.get(9, s.key("k")),  # type: ignore[arg-type]
    "an agent that is no config": lambda s: s.agents.create(WRONG),  # type: ignore[arg-type]
    "a config with a wrong field": lambda s: s.agents.create(AgentConfig(name="x", max_iterations="many")),  # type: ignore[arg-type]
    "a config with half a surrogate": lambda s: s.agents.create(AgentConfig(name="x", description="\udcb2")),
    "an agent without an id": lambda s: s.agents.put(AgentConfig(name="x")),
    "an agent name that is no text": lambda s: s.agents.named(WRONG),  # type: ignore[arg-type]
    "an agent id with half a surrogate": lambda s: s.agents.get("\udcb2"),
    "a default that is nobody": lambda s: s.agents.set_default("nobody"),
    "a handle that is no text": lambda s: s.sessions.open(WRONG, agent="A", created_by="me"),  # type: ignore[arg-type]
    "a handle that is a list": lambda s: s.sessions.meta(["h"]),  # type: ignore[arg-type]
    "a handle that is too long": lambda s: s.sessions.open("x" * 513, agent="A", created_by="me"),
    "an identity that is no text": lambda s: s.sessions.open("n", agent=WRONG, created_by="me"),  # type: ignore[arg-type]
    "a source that is none": lambda s: s.sessions.open("n", agent="A", created_by="me", source=WRONG),  # type: ignore[arg-type]
    "a title that is no text": lambda s: s.sessions.update("h", title=WRONG),  # type: ignore[arg-type]
    "a source with a wrong field": lambda s: s.sessions.update("h", source=Source(tool=WRONG)),  # type: ignore[arg-type]
    "an update of no session": lambda s: s.sessions.update("none", title="x"),
    "an entry that is none": lambda s: s.sessions.append_messages("h", [HistoryEntry.user("x"), WRONG]),  # type: ignore[list-item]
    "a message with an object": lambda s: append(s, WRONG),
    "a message with bytes": lambda s: append(s, b"bytes"),
    "a message with NaN": lambda s: append(s, float("nan")),
    "a message with a set": lambda s: append(s, {"a"}),
    "a message with half a surrogate": lambda s: append(s, "\udcb2"),
    "a message that is too deep": lambda s: append(s, deep(5000)),
    "a message at no time": lambda s: s.sessions.append_messages(
        "h", [HistoryEntry.user("x", ts="yesterday")]
    ),
    "a message at a time without a zone": lambda s: s.sessions.append_messages(
        "h", [HistoryEntry.user("x", ts="2026-01-01T00:00:00")]
    ),
    "a message at a time that no calendar has": lambda s: s.sessions.append_messages(
        "h", [HistoryEntry.user("x", ts="2026-02-31T00:00:00Z")]
    ),
    "an event at no time": lambda s: s.sessions.append_events(
        "h", [Done(model="m", iterations=1, stop_reason="e", ts="t")]
    ),
    "a session of no time": lambda s: s.sessions.open("n", agent="A", created_by="me", created_at="never"),
    "an event that is none": lambda s: s.sessions.append_events("h", [DONE, WRONG]),  # type: ignore[list-item]
    "an event with a wrong field": lambda s: s.sessions.append_events(
        "h",
        [Done(model=3, iterations=1, stop_reason="e", ts=AT)],  # type: ignore[arg-type]
    ),
    "an append to no session": lambda s: s.sessions.append_messages("none", [HistoryEntry.user("x")]),
    "events for no session": lambda s: s.sessions.append_events("none", [DONE]),
    "a boundary that is no position": lambda s: s.sessions.append_compact("h", "x", boundary=99),
    "a boundary that is no number": lambda s: s.sessions.append_compact("h", "x", boundary=WRONG),  # type: ignore[arg-type]
    "a summary that is no text": lambda s: s.sessions.append_compact("h", WRONG),  # type: ignore[arg-type]
    "a negative truncation": lambda s: s.sessions.truncate_messages("h", -1),
    "a truncation to no number": lambda s: s.sessions.truncate_messages("h", WRONG),  # type: ignore[arg-type]
    "a page of minus one": lambda s: s.sessions.recent(limit=-1),
    "a page of no number": lambda s: s.sessions.recent(limit=WRONG),  # type: ignore[arg-type]
    "handles of a sender without an agent": lambda s: s.sessions.handles(None, "me"),
    "a query that is no text": lambda s: s.sessions.search(WRONG),  # type: ignore[arg-type]
    "a search for nothing": lambda s: s.sessions.search("crab", limit=0),
    "a memory that is none": lambda s: s.memory.put(WRONG),  # type: ignore[arg-type]
    "a memory without a name": lambda s: s.memory.put(MemoryEntry(name="", content="x")),
    "a memory with a wrong field": lambda s: s.memory.put(MemoryEntry(name="x", content=3)),  # type: ignore[arg-type]
    "a memory query that is no text": lambda s: s.memory.search(WRONG),  # type: ignore[arg-type]
    "a skill that is no text": lambda s: s.skills.put(WRONG),  # type: ignore[arg-type]
    "a skill whose YAML is broken": lambda s: s.skills.put("---\nname: [x\n---\n"),
    "a skill whose YAML makes objects": lambda s: s.skills.put("---\n!!python/object:os.system {}\n---\n"),
    "an image that is no bytes": lambda s: s.harnesses.put(WRONG),  # type: ignore[arg-type]
    "a name for no image": lambda s: s.harnesses.set_name("x", "0" * 64),
    "an image name that is none": lambda s: s.harnesses.put(b"x", ""),
}


def deep(levels: int) -> object:
    value: object = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_is_a_typed_error_and_changes_nothing(name: str) -> None:
    async def run() -> None:
        store = VolatileBackend()
        await store.sessions.open("h", agent="A", created_by="me", title="crab")
        await store.sessions.append_messages("h", [HistoryEntry.user("crab sea", id="1")])
        before = await contents(store)
        with pytest.raises(StoreError) as caught:
            await CALLS[name](store)
        assert isinstance(caught.value, InvalidArgument | NotFound | ValueError)
        assert await contents(store) == before

    asyncio.run(run())
