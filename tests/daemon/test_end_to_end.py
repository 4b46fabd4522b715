"""The whole, as processes: an agent works with a tool, is steered and killed in the middle of a call, and goes on.

Once with each of the real SDKs against a server on this machine, and once without any.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.model_server import Answer, ModelServer, anthropic_events, chat_chunks, serving
from tests.runtime.validity import require_valid

from crabstore.daemon.client import Client, path_of
from crabstore.daemon.home import Home

from .scene import SCRIPTED, Process, configured, ended, heard, here, process

Turn = tuple[str, list[tuple[str, dict[str, str]]]]
"""What the model says, and the tools it calls."""

LOOK: Turn = ("I look.", [("read", {"path": "notes.txt"})])
WAIT: Turn = ("I wait.", [("exec", {"command": "read line < gate; echo got $line"})])
TURNS: list[Turn] = [LOOK, WAIT, ("As you steered.", []), WAIT, ("Here I am again, about bladderwrack.", [])]
"""Of both lives of the daemon: the second one begins with the last."""


def test_an_agent_survives_being_killed_in_the_middle_of_a_call_with_a_script(home: Home) -> None:
    configured(home, SCRIPTED, *scripted(TURNS[:4]), repeat=False)
    with process(home) as there:
        asyncio.run(first_life(home, there))
    configured(home, SCRIPTED, *scripted(TURNS[4:]), repeat=False)
    with process(home) as there:
        asyncio.run(second_life(home))
        assert there.stop() == 0
    found(home)


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_an_agent_survives_being_killed_in_the_middle_of_a_call_with_a_real_sdk(
    home: Home, kind: str
) -> None:
    async def lives() -> None:
        async with serving(*(Answer(streamed(kind, turn)) for turn in TURNS)) as model:
            path = "" if kind == "anthropic" else "/v1"
            configured(home, config(kind, f"{model.url}{path}"))
            async with apart(home) as there:
                await first_life(home, there)
                steered = json.dumps(model.requests[2])
                assert "and look at the sky" in steered and "got go" in steered
            async with apart(home) as there:
                await second_life(home)
                assert await asyncio.to_thread(there.stop) == 0
            require_sound(kind, model)

    asyncio.run(lives())
    found(home)


@asynccontextmanager
async def apart(home: Home) -> AsyncIterator[Process]:
    """A daemon in its own process, while the server in this one goes on."""
    running = process(home, TEST_KEY="k")
    there = await asyncio.to_thread(running.__enter__)
    try:
        yield there
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


def require_sound(kind: str, model: ModelServer) -> None:
    """Every request was one that the real server would have taken, and came with the key."""
    assert len(model.requests) == len(TURNS)
    for request, headers in zip(model.requests, model.headers, strict=True):
        require_valid(kind, request)
        assert request["model"] == "m"
        assert "k" in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))


async def first_life(home: Home, there: Process) -> None:
    """An agent is made, works, is steered, works again, and its process is killed while its tool runs."""
    client = Client(home.socket)
    root = home.path.parent / "root"
    root.mkdir()
    (root / "notes.txt").write_text("the tide is out\n")
    os.mkfifo(root / "gate")
    granted = [{"name": "os", "root": str(root), "system": True}]
    await client.ask("POST", path_of("agents"), {"name": "coder", "harnesses": granted})
    await client.ask("POST", path_of("sessions"), {"handle": "h", "agent": "coder"})
    run = asyncio.create_task(ended(start(client, "look at the notes")))
    gate = await opened(root / "gate")
    await client.ask("POST", path_of("sessions", "h", "steer"), {"message": "and look at the sky"})
    os.write(gate, b"go\n")
    os.close(gate)
    assert (await run).data["text"] == "As you steered."
    await heard(start(client, "wait once more"), "tool_start")
    gate = await opened(root / "gate")
    os.kill(there.popen.pid, signal.SIGKILL)
    await asyncio.to_thread(there.popen.wait)
    os.close(gate)


async def second_life(home: Home) -> None:
    """The same session goes on."""
    client = Client(home.socket)
    assert (await ended(start(client, "are you there?"))).data["text"] == TURNS[4][0]
    answer: Any = await client.ask("GET", path_of("sessions", "h", "messages"))
    said = [message["text"] for message in answer["messages"] if message["text"]]
    assert [text for text in said if text.startswith(("look", "and", "wait", "are"))] == [
        "look at the notes",
        "and look at the sky",
        "wait once more",
        "are you there?",
    ]
    assert "the tide is out" in json.dumps(answer)


def found(home: Home) -> None:
    """A search finds it, and the file is sound."""
    hits = json.loads(here(home, "search", "bladderwrack", "--json")[1])["hits"]
    assert [hit["session"]["handle"] for hit in hits] == ["h"]
    assert here(home, "verify")[0] == 0


def start(client: Client, message: str) -> Any:
    return client.stream("POST", path_of("sessions", "h", "runs"), {"message": message})


async def opened(gate: Path) -> int:
    """The gate, for writing, as soon as the agent's command reads from it."""
    async with asyncio.timeout(30):
        while True:
            try:
                return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:  # nobody reads from it yet
                    raise
            await asyncio.sleep(0.005)


def config(kind: str, url: str) -> str:
    provider = f'[providers.there]\nkind = "{kind}"\nbase_url = "{url}"\napi_key_env = "TEST_KEY"\n'
    return f'model = "there/m"\n{provider}'


def scripted(turns: list[Turn]) -> list[dict[str, Any]]:
    return [
        {"text": text, "calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}
        for text, calls in turns
    ]


def streamed(kind: str, turn: Turn) -> list[bytes]:
    text, called = turn
    calls = [(f"call_{secrets.token_hex(4)}", name, json.dumps(arguments)) for name, arguments in called]
    if kind == "anthropic":
        return anthropic_events(text, calls, stop_reason="tool_use" if calls else "end_turn")
    return chat_chunks(text, calls, finish="tool_calls" if calls else "stop")
