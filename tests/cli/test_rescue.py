"""`crabstore backup`, `repair`, and erasing: copies of the file, and what is left nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import crabstore
from crabdb import CrabDB
from crabdb.__main__ import main as crabdb_main
from crabstore.answers.failures import ExitCode
from crabstore.store.messages import HistoryEntry
from crabstore.store.session_records import Source

from .conftest import Run
from .test_maintenance import flip


def test_backup_of_a_store_beside_its_writer_is_a_store(run: Run, filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.crmem"
    with CrabDB.open(filled):
        done = run("backup", copy, "--store", filled)
    assert done.code == ExitCode.DONE and f"copied to {copy}" in done.out
    assert run("verify", "--store", copy).code == ExitCode.DONE
    exported = run("sessions", "export", "c0ffee", "--store", filled).out
    assert run("sessions", "export", "c0ffee", "--store", copy).out == exported
    again = run("backup", copy, "--json", "--store", filled)
    assert again.code == ExitCode.USAGE and again.error["kind"] == "exists"


def test_repair_tells_first_and_then_gives_back_what_is_intact(
    run: Run, filled: Path, tmp_path: Path
) -> None:
    assert run("repair", "--store", filled).code == ExitCode.DONE
    flip(filled, b"retries without backoff")
    damaged = filled.read_bytes()
    told = run("repair", "--store", filled)
    assert told.code == ExitCode.DAMAGED
    assert "dropped, since damaged:" in told.out and "nothing was written" in told.out
    new = tmp_path / "new.crmem"
    done = run("repair", "--to", new, "--json", "--store", filled)
    assert done.code == ExitCode.PARTIAL
    answer = done.json["repair"]
    assert answer["target"] == str(new) and answer["damaged"]
    assert [key["kind"] for key in answer["dropped"]] == ["session"]
    assert filled.read_bytes() == damaged
    swapped = run("repair", "--swap", "--store", filled)
    assert swapped.code == ExitCode.PARTIAL and "crabstore reindex" in swapped.out
    assert filled.with_name("store.crmem.damaged-1").read_bytes() == damaged
    for store in (filled, new):
        assert run("reindex", "--store", store).code == ExitCode.DONE
        assert run("verify", "--store", store).code == ExitCode.DONE
        assert run("sessions", "show", "c0ffee", "--store", store).code == ExitCode.DONE


def test_repair_refuses_what_makes_no_sense(run: Run, filled: Path, tmp_path: Path) -> None:
    assert run("repair", "--swap", "--to", tmp_path / "x", "--store", filled).code == ExitCode.USAGE
    for words in (["repair"], ["backup", tmp_path / "x"]):
        assert run(*words, "--store", ":memory:").code == ExitCode.USAGE
        assert run(*words, "--store", tmp_path / "missing").code == ExitCode.MISSING
    with CrabDB.open(filled):
        assert run("repair", "--swap", "--store", filled).code == ExitCode.LOCKED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data, ExitCode.DONE),
        (lambda data: data + b"#" * 9, ExitCode.TORN),
        (lambda data: data.replace(b"retries without", b"retries withouT"), ExitCode.DAMAGED),
        (lambda data: b"a text that is no store at all, but long enough", ExitCode.FOREIGN),
        (lambda data: data[:6] + b"\2" + data[7:], ExitCode.VERSION),
    ],
)
@pytest.mark.parametrize("command", ["verify", "repair"])
def test_both_command_lines_end_with_the_same_code(
    run: Run, filled: Path, command: str, change: Callable[[bytes], bytes], code: ExitCode
) -> None:
    filled.write_bytes(change(filled.read_bytes()))
    assert run(command, "--store", filled).code == code
    assert crabdb_main([command, str(filled)]) == code


SECRET = "xylographic"
"""A word that stands in nothing else: in a message, and so in the index of texts."""


def holding(directory: Path) -> list[str]:
    """The files in which the secret stands."""
    return sorted(file.name for file in directory.iterdir() if SECRET.encode() in file.read_bytes())


def test_forgotten_session_leaves_no_byte_in_any_file_after_erasing(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    path = directory / "store.crmem"

    async def confide() -> None:
        async with crabstore.open(path) as store:
            source = Source(tool="codex", original_id="o-9", path=f"/logs/{SECRET}.jsonl")
            await store.sessions.open("gone", agent="A", created_by="me", title=SECRET, source=source)
            entries = [HistoryEntry.user(f"the word is {SECRET}", id="1")]
            await store.sessions.append_messages("gone", entries)
            await store.sessions.open("kept", agent="A", created_by="me", title="harmless")

    asyncio.run(confide())
    with path.open("ab") as file:
        file.write(path.read_bytes()[-300:] + SECRET.encode())
    assert run("sessions", "delete", "gone", "--forget", "--yes", "--store", path).code == ExitCode.DONE
    assert holding(directory) == ["store.crmem", "store.crmem.torn-1"]
    assert run("compact", "--store", path).code == ExitCode.DONE
    assert holding(directory) == ["store.crmem.torn-1"]
    removed = run("compact", "--erase", "--json", "--store", path).json["compacted"]["removed"]
    assert removed == [str(directory / "store.crmem.torn-1")]
    assert holding(directory) == []
    assert run("sessions", "show", "kept", "--store", path).code == ExitCode.DONE
