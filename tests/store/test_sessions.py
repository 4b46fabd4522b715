"""Sessions beyond the contract: sources, redaction, weights, ranking, compaction at awkward places."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Column
from crabstore.store.messages import HistoryEntry
from crabstore.store.records import Json
from crabstore.store.session_records import SessionMeta, Source
from crabstore.store.session_search import SessionFilter
from crabstore.store.testing import contents
from crabstore.store.weights import Weights

T = TypeVar("T")
Store = VolatileBackend


def on_store(body: Callable[[Store], Awaitable[T]], store: Store | None = None) -> T:
    async def run() -> T:
        return await body(store or VolatileBackend())

    return asyncio.run(run())


def tool_call(call_id: str) -> HistoryEntry:
    content: list[Json] = [
        {"type": "tool_use", "id": call_id, "name": "read_file", "input": {"path": "secret.txt"}}
    ]
    return HistoryEntry(format="anthropic", message={"role": "assistant", "content": content})


def tool_result(call_id: str, text: str) -> HistoryEntry:
    content: list[Json] = [{"type": "tool_result", "tool_use_id": call_id, "content": text}]
    return HistoryEntry(format="anthropic", message={"role": "user", "content": content})


def test_a_source_keeps_its_cursor_when_the_session_is_indexed_anew_and_moves_with_its_id() -> None:
    async def body(store: Store) -> None:
        meta = await store.sessions.open(agent="A", created_by="me", source=Source(tool="t", original_id="o"))
        await store.sessions.set_source("t", "o", meta.handle, {"size": 9})
        await store.sessions.update(meta.handle, source=Source(tool="t", original_id="o", project="/p"))
        row = await store.sessions.find_source("t", "o")
        assert row is not None and row.cursor == {"size": 9}
        await store.sessions.update(meta.handle, source=Source(tool="t", original_id="new"))
        assert await store.sessions.find_source("t", "o") is None
        moved = await store.sessions.find_source("t", "new")
        assert moved is not None and moved.handle == meta.handle

    on_store(body)


def test_a_project_that_is_learnt_late_is_searchable_for_what_was_said_before() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me", source=Source(tool="t", original_id="o"))
        await store.sessions.append_messages("h", [HistoryEntry.user("hello crab")])
        await store.sessions.update("h", source=Source(tool="t", original_id="o", project="/late"))
        answer = await store.sessions.search("crab", where=SessionFilter(project="/late"))
        assert [hit.meta.handle for hit in answer.hits] == ["h"]

    on_store(body)


def test_what_a_tool_said_or_was_told_is_never_found_and_its_name_is() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me")
        await store.sessions.append_messages("h", [tool_call("1"), tool_result("1", "password hunter2")])
        found = {
            word: len((await store.sessions.search(word)).hits) for word in ("hunter2", "secret", "read_file")
        }
        assert found == {"hunter2": 0, "secret": 0, "read_file": 1}

    on_store(body)


def test_the_redact_hook_runs_before_anything_is_indexed() -> None:
    store = VolatileBackend()
    store.redact = lambda text: text.replace("sk-12345", "[key]")

    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me", title="about sk-12345")
        await store.sessions.append_messages("h", [HistoryEntry.user("use sk-12345 please")])
        assert not [key for key in await store.scan_keys(Column.TEXT, store.prefix()) if b"12345" in key]
        assert (await store.sessions.messages("h"))[0].text == "use sk-12345 please"

    on_store(body, store)


def test_the_store_is_asked_for_its_weights() -> None:
    store = VolatileBackend()
    store.weights = Weights(user=0.1, assistant=5.0, hits=1, before=0, after=0)

    async def body(store: Store) -> None:
        for handle, entry in (("u", HistoryEntry.user("crab")), ("a", HistoryEntry.assistant("crab"))):
            await store.sessions.open(handle, agent="A", created_by="me")
            await store.sessions.append_messages(handle, [entry, HistoryEntry.user("other")])
        answer = await store.sessions.search("crab")
        assert [hit.meta.handle for hit in answer.hits] == ["a"] and not answer.complete
        assert len(answer.hits[0].window) == 1

    on_store(body, store)


sessions = st.lists(
    st.tuples(
        st.sampled_from(["", "crab", "crab sea", "deploy"]),
        st.sampled_from(["", "sea crab sea"]),
        st.lists(st.sampled_from(["crab", "sea", "crab crab", "deploy sea", "nothing"]), max_size=12),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(sessions, st.integers(1, 6), st.sampled_from(["crab", "sea deploy", "crab sea"]))
def test_a_page_is_the_head_of_the_full_ranking(
    made: list[tuple[str, str, list[str]]], limit: int, query: str
) -> None:
    async def body(store: Store) -> None:
        for number, (title, summary, texts) in enumerate(made):
            await store.sessions.open(f"h{number:02}", agent="A", created_by="me", title=title)
            await store.sessions.update(f"h{number:02}", summary=summary)
            await store.sessions.append_messages(f"h{number:02}", [HistoryEntry.user(text) for text in texts])
        full = await store.sessions.search(query, limit=1000)
        page = await store.sessions.search(query, limit=limit)
        assert [(hit.meta.handle, hit.score) for hit in page.hits] == [
            (hit.meta.handle, hit.score) for hit in full.hits[:limit]
        ]
        assert full.complete and page.complete == (len(full.hits) <= limit)

    on_store(body)


def test_a_long_message_is_cut_about_its_match_on_a_character_boundary() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me")
        await store.sessions.append_messages("h", [HistoryEntry.user("é" * 5000 + " crab " + "ü" * 5000)])
        [excerpt] = (await store.sessions.search("crab")).hits[0].window
        assert len(excerpt.text.encode()) <= 1024
        [(start, end)] = excerpt.spans
        assert excerpt.text[start:end] == "crab"

    on_store(body)


def test_a_boundary_between_a_call_and_its_result_still_loads_a_valid_history() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me")
        history = [
            HistoryEntry.user("go"),
            tool_call("1"),
            tool_result("1", "done"),
            HistoryEntry.assistant("ok"),
        ]
        await store.sessions.append_messages("h", history)
        await store.sessions.append_compact("h", "so far", boundary=2)
        loaded = await store.sessions.load("h")
        assert loaded is not None
        assert not [entry for entry in loaded.entries if entry.tool_results]
        assert loaded.entries[-1].text == "ok"

    on_store(body)


def test_updated_at_never_goes_back() -> None:
    async def body(store: Store) -> SessionMeta | None:
        at = "2026-05-01T00:00:00.000000Z"
        await store.sessions.open("h", agent="A", created_by="me", created_at=at)
        await store.sessions.append_messages(
            "h", [HistoryEntry.user("old", ts="2020-01-01T00:00:00.000000Z")]
        )
        await store.sessions.update("h", updated_at="2021-01-01T00:00:00Z")
        return await store.sessions.meta("h")

    meta = on_store(body)
    assert meta is not None and meta.updated_at == "2026-05-01T00:00:00.000000Z"


def test_an_id_row_that_points_elsewhere_is_not_believed() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me")
        await store.sessions.append_messages(
            "h", [HistoryEntry.user("one", id="1"), HistoryEntry.user("two", id="2")]
        )
        [(key, _)] = [
            row
            for row in await store.scan(Column.SESSION, store.prefix("session", "h", "id"))
            if row[1] == b"0"
        ]
        await store.put(Column.SESSION, key, b"1")
        assert await store.sessions.entry_position("h", "1") is None
        await store.put(Column.SESSION, key, b"77")
        assert await store.sessions.entry_position("h", "1") is None

    on_store(body)


@pytest.mark.parametrize("where", [SessionFilter(since="2026-02"), SessionFilter(until="2026-02")])
def test_times_filter_messages_by_the_beginning_of_their_time(where: SessionFilter) -> None:
    async def body(store: Store) -> None:
        for month in ("01", "03"):
            await store.sessions.open(month, agent="A", created_by="me")
            entry = HistoryEntry.user("crab", ts=f"2026-{month}-01T00:00:00.000000Z")
            await store.sessions.append_messages(month, [entry])
        [hit] = (await store.sessions.search("crab", where=where)).hits
        assert hit.meta.handle == ("03" if where.since else "01")

    on_store(body)


def test_deleting_while_others_append_ends_with_nothing_left() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me")
        entries = [HistoryEntry.user(f"crab {n}") for n in range(600)]
        await store.sessions.append_messages("h", entries)

        async def append() -> None:
            await store.sessions.append_messages("h", entries[:1])

        await asyncio.gather(store.sessions.delete("h"), append())
        left = await contents(store)
        assert left[Column.SESSION] == []
        assert [key for key, _ in left[Column.TEXT]] == [b"local/idx/text/msg/stats"]

    on_store(body)


def test_a_new_archive_never_takes_the_place_of_an_earlier_one() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me")
        await store.sessions.append_messages("h", [HistoryEntry.user(f"word{n}") for n in range(4)])
        first = await store.sessions.append_compact("h", "one", boundary=3)
        await store.sessions.truncate_messages("h", 1)
        second = await store.sessions.append_compact("h", "two")
        assert first != second
        assert [entry.content for entry in await store.memory.entries()] == ["one", "two"]

    on_store(body)
