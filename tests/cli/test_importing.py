"""Importing transcripts from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode
from crabstore.cli import importing
from crabstore.importers import FileReport, ingest

from .conftest import Run


def conversation(*texts: str) -> str:
    messages = [
        {"role": role, "content": text} for role, text in zip(("user", "assistant") * 9, texts, strict=False)
    ]
    return json.dumps({"messages": messages}) + "\n"


def claude_line(uuid: str, text: str) -> str:
    line = {
        "type": "user",
        "uuid": uuid,
        "parentUuid": None,
        "sessionId": "5e551011-0000-4000-8000-000000000001",
        "timestamp": "2026-03-01T10:00:00.000Z",
        "cwd": "/src/gateway",
        "message": {"role": "user", "content": text},
    }
    return json.dumps(line) + "\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with a good file, one with a bad line, and one that is no transcript."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "good.jsonl").write_text(
        conversation("how do I cut a release?", "Tag it.") + conversation("hi", "hello")
    )
    (folder / "torn.jsonl").write_text(claude_line("u1", "what is a torn line?") + "not json at all\n")
    (folder / "other.jsonl").write_text('{"colour":"red"}\n')
    return folder


def test_an_import_reports_by_source_and_what_it_left_out(run: Run, logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"
    done = run("import", logs, "--store", store)
    assert done.code == ExitCode.PARTIAL and done.err == ""
    lines = done.out.splitlines()
    assert lines[0].split() == ["source", "files", "sessions", "messages", "known", "left", "out", "bytes"]
    assert [line.split()[:6] for line in lines[1:4]] == [
        ["claude-code", "1", "1", "1", "0", "1"],
        ["messages", "1", "2", "4", "0", "0"],
        ["refused", "1", "0", "0", "0", "1"],
    ]
    assert "left out, 2:" in lines
    assert any(line.startswith(f"  {logs / 'torn.jsonl'}:2: ") for line in lines)
    assert any(line.startswith(f"  {logs / 'other.jsonl'}: no known transcript format") for line in lines)
    assert lines[-1] == f"3 new sessions, 5 new messages; search: crabstore search WORDS --store {store}"
    assert "cut a release" in run("search", "release", "--store", store).out.replace("*", "")


def test_a_report_has_the_documented_shape(run: Run, logs: Path, tmp_path: Path) -> None:
    answer = run("import", logs, "--json", "--store", tmp_path / "s.crmem").json
    assert set(answer) == {"places", "sources", "total", "left_out", "notes", "ok"}
    assert answer["ok"] is False and answer["places"] == []
    numbers = {"files", "sessions", "new_sessions", "added", "replaced", "known", "lost", "bytes"}
    assert set(answer["total"]) == numbers
    assert all(set(row) == numbers | {"source"} for row in answer["sources"])
    assert answer["total"]["added"] == 5 and answer["total"]["lost"] == 2
    assert set(answer["left_out"][0]) == {"path", "line", "offset", "reason", "note"}


def test_doing_it_again_adds_nothing_and_a_grown_file_its_tail(run: Run, logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"
    good = logs / "good.jsonl"
    assert run("import", good, "--json", "--store", store).json["total"]["added"] == 4
    again = run("import", good, "--json", "--store", store)
    assert again.code == ExitCode.DONE
    assert (again.json["total"]["added"], again.json["sources"][0]["source"]) == (0, "unchanged")
    with good.open("a") as file:
        file.write(conversation("and then?", "Push."))
    grown = run("import", good, "--json", "--store", store).json["total"]
    assert (grown["added"], grown["known"], grown["new_sessions"]) == (2, 4, 1)


def test_without_a_path_the_well_known_places_are_named_found_or_not(run: Run, tmp_path: Path) -> None:
    project = tmp_path / "home" / ".claude" / "projects" / "-src-gateway"
    project.mkdir(parents=True)
    (project / "5e551011-0000-4000-8000-000000000001.jsonl").write_text(claude_line("u1", "hello there"))
    done = run("import")
    assert done.code == ExitCode.DONE
    home = tmp_path / "home"
    assert f"claude-code: {home / '.claude' / 'projects'}: found" in done.out
    assert f"codex: {home / '.codex' / 'sessions'}: not there" in done.out
    assert done.out.endswith("; search: crabstore search WORDS\n")
    assert (home / ".crabstore" / "store.crmem").exists()
    places = run("import", "--json").json["places"]
    assert {place["found"] for place in places} == {True, False}


def test_the_environment_says_where_programs_keep_their_transcripts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "x"))
    (tmp_path / "c" / "projects" / "p").mkdir(parents=True)
    (tmp_path / "c" / "projects" / "p" / "s.jsonl").write_text(claude_line("u1", "hello there"))
    answer = run("import", "--json").json
    assert [place["path"] for place in answer["places"] if place["found"]] == [
        str(tmp_path / "c" / "projects")
    ]
    assert all(str(tmp_path / "x") in place["path"] for place in answer["places"] if place["tool"] == "codex")
    assert answer["total"]["added"] == 1


def test_with_nothing_to_import_no_store_is_made(run: Run, tmp_path: Path) -> None:
    done = run("import", "--json")
    assert done.code == ExitCode.MISSING and done.error["kind"] == "nothing-to-import"
    assert all(place["found"] is False for place in done.error["places"])
    missing = run("import", tmp_path / "none", "--json")
    assert missing.code == ExitCode.MISSING and missing.error["path"] == str(tmp_path / "none")
    assert not (tmp_path / "home" / ".crabstore").exists()


def test_a_long_list_of_what_was_left_out_is_bounded(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(claude_line("u1", "hello") + "junk\n" * 130)
    out = run("import", bad, "--store", tmp_path / "s.crmem").out
    assert "left out, 130:" in out and "  and 110 more\n" in out
    assert out.count(f"{bad}:") == 20


def test_an_interrupt_keeps_what_was_imported_and_says_that_it_goes_on(
    run: Run, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s.crmem"

    async def interrupted(opened: object, paths: object, *, progress: object) -> None:
        def after_the_first(file: FileReport) -> None:
            progress(file)  # type: ignore[operator]
            raise KeyboardInterrupt

        await ingest(opened, paths, progress=after_the_first)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(importing, "ingest", interrupted)
        done = run("import", logs, "--store", store)
    assert done.code == ExitCode.INTERRUPTED
    assert "running it again continues" in done.err and done.err.count("\n") == 1
    assert done.out.splitlines()[1].split()[1] == "1"
    finished = run("import", logs, "--json", "--store", store).json
    assert finished["total"]["files"] == 3
    assert len(run("sessions", "list", "--json", "--store", store).json["sessions"]) == 3
