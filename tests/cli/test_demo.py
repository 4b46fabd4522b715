"""The demo does the main job on what comes with the package, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode

from .conftest import Run


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_demo_imports_searches_and_says_what_to_do_next(run: Run, scratch: Path) -> None:
    done = run("demo")
    assert done.code == ExitCode.DONE and done.err == ""
    assert done.out.count("$ crabstore search ") == 4
    for words in ("claude-code", "codex", "messages", "crabstore import", "kept, but no search finds it"):
        assert words in done.out
    assert list(scratch.iterdir()) == []


def test_every_search_of_the_demo_finds_something_but_the_secret(run: Run) -> None:
    answer = run("demo", "--json").json
    assert set(answer) == {"import", "searches", "secret"}
    assert {row["source"] for row in answer["import"]["sources"]} == {"claude-code", "codex", "messages"}
    assert answer["import"]["ok"] is True and answer["import"]["left_out"] == []
    assert len(answer["searches"]) == 3
    assert all(search["hits"] for search in answer["searches"])
    assert answer["secret"]["hits"] == 0 and answer["secret"]["tool_results"] >= 1


def test_the_demo_needs_no_store_and_touches_none(run: Run, filled: Path, tmp_path: Path) -> None:
    before = filled.read_bytes()
    assert run("demo", "--store", filled).code == ExitCode.DONE
    assert filled.read_bytes() == before
    assert not (tmp_path / "home" / ".crabstore").exists()


def test_the_demo_fits_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    from rich.cells import cell_len
    from rich.text import Text

    lines = [Text.from_ansi(line).plain for line in run("demo").out.splitlines()]
    assert max(map(cell_len, lines)) <= 80
