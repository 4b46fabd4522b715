"""Running the command line in this process, over a small store with hostile content in it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import crabstore
from crabstore.cli import main
from crabstore.store.backend import Backend
from crabstore.store.memory import MemoryEntry
from crabstore.store.messages import HistoryEntry
from crabstore.store.session_records import Source

HOSTILE = "\x1b[31mred\x07 [red]markup[/red] \x9b2J \u202eabc"
"""An escape sequence, a bell, rich markup, an 8-bit CSI and a right-to-left override."""

SKILL = "---\nname: deploy-app\ndescription: How we deploy.\n---\nPush, then watch.\n"


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """Its error, which must be one JSON document and the only output."""
        assert self.out == ""
        return json.loads(self.err)["error"]


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `crabstore` with these words; the home directory is an empty one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for name in ("CRABSTORE_URL", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: object, stdin: str = "") -> Result:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(stdin))
            patch.setattr("sys.stdout", out)
            patch.setattr("sys.stderr", err)
            code = main([str(word) for word in words])
        return Result(code, _text(out), _text(err))

    return call


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A store of three sessions, two agents, a memory entry and a skill."""
    path = tmp_path / "store.crmem"
    asyncio.run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    async with crabstore.open(path) as store:
        builder = await store.agents.ensure("builder")
        codex = await store.agents.ensure("codex")
        await store.agents.set_default(builder.id)
        await _session(store, "aaa-retry", builder.id, "Stop the retry storm", day=1, project="/src/gateway")
        await _session(store, "aaa-hostile", builder.id, HOSTILE, day=2, project="/src/gateway")
        await _imported(store, codex.id)
        await store.memory.put(
            MemoryEntry(name="deploys", content=f"We deploy on Fridays. {HOSTILE}", aliases=["ship"])
        )
        await store.skills.put(SKILL)


async def _session(store: Backend, handle: str, agent: str, title: str, *, day: int, project: str) -> None:
    at = f"2026-03-0{day}T10:00:00.000000Z"
    await store.sessions.open(handle, agent=agent, created_by="ada", created_at=at, title=title, root=project)
    said = [f"why does the retry loop never stop? {title}", "It retries without backoff.", "thanks"]
    entries = [
        HistoryEntry.user(said[0], id="q", ts=at),
        HistoryEntry.assistant(said[1], id="a", ts=at),
        *TOOLS,
        HistoryEntry.user(said[2], id="t", ts=at),
    ]
    await store.sessions.append_messages(handle, entries, at=at)


async def _imported(store: Backend, agent: str) -> None:
    at = "2026-04-01T09:00:00.000000Z"
    source = Source(
        tool="codex", project="/src/crab", original_id="o-1", path="/logs/rollout.jsonl", parent="o-0"
    )
    meta = await store.sessions.open(
        "c0ffee00c0ffee00c0ff",
        agent=agent,
        created_by="user",
        created_at=at,
        title="Backoff table",
        source=source,
    )
    entries = [
        HistoryEntry.user(f"message {number} about backoff", id=str(number), ts=at) for number in range(60)
    ]
    await store.sessions.append_messages(meta.handle, entries)


TOOLS = [
    HistoryEntry(
        message={
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {
                    "type": "tool_use",
                    "id": "1",
                    "name": "Bash",
                    "input": {"command": "grep -r \x1b[2J retry"},
                },
            ],
        },
        format="anthropic",
        id="call",
        ts="2026-03-01T10:00:00.000000Z",
    ),
    HistoryEntry(
        message={
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": "zanzibar \x1b]0;title\x07" + "x" * 900,
                }
            ],
        },
        format="anthropic",
        id="result",
        ts="2026-03-01T10:00:00.000000Z",
    ),
]
