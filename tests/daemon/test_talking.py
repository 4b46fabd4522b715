"""Talking from the command line: run, chat, steer and cancel, beside a daemon and without one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from crabstore.answers.failures import ExitCode
from crabstore.cli import main
from crabstore.daemon.client import Client
from crabstore.daemon.home import Home

from .scene import COMMAND, SCRIPTED, configured, crabstore, here, process

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@contextmanager
def typed(home: Home, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on while a test types, in a process of its own; killed at the end."""
    pipe = subprocess.PIPE
    command = [*COMMAND, *words, "--store", str(home.store)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def say(popen: subprocess.Popen[str], line: str) -> None:
    assert popen.stdin is not None
    popen.stdin.write(f"{line}\n")
    popen.stdin.flush()


def read(popen: subprocess.Popen[str], wanted: str) -> None:
    """Read stdout up to what is wanted."""
    assert popen.stdout is not None
    heard = ""
    while wanted not in heard:
        heard += (char := popen.stdout.read(1))
        assert char, f"{heard!r}, {popen.stderr.read() if popen.stderr else ''}"


def session(popen: subprocess.Popen[str]) -> str:
    """The handle that a command tells of on stderr."""
    assert popen.stderr is not None
    return popen.stderr.readline().removeprefix("session ").strip()


def said(home: Home, handle: str) -> list[tuple[str, str]]:
    messages = json.loads(here(home, "sessions", "show", handle, "--all", "--json")[1])["messages"]
    return [(message["text"], message["mark"]) for message in messages]


def test_an_answer_is_printed_and_what_happens_beside_it_goes_to_stderr(home: Home) -> None:
    called = {"text": "Let me see.", "calls": [{"name": "recall", "arguments": {"query": "tide"}}]}
    configured(home, SCRIPTED, called, {"text": "It is\nout."})
    here(home, "agents", "add", "coder")
    done = crabstore(home, "run", "-", "--agent", "coder", stdin="how is the tide?")
    assert (done.returncode, done.stdout) == (0, "Let me see.\nIt is\nout.\n")
    told = done.stderr.splitlines()
    assert re.fullmatch("session [0-9a-f]{20}", told[0]) and told[1] == '· recall {"query": "tide"}'
    assert len(told) == 2


def test_a_run_that_fails_says_so_once_and_ends_with_its_code(home: Home) -> None:
    configured(home, SCRIPTED, {"error": "unauthorized", "text": "no such key"})
    here(home, "agents", "add", "coder")
    done = crabstore(home, "run", "hi", "--agent", "coder")
    assert done.returncode == ExitCode.MODEL and done.stdout == ""
    assert done.stderr.splitlines()[1:] == ["crabstore: scripted (401): no such key"]
    answer = crabstore(home, "run", "hi", "--agent", "coder", "--json")
    assert json.loads(answer.stderr)["error"]["kind"] == "provider-unauthorized" and answer.stdout == ""


def test_ctrl_c_stops_a_run_and_keeps_what_had_arrived(home: Home) -> None:
    configured(home, SCRIPTED, {"text": "Half an answer", "wait": "never"})
    here(home, "agents", "add", "coder")
    with typed(home, "run", "hi", "--agent", "coder") as popen:
        handle = session(popen)
        read(popen, "Half an answer")
        popen.send_signal(signal.SIGINT)
        assert popen.wait(timeout=30) == ExitCode.INTERRUPTED
    assert said(home, handle) == [("hi", ""), ("Half an answer", "partial")]


def test_a_run_without_a_daemon_can_be_steered_and_cancelled_from_elsewhere(home: Home) -> None:
    configured(home, SCRIPTED, {"text": "Working", "wait": "never"})
    here(home, "agents", "add", "coder")
    with typed(home, "run", "hi", "--agent", "coder") as popen:
        handle = session(popen)
        read(popen, "Working")
        told = json.loads(here(home, "steer", handle[:8], "hurry", "--json")[1])
        assert shape(told) == shape(example("steer"))
        assert here(home, "memory", "add", "a", "b")[0] == 0
        assert here(home, "cancel", handle) == (0, "cancelled\n")
        assert popen.wait(timeout=30) == ExitCode.PARTIAL
    assert here(home, "cancel", handle)[0] == ExitCode.MISSING


def test_a_line_typed_during_an_answer_steers_it_and_the_end_of_input_ends_the_chat(home: Home) -> None:
    gate = home.path.parent / "gate"
    os.mkfifo(gate)
    command = f"read line < {gate}; echo $line"
    working = {"text": "Working.", "calls": [{"name": "exec", "arguments": {"command": command}}]}
    configured(home, SCRIPTED, working, {"text": "As you say."}, {"text": "Good."}, repeat=False)
    with process(home):
        grant_commands(home)
        with typed(home, "chat", "--agent", "coder") as popen:
            say(popen, "do it")
            read(popen, "Working.\n")
            with gate.open("w") as opened:  # as soon as the command reads from it
                say(popen, "but quickly")
                handle = session(popen)
                while here(home, "steer", handle, "and well")[0] != 0:
                    pass
                opened.write("go\n")
            read(popen, "As you say.\n")
            say(popen, "")
            say(popen, "thanks")
            read(popen, "Good.\n")
            assert popen.stdin is not None
            popen.stdin.close()
            assert popen.wait(timeout=30) == 0
    texts = [text for text, _ in said(home, handle) if text]
    assert texts[:2] == ["do it", "Working."]
    assert sorted(texts[2:4]) == ["and well", "but quickly"] and texts[4:] == [
        "As you say.",
        "thanks",
        "Good.",
    ]


def grant_commands(home: Home) -> None:
    """The agent `coder`, which may run commands."""
    granted = [{"name": "os", "root": str(home.path.parent), "system": True}]
    asyncio.run(Client(home.socket).ask("POST", "/v1/agents", {"name": "coder", "harnesses": granted}))


def interrupted(popen: subprocess.Popen[str]) -> int:
    """Press Ctrl-C until the process ends: while an answer arrives, that stops only the answer. Its exit code."""
    for _ in range(10):
        popen.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return popen.wait(timeout=3)
    raise AssertionError("it does not end")


def test_ctrl_c_in_a_chat_stops_the_answer_and_then_the_chat(home: Home) -> None:
    configured(home, SCRIPTED, {"text": "Half", "wait": "never"}, {"text": "Whole."}, repeat=False)
    here(home, "agents", "add", "coder")
    with typed(home, "chat", "--agent", "coder") as popen:
        say(popen, "one")
        handle = session(popen)
        read(popen, "Half")
        popen.send_signal(signal.SIGINT)
        read(popen, "\n")
        assert popen.stderr is not None and popen.stderr.readline() == "cancelled\n"
        say(popen, "two")
        read(popen, "Whole.\n")
        assert interrupted(popen) == 0
    assert said(home, handle) == [("one", ""), ("Half", "partial"), ("two", ""), ("Whole.", "")]


def test_a_chat_goes_on_after_an_answer_that_failed(home: Home) -> None:
    configured(home, SCRIPTED, {"error": "rejected", "text": "not now"}, {"text": "Now."}, repeat=False)
    here(home, "agents", "add", "coder")
    with typed(home, "chat", "--agent", "coder") as popen:
        say(popen, "one")
        session(popen)
        assert popen.stderr is not None and "not now" in popen.stderr.readline()
        say(popen, "two")
        read(popen, "Now.\n")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["run", "hi"], "no-default-agent"),
        (["run", "hi", "--agent", "nobody"], "not-found"),
        (["run", "hi", "--session", "nope"], "not-found"),
        (["run", "hi", "--session", "x", "--agent", "y"], "usage"),
        (["run", " ", "--agent", "coder"], "usage"),
        (["chat", "--session", "x", "--agent", "y"], "usage"),
        (["chat"], "usage"),
        (["steer", "x", "y"], "no-daemon"),
        (["cancel", "x"], "no-daemon"),
    ],
)
def test_what_cannot_be_said_is_refused_by_kind(
    home: Home, words: list[str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configured(home)
    here(home, "agents", "add", "coder")
    main([*words, "--json", "--store", str(home.store)])
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["error"]["kind"] == kind


@pytest.mark.parametrize("url", [":memory:", "other.crmem"])
def test_a_store_that_no_daemon_can_hold_says_what_to_name(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["serve"], ["run", "hi"], ["chat"], ["steer", "x", "y"]):
        assert main([*words, "--store", url]) == ExitCode.USAGE
        assert "store.crmem" in capsys.readouterr().err


def test_the_examples_of_the_page_have_the_shapes_of_the_answers(home: Home) -> None:
    configured(home, SCRIPTED, {"text": "Done.", "usage": {"output_tokens": 3}})
    with process(home) as there:
        assert shape(example("serve")) == shape({"serving": there.serving})
        here(home, "agents", "add", "coder")
        answer = json.loads(here(home, "run", "hi", "--agent", "coder", "--json")[1])
        assert shape(example("run")) == shape(answer)
        handle = answer["run"]["session"]
        assert shape(example("cancel")) == shape(json.loads(here(home, "cancel", handle, "--json")[1]))


def example(command: str) -> Any:
    """The JSON in a command's section."""
    section = PAGE.split(f"\n## `crabstore {command}")[1].split("\n## ")[0]
    return json.loads(re.findall(r"```json\n(.*?)```", section, re.DOTALL)[0])


def shape(value: Any) -> Any:
    return {name: shape(member) for name, member in value.items()} if isinstance(value, dict) else None
