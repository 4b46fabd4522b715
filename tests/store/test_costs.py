"""What an operation costs does not grow with what it does not touch."""

from __future__ import annotations

import asyncio

from crabstore.store.agents import AgentConfig
from crabstore.store.batch import Column
from crabstore.store.messages import HistoryEntry
from crabstore.store.testing.entities import SKILL

from .counting import CountingBackend


def entry(number: int) -> HistoryEntry:
    return HistoryEntry.user(f"message number{number}", id=f"id{number}", ts="2026-01-01T00:00:00.000000Z")


async def filled(sessions: int, messages: int) -> tuple[CountingBackend, str]:
    """A store of so many sessions, and the handle of one with so many messages."""
    store = CountingBackend()
    for number in range(sessions):
        await store.sessions.open(f"other{number}", agent="A", created_by="me")
        await store.sessions.append_messages(f"other{number}", [entry(0)])
    meta = await store.sessions.open("h", agent="A", created_by="me")
    for number in range(messages):
        await store.sessions.append_messages("h", [entry(number)])
    store.reset()
    return store, meta.handle


def test_an_append_costs_the_same_in_a_long_session_and_in_a_full_store() -> None:
    async def cost(sessions: int, messages: int) -> tuple[int, int, int, int]:
        store, handle = await filled(sessions, messages)
        await store.sessions.append_messages(handle, [entry(999)])
        # The position stands in the id row, the count in the meta row, both and the length in the group's row.
        digits = 3 * len(str(messages)) + len(str(4 * messages))
        return (
            store.read.total(),
            store.listed,
            store.written.total(),
            store.bytes_written - digits,
        )

    assert asyncio.run(cost(0, 100)) == asyncio.run(cost(50, 500))


def test_a_listing_of_recent_sessions_reads_the_page_and_nothing_else() -> None:
    async def run() -> None:
        store, _ = await filled(60, 5)
        rows = await store.sessions.recent(limit=7)
        assert len(rows) == 7
        assert store.listed == 7 and store.read.total() == 7
        assert all(key.startswith(b"local/idx/recent/") for key in store.read)

    asyncio.run(run())


def test_finding_handles_by_their_beginning_reads_no_value_and_a_key_each() -> None:
    async def run() -> None:
        store, _ = await filled(60, 5)
        assert await store.sessions.starting_with("other5") == ["other5", *(f"other5{n}" for n in range(10))]
        assert await store.sessions.starting_with("other", limit=2) == ["other0", "other1"]
        assert await store.sessions.starting_with("none") == []
        assert store.listed == 11 + 2 and not store.read

    asyncio.run(run())


def test_a_listing_of_skills_reads_no_body() -> None:
    async def run() -> None:
        store = CountingBackend()
        await store.skills.put(SKILL)
        store.reset()
        await store.skills.summaries()
        assert not [key for key in store.read if b"/body/" in key]

    asyncio.run(run())


def test_agent_ids_are_read_without_opening_a_config() -> None:
    async def run() -> None:
        store = CountingBackend()
        for name in ("b", "a"):
            await store.agents.create(AgentConfig(name=name))
        store.reset()
        await store.agents.ids()
        assert all(key.startswith(b"local/idx/agent/") for key in store.read)

    asyncio.run(run())


def test_naming_and_deleting_an_image_never_reads_it() -> None:
    async def run() -> None:
        store = CountingBackend()
        digest = await store.harnesses.put(b"x" * 1000, "os")
        store.reset()
        await store.harnesses.set_name("other", digest)
        await store.harnesses.delete(digest)
        assert not [key for key in store.read if b"/image/" in key]

    asyncio.run(run())


def test_deleting_a_session_touches_only_its_own_keys() -> None:
    async def run() -> None:
        store, handle = await filled(40, 20)
        await store.sessions.delete(handle)
        foreign = [key for key in [*store.read, *store.written] if b"other" in key]
        assert foreign == []
        assert not await store.scan_keys(Column.SESSION, store.prefix("session", handle))

    asyncio.run(run())


def test_retracting_a_document_touches_only_its_own_postings() -> None:
    async def run() -> None:
        store, handle = await filled(40, 20)
        await store.sessions.truncate_messages(handle, 19)
        # Two words and the month and year beside them.
        postings = [key for key in store.written if b"/term/" in key]
        assert len(postings) == 4 and all(key.endswith(b"000000000019") for key in postings)

    asyncio.run(run())
