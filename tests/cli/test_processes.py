"""The command as a process of its own: pipes, locks, exit codes, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crabstore.answers.failures import ExitCode

COMMAND = [sys.executable, "-c", "import sys; from crabstore.cli import main; sys.exit(main())"]

HOLDER = """
import asyncio, sys
import crabstore
from crabstore.store.memory import MemoryEntry

async def hold():
    async with crabstore.open(sys.argv[1]) as store:
        await store.memory.put(MemoryEntry(name="held", content="written by the holder"))
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(hold())
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CRABSTORE_URL", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def crabstore(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )


@contextmanager
def writer(store: Path) -> Iterator[int]:
    """Another process that has the store open for writing; its id."""
    command = [sys.executable, "-c", HOLDER, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate()


def test_a_pipe_gets_plain_text(filled: Path) -> None:
    done = crabstore("search", "retry", "--store", filled)
    assert done.returncode == ExitCode.DONE and done.stderr == ""
    assert "\x1b" not in done.stdout and "*retry*" in done.stdout


def test_a_reader_works_beside_a_live_writer_and_sees_what_it_wrote(filled: Path) -> None:
    with writer(filled):
        done = crabstore("memory", "show", "held", "--store", filled)
        assert done.returncode == ExitCode.DONE and "written by the holder" in done.stdout
        assert crabstore("verify", "--store", filled).returncode == ExitCode.DONE


def test_a_writer_that_finds_the_store_locked_says_by_whom_and_changes_nothing(filled: Path) -> None:
    with writer(filled) as holder:
        before = filled.read_bytes()
        done = crabstore("memory", "add", "a", "b", "--store", filled)
        assert done.returncode == ExitCode.LOCKED
        assert done.stderr.count("\n") == 1 and str(holder) in done.stderr
        assert filled.read_bytes() == before
    assert crabstore("memory", "add", "a", "b", "--store", filled).returncode == ExitCode.DONE


def test_a_reader_that_goes_away_ends_the_command_quietly(filled: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "sessions", "show", "c0ffee", "--all", "--store", str(filled)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writing)
    assert done.returncode == ExitCode.PIPE and done.stderr == b""


def test_a_locale_without_the_characters_gets_question_marks(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = crabstore("sessions", "show", "aaa-hostile", "--store", filled)
    assert done.returncode == ExitCode.DONE and done.stdout.isascii()


def test_arguments_that_are_no_unicode_are_refused_in_one_line(filled: Path) -> None:
    for words in (["sessions", "show"], ["search"]):
        command = [*map(os.fsencode, [*COMMAND, *words, "--store", str(filled)]), b"\xff\xfe"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        assert done.returncode in (ExitCode.DONE, ExitCode.USAGE)
        assert b"Traceback" not in done.stderr and done.stderr.count(b"\n") <= 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_store_that_may_not_be_read_is_one_line(filled: Path) -> None:
    filled.chmod(0)
    done = crabstore("search", "x", "--store", filled)
    assert done.returncode == ExitCode.SYSTEM and done.stderr.count("\n") == 1


def test_ctrl_c_ends_a_command_with_its_own_code(filled: Path) -> None:
    command = [*COMMAND, "memory", "add", "typed", "-", "--store", str(filled)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        # It has begun to read once more than a pipe holds was written.
        process.stdin.write("x" * (1 << 20))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED
    assert err == "crabstore: interrupted\n"


def test_a_progress_bar_is_for_terminals(filled: Path) -> None:
    ours, theirs = os.openpty()
    command = [*COMMAND, "reindex", "--store", str(filled)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        process.wait(timeout=60)
    os.close(theirs)
    assert b"3/3" in os.read(ours, 65536)
    os.close(ours)
    assert crabstore("reindex", "--store", filled).stderr == ""


def asked(answer: bytes, *words: object) -> int:
    """Run a command on a terminal and type `answer`; its exit code."""
    ours, theirs = os.openpty()
    command = [*COMMAND, *map(str, words)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(ours, 1024)
        os.write(ours, answer)
        process.wait(timeout=60)
    os.close(ours)
    return process.returncode


def test_a_person_at_a_terminal_is_asked_before_a_session_is_deleted(filled: Path) -> None:
    words = ("sessions", "delete", "aaa-retry", "--store", filled)
    assert asked(b"n\n", *words) == ExitCode.PARTIAL
    assert asked(b"\x04", *words) == ExitCode.INTERRUPTED
    assert crabstore("sessions", "show", "aaa-retry", "--store", filled).returncode == ExitCode.DONE
    assert asked(b"y\n", *words) == ExitCode.DONE
    assert crabstore("sessions", "show", "aaa-retry", "--store", filled).returncode == ExitCode.MISSING
