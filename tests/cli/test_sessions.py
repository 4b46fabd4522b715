"""Listing, reading, exporting and deleting sessions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import crabstore
from crabstore.answers.failures import ExitCode

from .conftest import TOOLS, Run

NEWEST_FIRST = ["c0ffee00c0ffee00c0ff", "aaa-hostile", "aaa-retry"]


def handles(run: Run, store: Path, *words: str) -> list[str]:
    answer = run("sessions", "list", *words, "--json", "--store", store).json
    return [session["handle"] for session in answer["sessions"]]


def test_a_listing_is_newest_first(run: Run, filled: Path) -> None:
    assert handles(run, filled) == NEWEST_FIRST
    lines = run("sessions", "list", "--store", filled).out.splitlines()
    assert lines[0].split() == ["handle", "changed", "agent", "project", "title"]
    assert lines[3].split(maxsplit=5) == [
        *("aaa-retry", "2026-03-01", "10:00", "builder", "/src/gateway"),
        "Stop the retry storm",
    ]


def test_pages_follow_each_other_until_the_end(run: Run, filled: Path) -> None:
    seen: list[str] = []
    after: list[str] = []
    while True:
        answer = run("sessions", "list", "--limit", 1, *after, "--json", "--store", filled).json
        assert set(answer) == {"sessions", "next"}
        seen += [session["handle"] for session in answer["sessions"]]
        if answer["next"] is None:
            break
        after = ["--after", answer["next"]]
    assert seen == NEWEST_FIRST


def test_the_way_to_the_next_page_is_shown(run: Run, filled: Path) -> None:
    first = run("sessions", "list", "--limit", 2, "--store", filled).out.splitlines()
    assert first[-1].startswith("more: crabstore ")
    assert "aaa-retry" in run(*first[-1].split()[2:]).out


def test_a_listing_is_filtered(run: Run, filled: Path) -> None:
    assert handles(run, filled, "--agent", "codex") == NEWEST_FIRST[:1]
    assert handles(run, filled, "--source", "codex") == NEWEST_FIRST[:1]
    assert handles(run, filled, "--project", "/src/gateway") == NEWEST_FIRST[1:]
    assert handles(run, filled, "--project", "/src/gateway", "--limit", "1") == NEWEST_FIRST[1:2]
    assert handles(run, filled, "--source", "none") == []


def test_a_session_in_a_listing_has_the_documented_shape(run: Run, filled: Path) -> None:
    session = run("sessions", "list", "--json", "--store", filled).json["sessions"][0]
    assert session == {
        "handle": "c0ffee00c0ffee00c0ff",
        "title": "Backoff table",
        "agent": session["agent"],
        "agent_name": "codex",
        "created_by": "user",
        "updated_at": "2026-04-01T09:00:00.000000Z",
        "project": "/src/crab",
        "source": "codex",
    }


def test_a_session_is_shown_by_enough_of_its_handle(run: Run, filled: Path) -> None:
    done = run("sessions", "show", "aaa-r", "--store", filled)
    assert done.code == ExitCode.DONE
    assert done.out.startswith("Stop the retry storm\n")
    assert "[4] user · 2026-03-01 10:00\n    thanks\n" in done.out


def test_an_ambiguous_beginning_lists_the_candidates(run: Run, filled: Path) -> None:
    done = run("sessions", "show", "aaa", "--json", "--store", filled)
    assert done.code == ExitCode.USAGE
    assert done.error["kind"] == "ambiguous"
    assert done.error["candidates"] == ["aaa-hostile", "aaa-retry"]
    assert "aaa-hostile, aaa-retry" in run("sessions", "show", "aaa", "--store", filled).err


@pytest.mark.parametrize("handle", ["nope", "", "/", "%", "aaa-retry-and-more"])
def test_a_session_that_is_not_there_is_missing(run: Run, filled: Path, handle: str) -> None:
    expected = ExitCode.USAGE if not handle else ExitCode.MISSING
    assert run("sessions", "show", handle, "--store", filled).code == expected


def test_positions_choose_what_is_shown(run: Run, filled: Path) -> None:
    def places(*words: object) -> list[int]:
        answer = run("sessions", "show", "c0ffee", *words, "--json", "--store", filled).json
        assert set(answer) == {"session", "messages"}
        return [message["position"] for message in answer["messages"]]

    assert places() == list(range(40, 60))
    assert places("--all") == list(range(60))
    assert places("--at", 3, "--context", 1) == [2, 3, 4]
    assert places("--at", 0, "--context", 0) == [0]
    assert places("--at", 59) == list(range(54, 60))


def test_a_position_behind_the_end_is_missing(run: Run, filled: Path) -> None:
    done = run("sessions", "show", "c0ffee", "--at", 60, "--store", filled)
    assert done.code == ExitCode.MISSING and "its last message is 59" in done.err


def test_a_shown_message_carries_what_was_recorded_verbatim(run: Run, filled: Path) -> None:
    answer = run("sessions", "show", "aaa-retry", "--json", "--store", filled).json
    assert answer["messages"][2]["message"] == TOOLS[0].message
    assert answer["messages"][2]["role"] == "assistant" and answer["messages"][3]["role"] == "tool"
    assert answer["session"]["message_count"] == 5
    assert set(answer["session"]["source"]) == {"tool", "original_id", "path", "parent"}


def test_an_export_is_the_messages_as_they_were_recorded_a_line_each(run: Run, filled: Path) -> None:
    lines = run("sessions", "export", "aaa-retry", "--store", filled).out.splitlines()
    messages = [json.loads(line) for line in lines]

    async def recorded() -> list[object]:
        async with crabstore.open(filled, read_only=True) as store:
            return [entry.message for entry in await store.sessions.messages("aaa-retry")]

    assert messages == asyncio.run(recorded())
    assert run("sessions", "export", "aaa-retry", "--json", "--store", filled).json["messages"] == messages


def test_a_long_session_is_exported_whole(run: Run, filled: Path) -> None:
    lines = run("sessions", "export", "c0ffee", "--store", filled).out.splitlines()
    assert [json.loads(line)["content"] for line in lines] == [
        f"message {n} about backoff" for n in range(60)
    ]


def test_an_export_to_a_file_is_for_its_owner_and_never_overwrites(
    run: Run, filled: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.jsonl"
    done = run("sessions", "export", "aaa-retry", "-o", target, "--json", "--store", filled)
    text = target.read_text()
    assert done.json["exported"] == {
        "handle": "aaa-retry",
        "path": str(target),
        "messages": 5,
        "bytes": len(text.encode()),
    }
    assert target.stat().st_mode & 0o777 == 0o600
    target.write_text("mine")
    refused = run("sessions", "export", "aaa-retry", "-o", target, "--json", "--store", filled)
    assert refused.code == ExitCode.USAGE and refused.error["kind"] == "exists"
    assert target.read_text() == "mine"
    assert (
        run("sessions", "export", "aaa-retry", "-o", target, "--force", "--store", filled).code
        == ExitCode.DONE
    )
    assert target.read_text() == text
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == ["out.jsonl"]


def test_an_export_that_fails_leaves_no_file(run: Run, filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run("sessions", "export", "nope", "-o", target, "--store", filled).code == ExitCode.MISSING
    unwritable = run("sessions", "export", "aaa-retry", "-o", tmp_path / "no" / "out", "--store", filled)
    assert unwritable.code == ExitCode.SYSTEM and unwritable.err.count("\n") == 1
    assert not target.exists()


def test_markdown_fences_cannot_be_closed_by_what_they_hold(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"

    async def fill() -> None:
        async with crabstore.open(store) as opened:
            await opened.sessions.open("h", agent="A", created_by="me", title="fences")
            message: dict[str, object] = {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": "```\n````\nend"}],
            }
            entry = crabstore.HistoryEntry(message=json.loads(json.dumps(message)), format="anthropic")
            await opened.sessions.append_messages("h", [entry])

    asyncio.run(fill())
    text = run("sessions", "export", "h", "--format", "markdown", "--store", store).out
    assert text.startswith("# fences\n") and "`````\n```\n````\nend\n`````" in text


def test_deleting_needs_a_yes_where_nobody_can_be_asked(run: Run, filled: Path) -> None:
    done = run("sessions", "delete", "aaa-r", "--json", "--store", filled)
    assert done.code == ExitCode.USAGE and done.error["kind"] == "needs-yes"
    assert handles(run, filled) == NEWEST_FIRST


def test_a_deleted_session_is_gone_from_listings_and_searches(run: Run, filled: Path) -> None:
    done = run("sessions", "delete", "aaa-r", "--yes", "--json", "--store", filled)
    assert done.json == {"deleted": {"handle": "aaa-retry", "messages": 5, "forgotten": False}}
    assert handles(run, filled) == NEWEST_FIRST[:2]
    hits = run("search", "storm", "--json", "--store", filled).json["hits"]
    assert hits == []
    assert run("sessions", "show", "aaa-retry", "--store", filled).code == ExitCode.MISSING


def test_a_forgotten_session_is_not_imported_again(run: Run, filled: Path) -> None:
    assert run("sessions", "delete", "c0ffee", "--forget", "--yes", "--store", filled).code == ExitCode.DONE

    async def forgotten() -> bool:
        async with crabstore.open(filled, read_only=True) as store:
            return await store.sessions.forgotten("codex", "o-1")

    assert asyncio.run(forgotten())
