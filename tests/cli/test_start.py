"""What a start of the process costs: a command imports what it needs, and nothing that only others need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode
from crabstore.cli import app

from .conftest import Run

SCRIPT = """
import sys
from crabstore.cli import main
code = main(sys.argv[1:])
sys.stderr.write("\\n".join(sys.modules))
sys.exit(code)
"""

OF_OTHERS = {"crabstore.importers", "rich.progress", "ulid", "yaml"}
"""What importing, progress of long work, making an agent and storing a skill need."""

OF_DAEMONS = {"crabstore.daemon.client", "crabstore.runtime", "h11", "starlette", "uvicorn"}
"""What serving, and talking to who serves, need."""


def modules(*words: object) -> set[str]:
    """What a process of the command has imported at its end."""
    command = [sys.executable, "-c", SCRIPT, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.splitlines())


@pytest.mark.parametrize(
    "words", [("search", "deploy"), ("search", "deploy", "--json"), ("sessions", "list")]
)
def test_reading_imports_nothing_that_writing_needs(words: tuple[str, ...], filled: Path) -> None:
    assert not modules(*words, "--store", filled) & (OF_OTHERS | OF_DAEMONS)


def test_writing_where_no_daemon_serves_imports_nothing_of_one(tmp_path: Path) -> None:
    assert not modules("memory", "add", "a", "b", "--store", tmp_path / "store.crmem") & OF_DAEMONS


def test_a_command_imports_no_other_command(filled: Path) -> None:
    found = modules("search", "deploy", "--store", filled)
    others = {f"crabstore.cli.{place.split(':')[0]}" for place in app.COMMANDS.values()} - {
        "crabstore.cli.search"
    }
    assert "crabstore.cli.search" in found
    assert not found & others


def test_a_command_behind_global_options_is_found(run: Run, filled: Path) -> None:
    assert run("--store", filled, "--json", "search", "deploy").code == 0


def test_an_options_value_that_is_a_commands_name_is_no_command(run: Run) -> None:
    assert run("--store", "search", "stats").code == ExitCode.MISSING
