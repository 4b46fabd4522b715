"""The key table, byte for byte: what each interface writes is a format that other programs may read."""

from __future__ import annotations

import asyncio
import hashlib

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.agents import AgentConfig
from crabstore.store.batch import Column
from crabstore.store.memory import MemoryEntry
from crabstore.store.messages import HistoryEntry
from crabstore.store.session_records import Done, Source
from crabstore.store.testing import contents
from crabstore.store.testing.entities import SKILL

AT = "2026-03-01T10:00:00.000000Z"
LATER = "2026-03-01T10:05:00.000000Z"


def rows(col: Column, fill: object) -> dict[bytes, bytes]:
    """What `fill`, a coroutine function over a store, left in a column."""

    async def run() -> dict[bytes, bytes]:
        store = VolatileBackend()
        await fill(store)  # type: ignore[operator]
        return dict((await contents(store))[col])

    return asyncio.run(run())


def test_agents_stand_under_their_id_with_a_name_index() -> None:
    async def fill(store: VolatileBackend) -> None:
        await store.agents.put(AgentConfig(id="01J", name="coder"))
        await store.agents.set_default("01J")

    config = (
        b'{"name":"coder","id":"01J","description":"","model":"","max_iterations":16,"tool_choice":"auto",'
        b'"thinking":false,"max_tokens":null,"thinking_budget":4096,"skills":[],"mcps":[],"harnesses":[],'
        b'"compact_tool_max_len":1024,"hooks":{"memory":{"recall_limit":5}}}'
    )
    assert rows(Column.AGENT, fill) == {b"local/agent/01J": config, b"local/idx/agent/coder": b"01J"}
    assert rows(Column.CONFIG, fill) == {b"local/default_agent": b"01J"}


def test_a_session_nests_under_its_handle_with_its_indexes_beside_it() -> None:
    async def fill(store: VolatileBackend) -> None:
        source = Source(tool="codex", original_id="orig/1", project="/p")
        await store.sessions.open("h", agent="A", created_by="me", created_at=AT, source=source)
        entry = HistoryEntry.user("hello crab", id="e1", ts=LATER)
        await store.sessions.append_messages("h", [entry])
        await store.sessions.append_events("h", [Done(model="m", iterations=1, stop_reason="end", ts=LATER)])
        await store.sessions.append_compact("h", "greeted", boundary=1)

    digest = hashlib.blake2b(b"e1", digest_size=8).hexdigest().encode()
    assert rows(Column.SESSION, fill) == {
        b"local/session/h/meta": (
            b'{"handle":"h","agent":"A","created_by":"me","created_at":"2026-03-01T10:00:00.000000Z",'
            b'"updated_at":"2026-03-01T10:05:00.000000Z","message_count":1,"compacted_at":1,'
            b'"source":{"tool":"codex","project":"/p","original_id":"orig/1"}}'
        ),
        b"local/session/h/archive": b"archive-h-1",
        b"local/session/h/msg/000000000000": (
            b'{"message":{"role":"user","content":"hello crab"},"format":"anthropic","id":"e1",'
            b'"ts":"2026-03-01T10:05:00.000000Z"}'
        ),
        b"local/session/h/evt/000000000000": (
            b'{"event":"done","ts":"2026-03-01T10:05:00.000000Z","model":"m","iterations":1,'
            b'"stop_reason":"end","usage":{}}'
        ),
        b"local/session/h/id/" + digest: b"0",
        b"local/idx/sess/A/me/2026-03-01T10:00:00.000000Z/h": b"h",
        b"local/idx/recent/2026-03-01T10:05:00.000000Z/h": (
            b'{"agent":"A","created_by":"me","tool":"codex","project":"/p"}'
        ),
        b"local/idx/source/codex/orig%2F1": b'{"handle":"h","cursor":{}}',
    }


def test_text_stands_as_documents_postings_and_stats() -> None:
    async def fill(store: VolatileBackend) -> None:
        await store.sessions.open("h", agent="A", created_by="me", created_at=AT, title="Crab")
        await store.sessions.append_messages("h", [HistoryEntry.user("crab, crab and sea", ts=AT)])

    home = b"local/idx/text/"
    attrs = b'"attrs":{"agent":"A","sender":"me",'
    assert rows(Column.TEXT, fill) == {
        home + b"meta/doc/session/h/meta/title": (
            b'{"len":1,"weight":2.0,"terms":["crab"],' + attrs + b'"ts":"2026-03-01T10:00:00.000000Z"},'
            b'"group":2}'
        ),
        home + b"meta/group/session/h": b'{"docs":1,"length":1}',
        home + b"meta/stats": b'{"docs":1,"length":1,"groups":1}',
        home + b"meta/term/crab/session/h/meta/title": b"1",
        home + b"msg/doc/session/h/msg/000000000000": (
            b'{"len":5,"weight":1.5,"terms":["crab","sea","march","2026"],' + attrs + b'"role":"user",'
            b'"ts":"2026-03-01T10:00:00.000000Z"},"group":2}'
        ),
        home + b"msg/group/session/h": b'{"docs":1,"length":5}',
        home + b"msg/stats": b'{"docs":1,"length":5,"groups":1}',
        home + b"msg/term/crab/session/h/msg/000000000000": b"2",
        home + b"msg/term/sea/session/h/msg/000000000000": b"1",
        home + b"msg/term/march/session/h/msg/000000000000": b"1",
        home + b"msg/term/2026/session/h/msg/000000000000": b"1",
    }
    assert rows(Column.CONFIG, fill) == {
        b"local/schema": b'{"text":"keyed-2","keyspace":1,"tokeniser":"words-2","rebuilding":false}'
    }


def test_memory_skills_and_harnesses_stand_under_their_names() -> None:
    async def fill(store: VolatileBackend) -> None:
        await store.memory.put(MemoryEntry(name="a/b", content="milk", aliases=["dairy"], created_at=AT))
        await store.skills.put(SKILL)
        await store.harnesses.put(b"image", "os")

    digest = hashlib.sha256(b"image").hexdigest().encode()
    assert rows(Column.MEMORY, fill) == {
        b"local/memory/a%2Fb": (
            b'{"name":"a/b","content":"milk","kind":"note","aliases":["dairy"],'
            b'"created_at":"2026-03-01T10:00:00.000000Z"}'
        )
    }
    assert set(rows(Column.TEXT, fill)) == {
        b"local/idx/text/mem/doc/memory/a%2Fb",
        b"local/idx/text/mem/stats",
        b"local/idx/text/mem/term/milk/memory/a%2Fb",
        b"local/idx/text/mem/term/dairy/memory/a%2Fb",
    }
    assert rows(Column.SKILL, fill) == {
        b"local/skill/body/review-code": SKILL.encode(),
        b"local/skill/meta/review-code": b'{"name":"review-code","description":"How to review a change."}',
    }
    assert rows(Column.HARNESS, fill) == {b"local/image/" + digest: b"image", b"local/name/os": digest}


def test_a_forgotten_source_leaves_a_tombstone() -> None:
    async def fill(store: VolatileBackend) -> None:
        await store.sessions.open("h", agent="A", created_by="me", source=Source(tool="t", original_id="o"))
        await store.sessions.forget("h")

    assert set(rows(Column.CONFIG, fill)) == {b"local/forgotten/t/o"}
