"""Searching sessions from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode

from .conftest import Run


def titles(run: Run, store: Path, *words: str) -> list[str]:
    return [
        hit["session"]["handle"] for hit in run("search", *words, "--json", "--store", store).json["hits"]
    ]


def test_a_hit_says_what_it_is_shows_the_match_and_how_to_open_it(run: Run, filled: Path) -> None:
    done = run("search", "retry storm", "--store", filled)
    assert done.code == ExitCode.DONE
    lines = done.out.splitlines()
    assert lines[0] == "1. Stop the retry storm"
    assert lines[1].startswith("   builder · /src/gateway · 2026-03-01 10:00 · score ")
    assert lines[2].split() == "> 0 user why does the *retry* loop never stop? Stop the *retry storm*".split()
    assert f"   crabstore sessions show aaa-retry --at 0 --store {filled}" in lines
    assert lines[-1].startswith("2 sessions, complete, ") and lines[-1].endswith(" ms")


def test_the_command_that_a_hit_names_opens_it(run: Run, filled: Path) -> None:
    hit = run("search", "backoff table", "--json", "--store", filled).json["hits"][0]
    shown = run(*hit["open"].split()[1:])
    assert shown.code == ExitCode.DONE
    assert f"[{hit['position']}] user" in shown.out


def test_an_answer_has_the_documented_shape(run: Run, filled: Path) -> None:
    answer = run("search", "retry", "--json", "--store", filled).json
    assert set(answer) == {"query", "hits", "complete", "milliseconds"}
    hit = answer["hits"][0]
    assert set(hit) == {"session", "score", "position", "window", "open"}
    assert set(hit["window"][0]) == {"position", "role", "ts", "text", "spans"}
    start, end = hit["window"][0]["spans"][0]
    assert hit["window"][0]["text"][start:end] == "retry"


def test_words_that_stand_only_in_a_tool_result_are_not_found(run: Run, filled: Path) -> None:
    done = run("search", "zanzibar", "--store", filled)
    assert done.code == ExitCode.DONE
    assert done.out.startswith("0 sessions, complete, ")


def test_filters_narrow_the_answer(run: Run, filled: Path) -> None:
    every = titles(run, filled, "backoff")
    assert sorted(every) == ["aaa-hostile", "aaa-retry", "c0ffee00c0ffee00c0ff"]
    imported = ["c0ffee00c0ffee00c0ff"]
    assert titles(run, filled, "backoff", "--agent", "codex") == imported
    assert titles(run, filled, "backoff", "--sender", "user") == imported
    assert titles(run, filled, "backoff", "--project", "/src/crab") == imported
    assert titles(run, filled, "backoff", "--role", "user") == imported
    assert titles(run, filled, "backoff", "--since", "2026-04") == imported
    assert titles(run, filled, "backoff", "--since", "2026-03-02", "--until", "2026-03-02") == ["aaa-hostile"]
    assert titles(run, filled, "backoff", "--until", "2026-03") == [h for h in every if h not in imported]
    assert titles(run, filled, "backoff", "--since", "1h") == []


def test_an_agent_is_named_by_name_or_id_and_must_be_there(run: Run, filled: Path) -> None:
    agents = run("agents", "list", "--json", "--store", filled).json["agents"]
    codex = next(agent["id"] for agent in agents if agent["name"] == "codex")
    assert titles(run, filled, "backoff", "--agent", codex) == ["c0ffee00c0ffee00c0ff"]
    missing = run("search", "x", "--agent", "nobody", "--json", "--store", filled)
    assert missing.code == ExitCode.MISSING and missing.error["kind"] == "not-found"


def test_a_relative_project_means_the_folder_on_this_machine(
    run: Run, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert titles(run, filled, "backoff", "--project", ".") == []
    assert titles(run, filled, "backoff", "--project", "../" * 20 + "src/crab") == ["c0ffee00c0ffee00c0ff"]


def test_an_answer_that_was_cut_says_so(run: Run, filled: Path) -> None:
    assert "1 session, not complete" in run("search", "retry", "--limit", "1", "--store", filled).out
    assert run("search", "retry", "--limit", "1", "--json", "--store", filled).json["complete"] is False


@pytest.mark.parametrize("context", [0, 2])
def test_context_is_how_many_messages_stand_around_a_match(run: Run, filled: Path, context: int) -> None:
    hits = run("search", "message", "--context", context, "--json", "--store", filled).json["hits"]
    places = [seen["position"] for seen in hits[0]["window"]]
    best = hits[0]["position"]
    assert places == list(range(max(0, best - context), best + context + 1))


@pytest.mark.parametrize(
    "query", ["", "   ", "*", '"unclosed', "-", "[red]", "\x00\x1b", "a" * 5000, "日本語", "🦀"]
)
def test_any_string_is_a_legal_query(run: Run, filled: Path, query: str) -> None:
    assert run("search", "--store", filled, "--", query).code == ExitCode.DONE
