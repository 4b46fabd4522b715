"""Files into a store: once, whole, whatever else is in the folder."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.importers.writing import (
    FORK,
    ROLLOUT,
    SID,
    Row,
    Stored,
    assistant,
    imported,
    jsonl,
    meta,
    notice,
    result,
    rows,
    said,
    use,
    user,
)

import crabstore
from crabstore.backends.volatile import VolatileBackend
from crabstore.importers import FileReport, Report, ingest, places, sources
from crabstore.store.batch import Batch, Column
from crabstore.store.messages import HistoryEntry
from crabstore.store.records import encode
from crabstore.store.reindex import reindex

importing = importlib.import_module("crabstore.importers.ingest")

CLAUDE = [
    user("u1", None, "why does the gauge drift?"),
    assistant("a1", "u1", "m1", "I look.", use("t1")),
    user("r1", "a1", [result("t1", "kelpwort")]),
    assistant("a2", "r1", "m2", "The clock is read twice."),
]
CODEX = [meta(), said("user", "add a test"), notice("user_message", "add a test"), said("assistant", "added")]
TALKS = [{"messages": [{"role": "user", "content": f"question {n}"}]} for n in range(3)]


def write(path: Path, rows: list[Any], at: int = 1_700_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jsonl(rows))
    os.utime(path, (at, at))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A person's home with transcripts of all three kinds."""
    write(tmp_path / ".claude/projects/-home-ada/" / f"{SID}.jsonl", CLAUDE)
    write(tmp_path / ".codex/sessions/2026/02/23" / f"rollout-2026-02-23T12-41-04-{ROLLOUT}.jsonl", CODEX)
    write(tmp_path / "talks.jsonl", TALKS)
    return tmp_path


def one(report: Report) -> FileReport:
    (only,) = report.files
    return only


# -- what an import makes --


def test_sessions_carry_where_they_come_from(home: Path) -> None:
    with Stored() as stored:
        report, held = stored.run(home / ".claude", home / ".codex", home / "talks.jsonl")
    assert report.ok
    assert (report.total("sessions"), report.total("new_sessions"), report.total("added")) == (5, 5, 9)
    title, sender, created_at, updated_at, source, messages = held["claude-code", SID]
    assert (title, sender) == ("why does the gauge drift?", "user")
    assert (source.project, source.parent) == ("/home/ada/tidewatch", "")
    assert source.path == str(home / f".claude/projects/-home-ada/{SID}.jsonl")
    assert created_at == messages[0].ts
    assert updated_at == max(entry.ts for entry in messages)
    assert [entry.id for entry in messages] == ["u1", "a1", "r1", "a2"]
    assert held["codex", ROLLOUT][0] == "add a test"
    assert [tool for tool, _ in held].count("messages") == 3


def test_messages_without_a_time_get_the_files(home: Path) -> None:
    with Stored() as stored:
        _, held = stored.run(home / "talks.jsonl")
    for _, _, created_at, _, _, messages in held.values():
        assert created_at == messages[0].ts == "2023-11-14T22:13:20.000000Z"


def test_what_a_tool_answered_is_not_found_and_what_was_said_is(home: Path) -> None:
    async def search() -> list[int]:
        store = VolatileBackend()
        await ingest(store, [home])
        return [len((await store.sessions.search(word)).hits) for word in ("kelpwort", "gauge", "added")]

    assert asyncio.run(search()) == [0, 1, 1]


def test_subagents_are_linked_to_their_trunk_and_named_by_their_sidecar(home: Path) -> None:
    folder = home / f".claude/projects/-home-ada/{SID}/subagents"
    write(folder / "agent-7b2.jsonl", [user("s1", None, "count", isSidechain=True, agentId="7b2")])
    (folder / "agent-7b2.meta.json").write_text(json.dumps({"description": "Count tests", "toolUseId": "t1"}))
    write(folder / "journal.jsonl", [{"type": "started"}])
    with Stored() as stored:
        report, held = stored.run(home / ".claude")
    assert report.ok
    assert held["claude-code", f"{SID}/7b2"][0] == "Count tests"
    assert held["claude-code", f"{SID}/7b2"][4].parent == SID


def test_the_session_index_of_codex_names_its_sessions(home: Path) -> None:
    write(home / ".codex/session_index.jsonl", [{"id": ROLLOUT, "thread_name": "Tests", "updated_at": "x"}])
    with Stored() as stored:
        _, held = stored.run(home / ".codex")
    assert held["codex", ROLLOUT][0] == "Tests"


def test_a_store_on_disk_holds_what_one_in_memory_does(home: Path) -> None:
    async def on_disk() -> dict[tuple[str, str], Row]:
        async with crabstore.open(str(home / "store.crmem")) as store:
            assert (await ingest(store, [home])).ok
        async with crabstore.open(str(home / "store.crmem")) as store:
            assert (await ingest(store, [home])).with_status("unchanged") == 3
            return await rows(store)

    with Stored() as stored:
        assert asyncio.run(on_disk()) == stored.run(home)[1]


# -- again, and grown --


def test_the_same_input_twice_adds_nothing(home: Path) -> None:
    with Stored() as stored:
        _, first = stored.run(home)
        report, second = stored.run(home)
        assert [file.status for file in report.files] == ["unchanged"] * 3
        report, third = stored.run(home, again=True)
    assert first == second == third
    assert (report.total("added"), report.total("replaced"), report.total("skipped")) == (0, 0, 9)


def test_a_file_that_has_not_changed_is_not_opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Stored() as stored:
        stored.run(home)
        monkeypatch.setattr(importing, "opener", None)
        report, _ = stored.run(home)
    assert report.with_status("unchanged") == 3


def test_a_grown_file_adds_its_tail(home: Path) -> None:
    path = home / "talks.jsonl"
    with Stored() as stored:
        stored.run(path)
        write(path, [*TALKS, {"messages": [{"role": "user", "content": "one more"}]}])
        report, held = stored.run(path)
    assert (one(report).added, one(report).skipped, one(report).new_sessions) == (1, 3, 1)
    assert len(held) == 4


def test_a_file_that_moved_is_the_same_session(home: Path) -> None:
    with Stored() as stored:
        _, before = stored.run(home / ".codex")
        old = next((home / ".codex").rglob("rollout-*"))
        moved = home / ".codex/archived_sessions" / old.name
        moved.parent.mkdir()
        old.rename(moved)
        report, after = stored.run(home / ".codex")
    assert report.total("added") == 0
    assert after["codex", ROLLOUT][5] == before["codex", ROLLOUT][5]
    assert after["codex", ROLLOUT][4].path == str(moved)


def test_a_session_outlives_its_file(home: Path) -> None:
    with Stored() as stored:
        _, before = stored.run(home / ".claude")
        (home / f".claude/projects/-home-ada/{SID}.jsonl").unlink()
        _, after = stored.run(home / ".claude")
    assert before == after


def test_a_title_given_by_hand_survives_and_ours_follows_the_file(home: Path) -> None:
    path = home / f".claude/projects/-home-ada/{SID}.jsonl"
    custom = {"type": "custom-title", "customTitle": "Drift", "sessionId": SID}

    async def rename(store: VolatileBackend) -> None:
        (handle,) = await store.sessions.handles()
        await store.sessions.update(handle, title="Mine")

    with Stored() as stored:
        stored.run(path)
        write(path, [*CLAUDE, custom])
        _, held = stored.run(path)
        assert held["claude-code", SID][0] == "Drift"
        stored.loop.run_until_complete(rename(stored.store))
        write(path, [*CLAUDE, custom, custom | {"customTitle": "Drift again"}])
        _, held = stored.run(path)
    assert held["claude-code", SID][0] == "Mine"


def test_a_branch_that_comes_back_is_active_again(home: Path) -> None:
    path = home / f".claude/projects/-home-ada/{SID}.jsonl"
    rewound = [*CLAUDE, user("b1", "a2", "one"), user("b2", "a2", "two")]

    def off(held: dict[tuple[str, str], Row]) -> list[str]:
        return [entry.id for entry in held["claude-code", SID][5] if not entry.active]

    with Stored() as stored:
        write(path, rewound)
        assert off(stored.run(path)[1]) == ["b1"]
        write(path, [*rewound, assistant("b1a", "b1", "m9", "back")])
        assert off(stored.run(path)[1]) == []


# -- sessions that copy each other --


def forked(start: list[Any], *own: Any) -> list[Any]:
    return [row | {"sessionId": FORK} for row in (*start, *own)]


def test_a_resumed_session_adds_only_its_own_lines_and_names_its_parent(tmp_path: Path) -> None:
    write(tmp_path / f"{SID}.jsonl", CLAUDE, at=1000)
    write(tmp_path / f"{FORK}.jsonl", forked(CLAUDE, user("f1", "a2", "go on")), at=2000)
    with Stored() as stored:
        report, held = stored.run(tmp_path)
        again, _ = stored.run(tmp_path, again=True)
    assert [entry.id for entry in held["claude-code", FORK][5]] == ["f1"]
    assert held["claude-code", FORK][4].parent == SID
    assert held["claude-code", FORK][5][0].parent == "a2"
    assert (report.total("added"), report.total("skipped")) == (5, 4)
    assert again.total("added") == 0


def test_a_fork_of_a_fork_copies_from_both(tmp_path: Path) -> None:
    third = "33333333-3333-4333-8333-333333333333"
    second = [*CLAUDE, user("f1", "a2", "go on")]
    write(tmp_path / f"{SID}.jsonl", [*CLAUDE, user("x1", "a2", "meanwhile")], at=1000)
    write(tmp_path / f"{FORK}.jsonl", second, at=2000)
    write(tmp_path / f"{third}.jsonl", [*second, user("g1", "f1", "further")], at=3000)
    with Stored() as stored:
        _, held = stored.run(tmp_path)
    assert {name: [entry.id for entry in row[5]] for (_, name), row in held.items()} == {
        SID: ["u1", "a1", "r1", "a2", "x1"],
        FORK: ["f1"],
        third: ["g1"],
    }
    assert held["claude-code", third][4].parent == FORK


def test_forks_stay_forks_when_the_indexes_were_built_anew(tmp_path: Path) -> None:
    write(tmp_path / f"{SID}.jsonl", CLAUDE, at=1000)
    fork = write(tmp_path / f"{FORK}.jsonl", forked(CLAUDE, user("f1", "a2", "go on")), at=2000)
    with Stored() as stored:
        _, before = stored.run(tmp_path)
        stored.loop.run_until_complete(reindex(stored.store))
        _, after = stored.run(fork)
    assert before == after


def test_a_resume_that_says_nothing_new_is_no_session(tmp_path: Path) -> None:
    write(tmp_path / f"{SID}.jsonl", CLAUDE, at=1000)
    write(tmp_path / f"{FORK}.jsonl", forked(CLAUDE), at=2000)
    with Stored() as stored:
        report, held = stored.run(tmp_path)
    assert report.ok
    assert list(held) == [("claude-code", SID)]


def test_a_forgotten_session_is_never_imported_again(home: Path) -> None:
    async def forget(store: VolatileBackend) -> None:
        row = await store.sessions.find_source("codex", ROLLOUT)
        assert row is not None
        await store.sessions.forget(row.handle)

    with Stored() as stored:
        stored.run(home)
        stored.loop.run_until_complete(forget(stored.store))
        report, held = stored.run(home / ".codex", again=True)
    assert ("codex", ROLLOUT) not in held
    assert (one(report).forgotten, one(report).sessions, report.ok) == (1, 0, True)


# -- what cannot be read --


def test_what_is_no_transcript_is_refused_by_name_and_the_rest_is_imported(home: Path) -> None:
    (home / "export.json").write_text(json.dumps([{"title": "x", "mapping": {}}]))
    (home / "package.json").write_text('{"name": "x"}')
    (home / "broken.jsonl").write_bytes(b"\x89PNG")
    with Stored() as stored:
        report, held = stored.run(home)
    assert not report.ok
    assert len(held) == 5
    refusals = {Path(path).name: problem.reason for path, problem in report.problems}
    assert "ChatGPT" in refusals["export.json"]
    assert "members name" in refusals["package.json"]
    assert "PNG" in refusals["broken.jsonl"]
    assert report.with_status("refused") == 3


def test_nothing_imported_is_never_silent(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "zero.jsonl").touch()
    write(tmp_path / "notes.jsonl", [{"type": "file-history-snapshot", "snapshot": {}, "messageId": "m"}])
    for path in (tmp_path / "empty", tmp_path / "zero.jsonl", tmp_path / "notes.jsonl"):
        report = imported(VolatileBackend(), path)
        assert one(report).status == "empty"
        assert len(one(report).problems) == 1
        assert report.ok
    gone = imported(VolatileBackend(), tmp_path / "gone.jsonl")
    assert (one(gone).status, gone.ok) == ("unreadable", False)


def test_bad_lines_are_named_with_their_place(home: Path) -> None:
    path = home / f".claude/projects/-home-ada/{SID}.jsonl"
    data = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(data[0] + b"<<<<<<< HEAD\n" + data[1] + b'{"cut": ' + b"\n" + b"".join(data[2:]))
    report = imported(VolatileBackend(), path)
    places_of = [(problem.line, problem.offset) for problem in one(report).problems]
    assert places_of == [(2, len(data[0])), (4, len(data[0]) + 13 + len(data[1]))]
    assert (one(report).added, one(report).lost) == (4, 2)


def test_thousands_of_bad_lines_are_counted_and_few_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "talks.jsonl", [*TALKS, *range(3000)])
    report = imported(VolatileBackend(), path)
    assert (one(report).lost, len(one(report).problems), one(report).added) == (3000, 100, 3)


def test_packed_rollouts_are_read_and_a_plain_twin_wins(home: Path) -> None:
    plain = next((home / ".codex").rglob("rollout-*"))
    packed = plain.with_name(plain.name + ".zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(jsonl(CODEX)))
    with Stored() as stored:
        _, first = stored.run(home / ".codex")
        assert first["codex", ROLLOUT][4].path == str(plain)
        plain.unlink()
        report, second = stored.run(home / ".codex")
    assert report.total("skipped") == 2
    assert second["codex", ROLLOUT][5] == first["codex", ROLLOUT][5]


def test_packed_rollouts_without_the_extra_are_named_with_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = home / f"rollout-{ROLLOUT}.jsonl.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(jsonl(CODEX)))
    monkeypatch.setattr(sources, "zstandard", None)
    report = imported(VolatileBackend(), packed)
    assert one(report).status == "unreadable"
    assert "crabstore[zstd]" in one(report).problems[0].reason


@pytest.mark.parametrize("cut", [True, False])
def test_damage_in_a_packed_file_keeps_what_came_before_it(tmp_path: Path, cut: bool) -> None:
    many = [meta(), *(said("user", f"{n} " + "the same words again " * 50) for n in range(2000))]
    data = jsonl(many)
    pieces = [zstandard.ZstdCompressor().compress(half) for half in (data[:700_000], data[700_000:])]
    path = tmp_path / f"rollout-{ROLLOUT}.jsonl.zst"
    path.write_bytes(b"".join(pieces))
    assert one(imported(VolatileBackend(), path)).added == 2000
    path.write_bytes(pieces[0] + (pieces[1][:-9] if cut else b"no zstd frame at all"))
    report = imported(VolatileBackend(), path)
    assert (one(report).status, report.ok) == ("unreadable", False)
    assert 0 < one(report).added < 2000


def test_a_document_beyond_the_limit_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(TALKS, indent=1))
    assert one(imported(VolatileBackend(), path)).added == 3
    monkeypatch.setattr(sources, "MAX_RECORD", 50)
    report = imported(VolatileBackend(), path)
    assert (one(report).status, one(report).added) == ("unreadable", 0)


def test_names_that_are_no_text_are_imported(tmp_path: Path) -> None:
    try:
        path = write(tmp_path / os.fsdecode(b"t\xffalk.jsonl"), TALKS)
    except OSError:
        pytest.skip("this file system has only text for names")
    with Stored() as stored:
        assert stored.run(path)[0].total("added") == 3
        assert stored.run(path)[0].with_status("unchanged") == 1


# -- when the store fails --


class Failing(VolatileBackend):
    """Fails at the n-th write, once."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "No space left on device")

    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        self.count()
        await super().put(col, key, value)

    async def commit(self, batch: Batch) -> None:
        self.count()
        await super().commit(batch)


def test_a_failing_engine_ends_the_import_and_doing_it_again_continues_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_BATCH_ENTRIES", 1)
    write(
        home / f"x/{FORK}.jsonl",
        forked(CLAUDE, user("b1", "a2", "one"), user("b2", "a2", "two")),
        at=1_800_000_000,
    )

    async def cut_off_at(at: int) -> tuple[bool, dict[tuple[str, str], Row]]:
        store = Failing(at)
        try:
            await ingest(store, [home])
        except OSError:
            await ingest(store, [home])
            return True, await rows(store)
        return False, await rows(store)

    whole = asyncio.run(cut_off_at(10**9))[1]
    at, failed = 0, True
    while failed:
        at += 1
        failed, held = asyncio.run(cut_off_at(at))
        assert held == whole, f"after a failure at write {at}"
    assert at > 30


def test_a_session_that_cannot_be_stored_stops_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def picky(entry: HistoryEntry) -> bytes:
        if "question 1" in entry.text:
            raise RecursionError("too deep")
        return encode(entry)

    monkeypatch.setattr(importing, "encode", picky)
    with Stored() as stored:
        report, held = stored.run(home / "talks.jsonl")
        assert (one(report).lost, len(held)) == (1, 2)
        monkeypatch.undo()
        report, held = stored.run(home / "talks.jsonl")
        assert (one(report).status, len(held)) == ("imported", 3)


# -- where transcripts are --


def test_the_well_known_places_are_named_whether_there_or_not(home: Path) -> None:
    found = places(home)
    assert [(place.tool, place.exists) for place in found] == [
        ("claude-code", True),
        ("claude-code", False),
        ("codex", True),
        ("codex", False),
    ]
    moved = places(home, claude_config_dir=home / "c", codex_home=home / "x")
    assert [place.path for place in moved] == [
        home / "c/projects",
        home / "x/sessions",
        home / "x/archived_sessions",
    ]


def test_links_out_of_the_folder_are_not_followed(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = write(tmp_path_factory.mktemp("other") / "secret.jsonl", TALKS)
    folder = home / ".codex/sessions"
    (folder / "linked.jsonl").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    with Stored() as stored:
        report, held = stored.run(folder)
    assert list(held) == [("codex", ROLLOUT)]
    assert [Path(path).name for path, _ in report.problems] == ["linked.jsonl"]


def test_repositories_and_companions_are_passed_over(home: Path) -> None:
    for name in (".git/x.jsonl", "history.jsonl", "sessions-index.json", "tool-results/x.json"):
        write(home / ".claude/projects" / name, [{"any": 1}])
    assert imported(VolatileBackend(), home / ".claude").ok


def test_progress_is_told_after_each_file(home: Path) -> None:
    seen: list[str] = []

    async def run() -> None:
        await ingest(VolatileBackend(), [home], progress=lambda file: seen.append(file.tool))

    asyncio.run(run())
    assert sorted(seen) == ["claude-code", "codex", "messages"]
