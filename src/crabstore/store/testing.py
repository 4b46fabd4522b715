"""The contract that every backend must pass, importable by anyone who writes one.

    from crabstore.store.testing import BackendContract

    class TestMine(BackendContract):
        async def open_store(self) -> Backend:
            return MyBackend(...)

Each case opens a fresh, empty store and closes it afterwards. Nothing here depends on a test framework: a
failure is an AssertionError.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import wraps
from itertools import product
from typing import ParamSpec

from .agents import AgentConfig
from .backend import Backend
from .batch import Batch, Column
from .errors import Conflict, InvalidArgument, NameTaken, NotFound, OutsideRealm, WrongLoop
from .memory import MemoryEntry
from .messages import HistoryEntry
from .reindex import reindex
from .session_records import Done, SessionMeta, Source
from .session_search import SessionFilter
from .skills import InvalidSkill

__all__ = ["BackendContract", "contents"]

P = ParamSpec("P")
Contents = dict[Column, list[tuple[bytes, bytes]]]
_Case = Callable[["BackendContract", Backend], Awaitable[None]]

HOSTILE_KEYS = [
    b"\x00",
    b"\x00\x00",
    b"\xff",
    b"\xff\xff",
    b"a",
    b"a\x00",
    b"a/",
    b"a/b",
    b"ab",
    b"b%",
    b"\n",
]
HOSTILE_NAMES = ["a", "a/b", "a%2Fb", "a b", "%", "_", "ünï", "a/", "数据", "'; drop", "*", "a" * 128]
SKILL = "---\nname: review-code\ndescription: How to review a change.\n---\n# Review\nRead it twice.\n"


async def contents(store: Backend) -> Contents:
    """Every key and value of a store, by column: what two equal stores agree on."""
    return {col: await store.scan(col, store.prefix()) for col in Column}


def case(test: _Case) -> Callable[[BackendContract], None]:
    """A test that is given a fresh store on an event loop of its own."""

    @wraps(test)
    def run(self: BackendContract) -> None:
        async def body() -> None:
            store = await self.open_store()
            try:
                await test(self, store)
            finally:
                await store.close()

        asyncio.run(body())

    del run.__wrapped__  # a test runner must see a test without parameters
    return run


class BackendContract(ABC):
    """The cases. Subclass it and say how a fresh store is opened."""

    @abstractmethod
    async def open_store(self) -> Backend:
        """A fresh, empty store."""

    # -- the five methods -----------------------------------------------------------------------------------

    @case
    async def test_a_value_put_is_read_back_and_a_later_put_replaces_it(self, store: Backend) -> None:
        key = store.key("k")
        assert await store.get(Column.CONFIG, key) is None
        for value in (b"one", b"", bytes(range(256)) * 300):
            await store.put(Column.CONFIG, key, value)
            assert await store.get(Column.CONFIG, key) == value
            assert await store.scan(Column.CONFIG, store.prefix()) == [(key, value)]

    @case
    async def test_delete_says_whether_there_was_something(self, store: Backend) -> None:
        key = store.key("k")
        assert await store.delete(Column.CONFIG, key) is False
        await store.put(Column.CONFIG, key, b"")
        assert await store.delete(Column.CONFIG, key) is True
        assert await store.get(Column.CONFIG, key) is None
        assert await store.delete(Column.CONFIG, key) is False

    @case
    async def test_columns_are_hard_partitions(self, store: Backend) -> None:
        for col in Column:
            await store.put(col, store.key("same"), col.name.encode())
        for col in Column:
            assert await store.scan(col, store.prefix()) == [(store.key("same"), col.name.encode())]

    @case
    async def test_scans_ascend_in_byte_order_whatever_the_bytes(self, store: Backend) -> None:
        keys = [store.prefix() + tail for tail in HOSTILE_KEYS]
        for key in reversed(keys):
            await store.put(Column.TEXT, key, key[::-1])
        assert await store.scan_keys(Column.TEXT, store.prefix()) == sorted(keys)
        for prefix in [store.prefix(), *keys]:
            under = sorted(key for key in keys if key.startswith(prefix))
            assert await store.scan_keys(Column.TEXT, prefix) == under
            assert await store.scan(Column.TEXT, prefix) == [(key, key[::-1]) for key in under]

    @case
    async def test_a_page_is_a_slice_of_the_scan(self, store: Backend) -> None:
        keys = sorted(store.prefix("p") + tail for tail in HOSTILE_KEYS)
        outside = [store.key("o"), store.key("p"), store.key("q")]
        for key in keys + outside:
            await store.put(Column.TEXT, key, key + b"!")
        prefix = store.prefix("p")
        starts = [None, prefix, *outside, *keys, keys[3] + b"\x01"]
        for after, limit, reverse in product(starts, (None, 0, 1, 3, 100), (False, True)):
            ordered = sorted(keys, reverse=reverse)
            if after is not None:
                ordered = [key for key in ordered if (key < after if reverse else key > after)]
            bounds = {"after": after, "limit": limit, "reverse": reverse}
            wanted = ordered[:limit]
            assert await store.page_keys(Column.TEXT, prefix, **bounds) == wanted, bounds  # type: ignore[arg-type]
            rows = await store.page(Column.TEXT, prefix, **bounds)  # type: ignore[arg-type]
            assert rows == [(key, key + b"!") for key in wanted], bounds

    @case
    async def test_many_gets_answer_in_the_order_asked(self, store: Backend) -> None:
        await store.put(Column.TEXT, store.key("a"), b"1")
        await store.put(Column.TEXT, store.key("c"), b"")
        keys = [store.key(part) for part in ("c", "b", "a", "c")]
        assert await store.get_many(Column.TEXT, keys) == [b"", None, b"1", b""]

    @case
    async def test_bad_input_is_refused_and_changes_nothing(self, store: Backend) -> None:
        key = store.key("k")
        await store.put(Column.CONFIG, key, b"v")
        before = await contents(store)
        text: bytes = "text"  # type: ignore[assignment]
        calls: list[tuple[type[Exception], Callable[[], Awaitable[object]]]] = [
            (OutsideRealm, lambda: store.get(Column.CONFIG, b"elsewhere/k")),
            (OutsideRealm, lambda: store.put(Column.CONFIG, b"elsewhere/k", b"v")),
            (OutsideRealm, lambda: store.put(Column.CONFIG, b"localk", b"v")),
            (OutsideRealm, lambda: store.delete(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.scan_keys(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.scan(Column.CONFIG, b"loca")),
            (OutsideRealm, lambda: store.page(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.page_keys(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.get_many(Column.CONFIG, [key, b"k"])),
            (InvalidArgument, lambda: store.get(Column.CONFIG, text)),
            (InvalidArgument, lambda: store.put(Column.CONFIG, key, text)),
            (InvalidArgument, lambda: store.put(Column.CONFIG, text, b"v")),
            (InvalidArgument, lambda: store.page(Column.CONFIG, store.prefix(), limit=-1)),
            (InvalidArgument, lambda: store.page_keys(Column.CONFIG, store.prefix(), limit=-1)),
        ]
        for error, call in calls:
            await _raises(error, call)
        batch = store.batch()
        for wrong in (text, b"elsewhere"):
            _raises_now(InvalidArgument, batch.put, Column.CONFIG, wrong, b"v")
            _raises_now(InvalidArgument, batch.delete, Column.CONFIG, wrong)
            _raises_now(InvalidArgument, batch.expect, Column.CONFIG, wrong, None)
            _raises_now(InvalidArgument, batch.add, Column.CONFIG, wrong, {"n": 1})
        _raises_now(InvalidArgument, batch.put, Column.CONFIG, key, text)
        await store.commit(batch)
        assert await contents(store) == before

    @case
    async def test_a_second_event_loop_is_refused(self, store: Backend) -> None:
        await store.put(Column.CONFIG, store.key("k"), b"v")

        async def elsewhere() -> None:
            await _raises(WrongLoop, store.get, Column.CONFIG, store.key("k"))

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await store.get(Column.CONFIG, store.key("k")) == b"v"

    # -- batches ----------------------------------------------------------------------------------------------

    @case
    async def test_a_batch_writes_everything_it_staged(self, store: Backend) -> None:
        a, b, c = (store.key(part) for part in "abc")
        await store.put(Column.CONFIG, a, b"old")
        batch = store.batch()
        batch.put(Column.CONFIG, b, b"1")
        batch.put(Column.TEXT, b, b"2")
        batch.put(Column.CONFIG, b, b"3")
        batch.put(Column.CONFIG, c, b"4")
        batch.delete(Column.CONFIG, c)
        batch.delete(Column.CONFIG, a)
        assert await store.get(Column.CONFIG, b) is None
        assert await batch.get(Column.CONFIG, b) == b"3"
        assert await batch.get(Column.CONFIG, a) is None
        assert await batch.scan_keys(Column.CONFIG, store.prefix()) == [b]
        await store.commit(batch)
        assert await store.scan(Column.CONFIG, store.prefix()) == [(b, b"3")]
        assert await store.scan(Column.TEXT, store.prefix()) == [(b, b"2")]

    @case
    async def test_a_failed_expectation_writes_nothing(self, store: Backend) -> None:
        a, b = store.key("a"), store.key("b")
        await store.put(Column.CONFIG, a, b"now")
        before = await contents(store)
        for expected in (None, b"", b"then"):
            batch = store.batch()
            batch.put(Column.CONFIG, b, b"1")
            batch.delete(Column.CONFIG, a)
            batch.add(Column.CONFIG, store.key("n"), {"n": 1})
            batch.expect(Column.CONFIG, a, expected)
            await _raises(Conflict, store.commit, batch)
            assert await contents(store) == before
        batch = store.batch()
        batch.expect(Column.CONFIG, a, b"now")
        batch.expect(Column.CONFIG, b, None)
        batch.put(Column.CONFIG, b, b"1")
        await store.commit(batch)
        assert await store.get(Column.CONFIG, b) == b"1"

    @case
    async def test_counters_add_up_and_never_conflict(self, store: Backend) -> None:
        key = store.key("counters")

        async def raise_both(by: int) -> None:
            batch = store.batch()
            batch.add(Column.TEXT, key, {"docs": 1})
            batch.add(Column.TEXT, key, {"length": by})
            await store.commit(batch)

        await asyncio.gather(*(raise_both(by) for by in range(20)))
        assert await store.get(Column.TEXT, key) == b'{"docs":20,"length":190}'
        batch = store.batch()
        batch.put(Column.TEXT, key, b'{"docs":1}')
        batch.add(Column.TEXT, key, {"docs": -1})
        assert await batch.get(Column.TEXT, key) == b'{"docs":0}'
        await store.commit(batch)
        assert await store.get(Column.TEXT, key) == b'{"docs":0}'

    @case
    async def test_conflicting_transactions_all_go_through(self, store: Backend) -> None:
        key = store.key("list")

        async def append(item: int) -> None:
            async def stage(batch: Batch) -> None:
                old = await batch.get(Column.CONFIG, key)
                await asyncio.sleep(0)
                batch.expect(Column.CONFIG, key, old)
                batch.put(Column.CONFIG, key, (old or b"") + bytes([item]))

            await store.transact(stage)

        await asyncio.gather(*(append(item) for item in range(20)))
        assert sorted(await store.get(Column.CONFIG, key) or b"") == list(range(20))

    # -- agents, memory, skills, harnesses ----------------------------------------------------------------------

    @case
    async def test_agents_are_found_by_id_and_by_name_and_listed_by_name(self, store: Backend) -> None:
        made = [await store.agents.create(AgentConfig(name=name)) for name in HOSTILE_NAMES]
        for agent in made:
            assert await store.agents.get(agent.id) == agent
            assert await store.agents.named(agent.name) == agent
        assert set(await store.agents.ids()) == {agent.id for agent in made}
        assert len(await store.agents.configs()) == len(made)
        await _raises(NameTaken, store.agents.create, AgentConfig(name="a"))
        for bad in ("", "x" * 129, "line\nbreak", "\x00"):
            await _raises(InvalidArgument, store.agents.create, AgentConfig(name=bad))
        assert (await store.agents.ensure("a/b")).id == made[1].id

    @case
    async def test_renaming_an_agent_moves_its_label_and_deleting_it_clears_the_default(
        self, store: Backend
    ) -> None:
        agent = await store.agents.create(AgentConfig(name="before"))
        await store.agents.set_default(agent.id)
        agent.name = "after"
        await store.agents.put(agent)
        assert await store.agents.named("before") is None
        assert await store.agents.named("after") == agent
        assert await store.agents.default() == agent.id
        await _raises(NotFound, store.agents.set_default, "nobody")
        assert await store.agents.delete(agent.id) is True
        assert await store.agents.delete(agent.id) is False
        assert all(not rows for rows in (await contents(store)).values())

    @case
    async def test_memory_is_found_by_name_and_by_its_words(self, store: Backend) -> None:
        for name in HOSTILE_NAMES:
            await store.memory.put(MemoryEntry(name=name, content=f"entry {len(name)}", aliases=["nickname"]))
        assert sorted(await store.memory.names()) == sorted(HOSTILE_NAMES)
        await store.memory.put(MemoryEntry(name="a/b", content="the staging password rotates monthly"))
        [hit] = await store.memory.search("rotating monthly")
        assert hit.entry.name == "a/b"
        assert len(await store.memory.search("nickname")) == len(HOSTILE_NAMES) - 1
        assert await store.memory.search("nickname", kind="archive") == []
        for name in HOSTILE_NAMES:
            assert await store.memory.delete(name) is True
        assert await store.memory.delete("a") is False
        assert await store.memory.search("nickname") == []
        assert await store.scan_keys(Column.MEMORY, store.prefix()) == []

    @case
    async def test_skills_are_listed_by_summary_and_bad_ones_are_refused(self, store: Backend) -> None:
        summary = await store.skills.put(SKILL)
        assert await store.skills.summaries() == [summary]
        assert await store.skills.get("review-code") == SKILL
        for bad in ("", "# no front matter", "---\nname: X\ndescription: d\n---\n", "---\nname: x\n---\n"):
            await _raises(InvalidSkill, store.skills.put, bad)
        assert await store.skills.summaries() == [summary]
        assert await store.skills.delete("review-code") is True
        assert await store.skills.delete("review-code") is False
        assert await store.scan_keys(Column.SKILL, store.prefix()) == []

    @case
    async def test_harness_images_are_addressed_by_digest_and_named(self, store: Backend) -> None:
        digest = await store.harnesses.put(b"\x7fELF" + bytes(1000), "os")
        assert await store.harnesses.get(digest) == b"\x7fELF" + bytes(1000)
        assert await store.harnesses.resolve("os") == digest
        await store.harnesses.set_name("os/latest", digest)
        assert await store.harnesses.names() == {"os": digest, "os/latest": digest}
        await _raises(NotFound, store.harnesses.set_name, "x", digest[:10])
        assert await store.harnesses.digests() == [digest]
        assert await store.harnesses.delete(digest) is True
        assert await store.harnesses.delete(digest) is False
        assert await store.scan_keys(Column.HARNESS, store.prefix()) == []

    # -- sessions -------------------------------------------------------------------------------------------------

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
        await _raises(InvalidArgument, store.sessions.open, "", agent="A", created_by="me")

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
        handles = [(await _session(store, created_at=f"2026-01-0{day}T")).handle for day in range(1, 8)]
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
        await _raises(NotFound, store.sessions.append_messages, "none", [HistoryEntry.user("x")])
        await _raises(NotFound, store.sessions.append_events, "none", [event])

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
        await _raises(InvalidArgument, store.sessions.append_compact, handle, "x", boundary=7)
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
        assert [key for key, _ in after[Column.TEXT]] == [key for key, _ in before[Column.TEXT]]
        assert len(after[Column.SESSION]) == len(before[Column.SESSION])
        assert (await store.sessions.search("word7")).hits == []
        assert await store.sessions.truncate_messages(handle, 99) == 0
        await store.sessions.append_messages(handle, entries[6:7])
        assert await store.sessions.entry_position(handle, "6") == 4
        await _raises(InvalidArgument, store.sessions.truncate_messages, handle, -1)
        await _raises(NotFound, store.sessions.truncate_messages, "none", 0)

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
        left[Column.TEXT] = [row for row in left[Column.TEXT] if not row[0].endswith(b"msg/stats")]
        assert left == before

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
        await _populate(store)
        before = await contents(store)
        for col in Column:
            for key in await store.scan_keys(col, store.prefix()):
                if _is_index(store, col, key):
                    await store.delete(col, key)
        assert await contents(store) != before
        await reindex(store)
        assert await contents(store) == before


async def _session(store: Backend, *, title: str = "", created_at: str = "") -> SessionMeta:
    return await store.sessions.open(agent="A", created_by="me", title=title, created_at=created_at)


async def _populate(store: Backend) -> None:
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


def _is_index(store: Backend, col: Column, key: bytes) -> bool:
    parts = store.parts(key)
    entry_id = col == Column.SESSION and len(parts) == 4 and parts[2] == "id"
    return parts[0] == "idx" or entry_id or parts[:2] == ["skill", "meta"]


async def _raises(
    error: type[Exception], call: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
) -> None:
    try:
        await call(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def _raises_now(error: type[Exception], call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        call(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
