"""Agents, memory and skills from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode

from .conftest import SKILL, Run


def test_agents_are_added_listed_shown_and_removed(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"
    added = run(
        "agents", "add", "ada", "--description", "Helps.", "--model", "m-1", "--json", "--store", store
    )
    agent = added.json["agent"]
    assert (agent["name"], agent["description"], agent["model"]) == ("ada", "Helps.", "m-1")
    listed = run("agents", "list", "--json", "--store", store).json
    assert listed == {"agents": [agent], "default": None}
    assert run("agents", "show", agent["id"], "--json", "--store", store).json == {"agent": agent}
    assert "Helps." in run("agents", "show", "ada", "--store", store).out
    removed = run("agents", "remove", "ada", "--json", "--store", store).json
    assert removed == {"removed": {"id": agent["id"], "name": "ada"}}
    assert run("agents", "list", "--json", "--store", store).json["agents"] == []


def test_a_taken_name_is_a_usage_error(run: Run, filled: Path) -> None:
    done = run("agents", "add", "codex", "--json", "--store", filled)
    assert done.code == ExitCode.USAGE and done.error["kind"] == "name-taken"


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb"])
def test_a_bad_name_is_a_usage_error_and_makes_nothing(run: Run, filled: Path, name: str) -> None:
    assert run("agents", "add", name, "--store", filled).code == ExitCode.USAGE
    assert run("memory", "add", name, "text", "--store", filled).code == ExitCode.USAGE
    assert len(run("agents", "list", "--json", "--store", filled).json["agents"]) == 2


def test_the_default_agent_is_shown_chosen_and_cleared(run: Run, filled: Path) -> None:
    assert run("agents", "default", "--store", filled).out == "builder\n"
    assert run("agents", "default", "codex", "--store", filled).out == "codex\n"
    assert run("agents", "default", "--json", "--store", filled).json["default"]["name"] == "codex"
    rows = run("agents", "list", "--store", filled).out.splitlines()
    assert [row.split()[0] for row in rows if " yes" in row] == ["codex"]
    assert run("agents", "default", "--clear", "--json", "--store", filled).json == {"default": None}
    assert run("agents", "default", "--store", filled).out == "no default agent\n"


@pytest.mark.parametrize(
    "words",
    [
        ["agents", "show"],
        ["agents", "remove"],
        ["agents", "default"],
        ["memory", "show"],
        ["memory", "remove"],
        ["skills", "show"],
        ["skills", "remove"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_missing(run: Run, filled: Path, words: list[str]) -> None:
    done = run(*words, "nobody", "--json", "--store", filled)
    assert done.code == ExitCode.MISSING and done.error["kind"] == "not-found"


def test_memory_is_added_listed_shown_found_and_removed(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"
    added = run(
        *("memory", "add", "db", "We use Postgres.", "--alias", "database"), "--json", "--store", store
    )
    entry = added.json["entry"]
    assert entry == {
        "name": "db",
        "kind": "note",
        "content": "We use Postgres.",
        "aliases": ["database"],
        "created_at": entry["created_at"],
    }
    assert run("memory", "list", "--json", "--store", store).json == {"memory": [entry]}
    assert run("memory", "list", "--kind", "archive", "--json", "--store", store).json == {"memory": []}
    assert run("memory", "show", "db", "--json", "--store", store).json == {"entry": entry}
    hits = run("memory", "search", "database", "--json", "--store", store).json["hits"]
    assert [hit["entry"] for hit in hits] == [entry]
    assert "*Postgres*" in run("memory", "search", "postgres", "--store", store).out
    assert run("memory", "search", "postgres", "--store", store).out.endswith("1 entry\n")
    assert run("memory", "remove", "db", "--json", "--store", store).json == {"removed": {"name": "db"}}
    assert run("memory", "search", "postgres", "--store", store).out == "0 entries\n"


def test_memory_is_read_from_stdin(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"
    assert run("memory", "add", "long", "-", "--store", store, stdin="line 1\nline 2\n").code == ExitCode.DONE
    assert (
        run("memory", "show", "long", "--json", "--store", store).json["entry"]["content"]
        == "line 1\nline 2\n"
    )
    assert run("memory", "show", "long", "--store", store).out.endswith("line 1\nline 2\n")


def test_skills_are_added_from_files_and_folders_and_invalid_ones_left_out(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s.crmem"
    good, bad, binary = tmp_path / "good", tmp_path / "bad.md", tmp_path / "binary.md"
    good.mkdir()
    (good / "SKILL.md").write_text(SKILL)
    bad.write_text("---\nname: Bad Name\ndescription: x\n---\n")
    binary.write_bytes(b"\xff\xfe\x00")
    done = run("skills", "add", bad, binary, tmp_path / "none", good, "--json", "--store", store)
    assert done.code == ExitCode.PARTIAL
    assert done.json["added"] == [{"name": "deploy-app", "description": "How we deploy."}]
    assert [item["path"] for item in done.json["invalid"]] == [str(bad), str(binary), str(tmp_path / "none")]
    assert all(item["reason"] for item in done.json["invalid"])
    shown = run("skills", "add", bad, good, "--store", store)
    assert shown.code == ExitCode.PARTIAL
    assert "added deploy-app\n" in shown.out and f"left out {bad}: " in shown.out
    assert run("skills", "add", good, "--store", store).code == ExitCode.DONE


def test_skills_are_listed_shown_and_removed(run: Run, filled: Path) -> None:
    skill = {"name": "deploy-app", "description": "How we deploy."}
    assert run("skills", "list", "--json", "--store", filled).json == {"skills": [skill]}
    assert run("skills", "show", "deploy-app", "--store", filled).out == SKILL
    shown = run("skills", "show", "deploy-app", "--json", "--store", filled).json
    assert shown == {"skill": {"name": "deploy-app", "body": SKILL}}
    assert run("skills", "remove", "deploy-app", "--json", "--store", filled).json == {
        "removed": {"name": "deploy-app"}
    }
    assert run("skills", "list", "--json", "--store", filled).json == {"skills": []}


def test_an_agent_is_made_and_changed_from_what_show_prints(run: Run, filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    granted = [{"name": "os", "system": True, "root": "/src", "hosts": []}]
    file.write_text(json.dumps({"harnesses": granted, "max_iterations": 3}))
    made = run("agents", "add", "coder", "--model", "m", "--from", file, "--json", "--store", filled).json[
        "agent"
    ]
    assert (made["harnesses"], made["max_iterations"], made["model"]) == (granted, 3, "m")
    file.write_text(json.dumps({"agent": made | {"name": "other", "description": "You code."}}))
    changed = run(
        "agents", "change", "coder", "--name", "third", "--from", file, "--json", "--store", filled
    ).json["agent"]
    assert changed == made | {"name": "third", "description": "You code."}
    assert (
        run("agents", "change", "third", "--model", "", "--json", "--store", filled).json["agent"]["model"]
        == ""
    )


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"agent": 7}', '{"nmae": "x"}', '{"max_iterations": "many"}', '{"harnesses": [{}]}', "\xff"],
)
def test_a_file_that_describes_no_agent_is_refused_and_changes_nothing(
    run: Run, filled: Path, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "agent.json"
    file.write_bytes(text.encode("latin-1"))
    before = run("agents", "list", "--json", "--store", filled).out
    for words in (["add", "new"], ["change", "codex"]):
        assert run("agents", *words, "--from", file, "--json", "--store", filled).error["kind"] == "usage"
    assert run("agents", "list", "--json", "--store", filled).out == before
