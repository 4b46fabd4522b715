"""Statistics, verification, compaction and reindexing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import crabstore
from crabstore.answers.failures import ExitCode
from crabstore.store.batch import Column

from .conftest import Run


def test_statistics_count_what_is_stored(run: Run, filled: Path) -> None:
    answer = run("stats", "--json", "--store", filled).json
    assert set(answer) == {"counts", "kinds", "text", "file", "verified"}
    assert answer["counts"] == {
        "sessions": 3,
        "messages": 70,
        "events": 0,
        "memory": 1,
        "skills": 1,
        "agents": 2,
        "harnesses": 0,
        "unreadable": 0,
    }
    assert answer["file"]["size"] == filled.stat().st_size
    assert answer["file"]["size"] >= answer["file"]["live"] + answer["file"]["dead"]
    assert answer["file"]["synced"] + answer["file"]["not_synced"] == answer["file"]["size"]
    assert answer["verified"] is None


def test_bytes_by_kind_are_those_of_the_keys_and_values(run: Run, filled: Path) -> None:
    kinds = run("stats", "--json", "--store", filled).json["kinds"]

    async def contents() -> dict[str, tuple[int, int]]:
        async with crabstore.open(filled, read_only=True) as store:
            return {
                col.name.lower(): (len(rows), sum(len(key) + len(value) for key, value in rows))
                for col in Column
                if (rows := await store.scan(col, store.prefix()))
            }

    for kind, (keys, held) in asyncio.run(contents()).items():
        assert kinds[kind]["keys"] == keys
        assert held <= kinds[kind]["bytes"] <= held + 16 * keys


def test_the_index_is_compared_with_the_text_it_finds(run: Run, filled: Path) -> None:
    answer = run("stats", "--json", "--store", filled).json
    text = answer["text"]
    assert text["index_bytes"] == answer["kinds"]["text"]["bytes"]
    assert text["ratio"] == round(text["index_bytes"] / text["text_bytes"], 3)


def test_text_that_is_not_indexed_does_not_count_as_text(run: Run, filled: Path) -> None:
    before = run("stats", "--json", "--store", filled).json["text"]["text_bytes"]

    async def add() -> None:
        async with crabstore.open(filled) as store:
            message: dict[str, object] = {"role": "tool", "content": "x" * 1000, "tool_call_id": "1"}
            entry = crabstore.HistoryEntry(message=json.loads(json.dumps(message)), format="openai-chat")
            await store.sessions.append_messages("aaa-retry", [entry, crabstore.HistoryEntry.user("12345")])

    asyncio.run(add())
    assert run("stats", "--json", "--store", filled).json["text"]["text_bytes"] == before + 5


def test_statistics_are_readable(run: Run, filled: Path) -> None:
    out = run("stats", "--store", filled).out
    facts = [line.split(maxsplit=1) for line in out.splitlines()]
    for fact in (["sessions", "3"], ["messages", "70"], ["verified", "never"], ["file", str(filled)]):
        assert fact in facts
    assert "for a byte of text" in out
    assert ["kind", "keys", "bytes"] in [line.split() for line in out.splitlines()]


def test_a_sound_store_is_verified_and_stats_remember_it(run: Run, filled: Path) -> None:
    answer = run("verify", "--json", "--store", filled).json["verified"]
    assert set(answer) == {
        "path",
        "at",
        "ok",
        "size",
        "frames",
        "records",
        "keys",
        "torn",
        "problems",
        "kept",
    }
    assert answer["ok"] is True and answer["kept"] is True and answer["problems"] == []
    beside = filled.with_name(f"{filled.name}.verified")
    assert beside.stat().st_mode & 0o777 == 0o600
    verified = run("stats", "--json", "--store", filled).json["verified"]
    assert verified == {name: answer[name] for name in ("at", "ok", "size")} == json.loads(beside.read_text())
    assert run("verify", "--store", filled).out.startswith("sound: ")
    assert "sound; 0 B written since" in run("stats", "--store", filled).out


def test_a_verdict_that_cannot_be_kept_is_given_all_the_same(run: Run, filled: Path) -> None:
    filled.with_name(f"{filled.name}.verified").mkdir()
    done = run("verify", "--store", filled)
    assert done.code == ExitCode.DONE and done.out.startswith("sound: ")
    assert "could not be kept" in done.err
    assert run("verify", "--json", "--store", filled).json["verified"]["kept"] is False


def test_a_store_that_was_rewritten_since_its_verification_says_so(run: Run, filled: Path) -> None:
    run("verify", "--store", filled)
    run("compact", "--store", filled)
    assert "sound; rewritten since" in run("stats", "--store", filled).out


def test_a_verdict_that_cannot_be_read_is_none(run: Run, filled: Path) -> None:
    beside = filled.with_name(f"{filled.name}.verified")
    for junk in (b"", b"not json", b"[]", b'{"at":1}', b"\xff"):
        beside.write_bytes(junk)
        assert run("stats", "--json", "--store", filled).json["verified"] is None


def flip(path: Path, words: bytes) -> None:
    """Damage the first place in the file where these bytes stand."""
    data = bytearray(path.read_bytes())
    data[data.index(words)] ^= 0x20
    path.write_bytes(data)


def test_damage_is_found_reported_and_remembered(run: Run, filled: Path) -> None:
    flip(filled, b"retries without backoff")
    done = run("verify", "--store", filled)
    assert done.code == ExitCode.DAMAGED
    assert done.out.startswith("damaged: ") and "\n  at byte " in done.out
    answer = run("verify", "--json", "--store", filled)
    assert answer.code == ExitCode.DAMAGED
    assert set(answer.json["verified"]["problems"][0]) == {"offset", "problem"}
    stats = run("stats", "--store", filled)
    assert stats.code == ExitCode.DONE and ", damaged; " in stats.out
    assert ["unreadable", "1"] in [line.split() for line in stats.out.splitlines()]


def test_a_damaged_store_is_read_as_far_as_it_is_intact(run: Run, filled: Path) -> None:
    flip(filled, b"retries without backoff")
    assert run("sessions", "list", "--store", filled).code == ExitCode.DONE
    assert run("sessions", "show", "c0ffee", "--store", filled).code == ExitCode.DONE
    refused = run("sessions", "show", "aaa-retry", "--json", "--store", filled)
    assert refused.code == ExitCode.DAMAGED and refused.error["kind"] == "damaged"


def test_compaction_tells_what_it_freed_and_loses_nothing(run: Run, filled: Path) -> None:
    before = run("sessions", "export", "c0ffee", "--store", filled).out
    size = filled.stat().st_size
    freed = run("compact", "--json", "--store", filled).json["compacted"]
    assert freed["before"] >= size and freed["freed"] == freed["before"] - freed["after"] > 0
    assert run("sessions", "export", "c0ffee", "--store", filled).out == before
    assert " freed\n" in run("compact", "--store", filled).out


def test_reindex_brings_back_what_an_index_has_lost(run: Run, filled: Path) -> None:
    async def lose() -> None:
        async with crabstore.open(filled) as store:
            await store.delete_prefix(Column.TEXT, store.prefix("idx", "text"))
            await store.delete_prefix(Column.SESSION, store.prefix("idx"))

    found = run("search", "backoff", "--json", "--store", filled).json["hits"]
    asyncio.run(lose())
    assert run("search", "backoff", "--json", "--store", filled).json["hits"] == []
    assert run("reindex", "--json", "--store", filled).json == {"reindexed": {"sessions": 3}}
    again = run("search", "backoff", "--json", "--store", filled).json["hits"]
    assert [hit["session"] for hit in again] == [hit["session"] for hit in found]


def test_a_store_of_another_text_layout_asks_for_a_reindex(run: Run, filled: Path) -> None:
    async def age() -> None:
        async with crabstore.open(filled) as store:
            key = store.key("schema")
            row = json.loads(await store.get(Column.CONFIG, key) or b"")
            await store.put(Column.CONFIG, key, json.dumps(row | {"tokeniser": "words-0"}).encode())

    asyncio.run(age())
    refused = run("search", "backoff", "--json", "--store", filled)
    assert refused.code == ExitCode.VERSION and "crabstore reindex" in refused.error["message"]
    assert run("reindex", "--store", filled).code == ExitCode.DONE
    assert run("search", "backoff", "--store", filled).code == ExitCode.DONE


def test_a_store_in_memory_has_no_file_to_verify(run: Run) -> None:
    assert run("stats", "--json", "--store", ":memory:").json["file"] is None
    for words in ("verify", "compact"):
        assert run(words, "--store", ":memory:").code == ExitCode.USAGE
