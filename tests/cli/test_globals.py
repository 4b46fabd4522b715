"""The global options, the environment, usage errors, and what a missing store is answered with."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode

from .conftest import Run

READING = [
    ["search", "x"],
    ["sessions", "list"],
    ["sessions", "show", "h"],
    ["sessions", "export", "h"],
    ["agents", "list"],
    ["agents", "show", "a"],
    ["agents", "default"],
    ["memory", "list"],
    ["memory", "show", "m"],
    ["memory", "search", "m"],
    ["skills", "list"],
    ["skills", "show", "s"],
    ["stats"],
    ["verify"],
]
CHANGING = [
    ["sessions", "delete", "h", "--yes"],
    ["agents", "remove", "a"],
    ["agents", "default", "--clear"],
    ["memory", "remove", "m"],
    ["skills", "remove", "s"],
    ["compact"],
    ["reindex"],
]


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_a_missing_store_is_one_line_that_says_what_to_do_and_none_is_made(
    run: Run, tmp_path: Path, words: list[str]
) -> None:
    store = tmp_path / "none.crmem"
    done = run(*words, "--store", store)
    assert done.code == ExitCode.MISSING
    assert done.out == "" and done.err.count("\n") == 1
    assert "crabstore import" in done.err and str(store) in done.err
    assert list(tmp_path.glob("none*")) == []


def test_an_error_with_json_is_one_object_on_stderr(run: Run, tmp_path: Path) -> None:
    done = run("search", "x", "--json", "--store", tmp_path / "none")
    assert done.code == ExitCode.MISSING
    assert done.error["kind"] == "no-store" and done.error["exit"] == 3 and done.error["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "--store", "{}", "sessions", "list"),
        ("sessions", "--json", "--store", "{}", "list"),
        ("sessions", "list", "--json", "--store", "{}"),
        ("--store", "{}", "sessions", "--json", "list"),
        ("--store", "/nowhere/else", "sessions", "list", "--json", "--store", "{}"),
    ],
    ids=" ".join,
)
def test_global_options_stand_before_and_after_the_subcommand(
    run: Run, filled: Path, words: tuple[str, ...]
) -> None:
    done = run(*(word.format(filled) for word in words))
    assert done.code == ExitCode.DONE
    assert len(done.json["sessions"]) == 3


def test_the_environment_names_the_store_unless_an_option_does(
    run: Run, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRABSTORE_URL", f"crabdb:{filled}")
    assert len(run("sessions", "list", "--json").json["sessions"]) == 3
    assert run("sessions", "list", "--store", tmp_path / "none").code == ExitCode.MISSING


def test_the_default_store_is_made_in_a_folder_of_its_own_that_only_its_owner_may_enter(
    run: Run, tmp_path: Path
) -> None:
    missing = run("search", "x")
    assert missing.code == ExitCode.MISSING and "`crabstore import` makes one" in missing.err
    assert not (tmp_path / "home" / ".crabstore").exists()
    assert run("memory", "add", "note", "text").code == ExitCode.DONE
    home = tmp_path / "home" / ".crabstore"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "store.crmem").stat().st_mode & 0o777 == 0o600


def test_a_tilde_in_the_environment_is_the_home_directory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRABSTORE_URL", "~/mine.crmem")
    assert run("memory", "add", "note", "text").code == ExitCode.DONE
    assert (tmp_path / "home" / "mine.crmem").exists()
    assert run("search", "x", "--project", "~/src", "--json").json["hits"] == []
    assert run("search", "x", "--store", "~nobody-of-this-name/x").code == ExitCode.MISSING


def test_no_other_folder_is_invented(run: Run, tmp_path: Path) -> None:
    done = run("memory", "add", "note", "text", "--store", tmp_path / "no" / "folder" / "x.crmem")
    assert done.code == ExitCode.MISSING
    assert f"{tmp_path / 'no' / 'folder'} does not exist" in done.err
    assert not (tmp_path / "no").exists()


def test_a_file_that_is_no_store_is_refused_and_left_untouched(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and no store")
    for words in (["search", "x"], ["memory", "add", "a", "b"]):
        done = run(*words, "--json", "--store", path)
        assert done.code == ExitCode.FOREIGN and done.error["kind"] == "not-a-store"
    assert path.read_text() == "these are my notes, and no store"


def test_a_scheme_that_no_backend_has_is_a_usage_error(run: Run) -> None:
    done = run("search", "x", "--store", "nosql://host/db")
    assert done.code == ExitCode.USAGE
    assert "nosql" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["serach"], "search"),
        (["search"], "QUERY"),
        (["search", "x", "--limit", "many"], "--limit"),
        (["search", "x", "--limit", "0"], "--limit"),
        (["sessions"], "crabstore sessions --help"),
        (["sessions", "list", "--nonsense"], "--nonsense"),
        (["agents", "default", "a", "--clear"], "--clear"),
        (["search", "x", "--role", "tool"], "user or assistant"),
        (["search", "x", "--since", "yesteryear"], "2026-03-01"),
        (["sessions", "list", "--after", "token"], "--after"),
        (["memory", "add", "empty", " "], "empty"),
    ],
)
def test_a_bad_command_line_is_one_line_that_names_what_is_wrong(
    run: Run, filled: Path, words: list[str], told: str
) -> None:
    done = run(*words, "--store", filled)
    assert done.code == ExitCode.USAGE
    assert done.out == "" and done.err.count("\n") == 1 and told in done.err
    as_json = run(*words, "--json", "--store", filled)
    assert as_json.code == ExitCode.USAGE and as_json.error["kind"] == "usage"


def test_without_words_the_help_is_shown(run: Run) -> None:
    assert run().out == run("--help").out
    assert "search" in run().out and run().code == ExitCode.DONE


def test_the_version_is_the_distributions(run: Run) -> None:
    assert run("--version").out == f"crabstore {version('crabstore')}\n"


def test_every_command_has_help_that_fits_a_terminal(run: Run) -> None:
    for words in (
        [],
        *READING,
        *CHANGING,
        ["import"],
        ["skills", "add"],
        ["memory", "add"],
        ["agents", "add"],
    ):
        named = [word for word in words[:2] if word.isalpha() and word not in ("x", "h", "a", "m", "s")]
        done = run(*named, "--help")
        assert done.code == ExitCode.DONE
        assert max(map(len, done.out.splitlines())) <= 80
