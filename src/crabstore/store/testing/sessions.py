"""Sessions, their search, and rebuilding every index."""

from __future__ import annotations

import asyncio
from itertools import product

from ..backend import Backend
from ..batch import Column
from ..errors import InvalidArgument, NotFound
from ..memory import MemoryEntry
from ..messages import HistoryEntry
from ..reindex import reindex
from ..session_records import Done, SessionMeta, Source
from ..session_search import SessionFilter
from ..text import Hits
from .cases import HOSTILE_NAMES, Contract, case, contents, raises
from .entities import SKILL

__all__ = ["SessionContract", "is_index", "populate"]


class SessionContract(Contract):
    """Sessions, and the indexes over everything."""

    @case
    async def test_a_session_is_opened_once_by_its_own_id_or_its_source(self, store: Backend) -> None:
        source = Source(tool="codex", original_id="a/b%", project="/home/x")
        for name in HOSTILE_NAMES:
            first = await store.sessions.open(name, agent="A", created_by="me")
            assert await store.sessions.open(name, agent="A", created_by="me") == first
        imported = await store.sessions.open(agent="A", created_by="me", source=source)
        assert await store.sessions.open(agent="A", created_by="me", source=source) == imported
        found = await store.sessions.find_source("codex", "a/b%")
        assert found is not None and found.handle == imported.handle
        assert len(await store.sessions.handles("A", "me")) == len(HOSTILE_NAMES) + 1
        await raises(InvalidArgument, store.sessions.open, "", agent="A", created_by="me")

    @case
    async def test_identities_do_not_leak_into_each_other(self, store: Backend) -> None:
        pairs = list(product(HOSTILE_NAMES[:6], HOSTILE_NAMES[:6]))
        for agent, sender in pairs:
            await store.sessions.open(agent=agent, created_by=sender)
        for agent, sender in pairs:
            [handle] = await store.sessions.handles(agent, sender)
            latest = await store.sessions.find_latest(agent, sender)
            assert latest is not None and (latest.handle, latest.agent) == (handle, agent)
        assert await store.sessions.find_latest("A", "nobody") is None

    @case
    async def test_appending_is_idempotent_by_id_and_replaces_what_grew(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        entries = [HistoryEntry.user("alpha", id="1"), HistoryEntry.assistant("beta", id="2")]
        first = await store.sessions.append_messages(handle, entries)
        assert (first.added, first.replaced, first.skipped) == (2, 0, 0)
        before = await contents(store)
        again = await store.sessions.append_messages(handle, entries)
        assert (again.added, again.replaced, again.skipped) == (0, 0, 2)
        assert await contents(store) == before
        grown = await store.sessions.append_messages(
            handle, [HistoryEntry.assistant("beta gamma", id="2"), HistoryEntry.user("delta", id="3")]
        )
        assert (grown.added, grown.replaced, grown.skipped) == (1, 1, 0)
        texts = [entry.text for entry in await store.sessions.messages(handle)]
        assert texts == ["alpha", "beta gamma", "delta"]
        assert await store.sessions.entry_position(handle, "3") == 2
        assert len((await store.sessions.search("gamma")).hits) == 1
        injected = HistoryEntry.user("recalled")
        injected.auto_injected = True
        assert (await store.sessions.append_messages(handle, [injected])).added == 0

    @case
    async def test_concurrent_appends_stay_dense_and_lose_nothing(self, store: Backend) -> None:
        handle = (await _session(store)).handle

        async def append(writer: int) -> None:
            for number in range(5):
                await store.sessions.append_messages(handle, [HistoryEntry.user(f"w{writer} n{number}")])

        await asyncio.gather(*(append(writer) for writer in range(8)))
        entries = await store.sessions.messages(handle)
        assert sorted(entry.text for entry in entries) == sorted(
            f"w{writer} n{number}" for writer, number in product(range(8), range(5))
        )
        meta = await store.sessions.meta(handle)
        assert meta is not None and meta.message_count == 40
        assert len(await store.sessions.recent()) == 1

    @case
    async def test_the_session_that_changed_last_is_listed_first(self, store: Backend) -> None:
        handles = [
            (await _session(store, created_at=f"2026-01-0{day}T00:00:00Z")).handle for day in range(1, 8)
        ]
        await store.sessions.append_messages(
            handles[0], [HistoryEntry.user("late", ts="2026-02-01T00:00:00.000000Z")]
        )
        order = [handles[0], *reversed(handles[1:])]
        seen = []
        page = await store.sessions.recent(limit=3)
        while page:
            seen += [row.handle for row in page]
            page = await store.sessions.recent(limit=3, after=page[-1])
        assert seen == order

    @case
    async def test_ranges_of_messages_and_events_are_read_by_position(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        await store.sessions.append_messages(handle, [HistoryEntry.user(str(n)) for n in range(12)])
        event = Done(model="m", iterations=1, stop_reason="end_turn", ts="2026-01-01T00:00:00.000000Z")
        await store.sessions.append_events(handle, [event])
        await store.sessions.append_events(handle, [event, event])
        for start, stop in ((0, None), (3, 7), (11, 99), (12, None), (5, 5), (7, 3)):
            wanted = [str(n) for n in range(12)][start:stop]
            assert [e.text for e in await store.sessions.messages(handle, start, stop)] == wanted
        assert await store.sessions.events(handle) == [event] * 3
        await raises(NotFound, store.sessions.append_messages, "none", [HistoryEntry.user("x")])
        await raises(NotFound, store.sessions.append_events, "none", [event])

    @case
    async def test_compaction_shrinks_what_is_loaded_and_loses_nothing(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        await store.sessions.append_messages(handle, [HistoryEntry.user(f"word{n}") for n in range(6)])
        name = await store.sessions.append_compact(handle, "They counted.", boundary=4)
        loaded = await store.sessions.load(handle)
        assert loaded is not None and loaded.archive == name
        assert [entry.text for entry in loaded.entries] == ["word4", "word5"]
        archive = await store.memory.get(name)
        assert archive is not None and (archive.kind, archive.content) == ("archive", "They counted.")
        assert len((await store.sessions.search("word1")).hits) == 1
        assert len(await store.sessions.messages(handle)) == 6
        await raises(InvalidArgument, store.sessions.append_compact, handle, "x", boundary=7)
        assert await store.sessions.append_compact(handle, "All.") != name
        await store.sessions.truncate_messages(handle, 3)
        loaded = await store.sessions.load(handle)
        assert loaded is not None and loaded.archive is None and len(loaded.entries) == 3

    @case
    async def test_a_loaded_history_answers_every_tool_call(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        call = HistoryEntry(
            format="anthropic",
            message={
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}],
            },
        )
        await store.sessions.append_messages(handle, [HistoryEntry.user("list"), call])
        loaded = await store.sessions.load(handle)
        assert loaded is not None
        assert [result.call_id for entry in loaded.entries for result in entry.tool_results] == ["t1"]
        assert len(await store.sessions.messages(handle)) == 2

    @case
    async def test_search_finds_messages_titles_and_filters_before_the_cut(self, store: Backend) -> None:
        busy = await _session(store, title="noise")
        await store.sessions.append_messages(
            busy.handle, [HistoryEntry.user(f"deploy deploy number{n}") for n in range(60)]
        )
        quiet = await store.sessions.open(agent="B", created_by="you", root="/srv/app")
        await store.sessions.append_messages(
            quiet.handle, [HistoryEntry.assistant("It was deployed on a long Friday in winter")]
        )
        titled = await _session(store, title="deployment of the crab")
        answer = await store.sessions.search("deploy")
        assert {hit.meta.handle for hit in answer.hits} == {busy.handle, quiet.handle, titled.handle}
        assert answer.complete is True
        first = await store.sessions.search("deploy", limit=1)
        assert first.complete is False and first.hits == answer.hits[:1]
        for where in (
            SessionFilter(agent="B"),
            SessionFilter(sender="you"),
            SessionFilter(project="/srv/app"),
            SessionFilter(role="assistant"),
        ):
            narrowed = await store.sessions.search("deploy", limit=1, where=where)
            assert [hit.meta.handle for hit in narrowed.hits] == [quiet.handle], where
            assert narrowed.complete is True
        assert (await store.sessions.search("deploy", where=SessionFilter(until="2001"))).hits == []
        assert len(answer.hits[-1].window) <= store.sessions.config().window

    @case
    async def test_any_string_is_a_query(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        words = "foo-bar .env src/a.py user@host don't 数据库 café שלום \udcb2 🎉 C++ NEAR"
        await store.sessions.append_messages(handle, [HistoryEntry.user(words.replace("\udcb2", ""))])
        found = [
            "foo-bar",
            ".env",
            "src/a.py",
            "user@host",
            "don't",
            "数据",
            "数",
            "库",
            "cafe\u0301",
            "שלום",
        ]
        for query in [*found, "caf*", "NEAR", "数据库"]:
            assert len((await store.sessions.search(query)).hits) == 1, query
        for query in ("", " ", '"', "*", "\x00", "\udcb2", "🎉", "(", "a" * 5000, "的 the and"):
            assert (await store.sessions.search(query)).hits == [], query

    @case
    async def test_truncating_keeps_the_beginning_and_forgets_the_rest(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        entries = [HistoryEntry.user(f"word{n}", id=str(n)) for n in range(10)]
        await store.sessions.append_messages(handle, entries[:4])
        before = await contents(store)
        await store.sessions.append_messages(handle, entries[4:])
        assert await store.sessions.truncate_messages(handle, 4) == 6
        after = await contents(store)
        # Times and counts may differ; what can be found may not.
        assert len(after[Column.SESSION]) == len(before[Column.SESSION])
        found = [len((await store.text.search("msg", f"word{n}", 9)).hits) for n in range(10)]
        assert found == [1] * 4 + [0] * 6
        assert await store.sessions.truncate_messages(handle, 99) == 0
        await store.sessions.append_messages(handle, entries[6:7])
        assert await store.sessions.entry_position(handle, "6") == 4
        await raises(InvalidArgument, store.sessions.truncate_messages, handle, -1)
        await raises(NotFound, store.sessions.truncate_messages, "none", 0)

    @case
    async def test_deleting_a_session_leaves_no_key_of_it(self, store: Backend) -> None:
        await _session(store, title="stays")
        before = await contents(store)
        source = Source(tool="codex", original_id="o/1")
        meta = await store.sessions.open(agent="A", created_by="me", title="goes away", source=source)
        await store.sessions.append_messages(
            meta.handle, [HistoryEntry.user(f"word{n}", id=str(n)) for n in range(300)]
        )
        await store.sessions.update(meta.handle, summary="many words")
        assert await store.sessions.delete(meta.handle) is True
        assert await store.sessions.delete(meta.handle) is False
        left = await contents(store)
        # How an index forgets is its own matter; that it does is not.
        assert left | {Column.TEXT: []} == before | {Column.TEXT: []}
        for ix, query in (("msg", "word7"), ("meta", "goes away"), ("meta", "many words")):
            assert (await store.text.search(ix, query, 9)).hits == []
        assert len((await store.text.search("meta", "stays", 9)).hits) == 1

    @case
    async def test_a_forgotten_source_is_remembered_as_forgotten(self, store: Backend) -> None:
        source = Source(tool="codex", original_id="o/1")
        meta = await store.sessions.open(agent="A", created_by="me", source=source)
        assert await store.sessions.forgotten("codex", "o/1") is False
        assert await store.sessions.forget(meta.handle) is True
        assert await store.sessions.forgotten("codex", "o/1") is True
        assert await store.sessions.find_source("codex", "o/1") is None

    @case
    async def test_branches_are_marked_without_losing_entries(self, store: Backend) -> None:
        handle = (await _session(store)).handle
        entries = [HistoryEntry.user(f"word{n}", id=str(n)) for n in range(4)]
        await store.sessions.append_messages(handle, entries)
        assert await store.sessions.set_active(handle, {"1", "2"}) == 2
        loaded = await store.sessions.load(handle)
        assert loaded is not None and [entry.id for entry in loaded.entries] == ["0", "3"]
        assert len((await store.sessions.search("word1")).hits) == 1
        await store.sessions.append_messages(handle, entries)
        assert await store.sessions.set_active(handle, {"1", "2"}) == 0
        assert await store.sessions.set_active(handle, []) == 2

    @case
    async def test_every_index_is_rebuilt_from_content(self, store: Backend) -> None:
        await populate(store)
        before, found = await contents(store), await _answers(store)
        for col in Column:
            for key in await store.scan_keys(col, store.prefix()):
                if is_index(store, col, key):
                    await store.delete(col, key)
        assert await contents(store) != before
        await reindex(store)
        # How an index keeps its keys is its own matter; what it answers is not.
        assert await contents(store) | {Column.TEXT: []} == before | {Column.TEXT: []}
        assert await _answers(store) == found


async def _answers(store: Backend) -> list[Hits]:
    words = "first", "word3", "summarised", "things", "milk"
    return [await store.text.search(ix, word, 99) for ix, word in product(("msg", "meta", "mem"), words)]


async def _session(store: Backend, *, title: str = "", created_at: str = "") -> SessionMeta:
    return await store.sessions.open(agent="A", created_by="me", title=title, created_at=created_at)


async def populate(store: Backend) -> None:
    """Something of every kind."""
    agent = await store.agents.ensure("helper")
    await store.skills.put(SKILL)
    await store.memory.put(MemoryEntry(name="note", content="remember the milk"))
    await store.harnesses.put(b"image", "os")
    source = Source(tool="codex", original_id="o", project="/p")
    for title in ("first", "second"):
        meta = await store.sessions.open(
            agent=agent.id, created_by="me", title=title, source=source if title == "first" else None
        )
        entries = [HistoryEntry.user(f"{title} word{n}", id=str(n)) for n in range(5)]
        await store.sessions.append_messages(meta.handle, entries)
        await store.sessions.append_compact(meta.handle, f"{title} summarised", boundary=2)
        await store.sessions.update(meta.handle, summary=f"about {title} things")


def is_index(store: Backend, col: Column, key: bytes) -> bool:
    """Whether a key follows from content."""
    parts = store.parts(key)
    entry_id = col == Column.SESSION and len(parts) == 4 and parts[2] == "id"
    return parts[0] == "idx" or entry_id or parts[:2] == ["skill", "meta"]
