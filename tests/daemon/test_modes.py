"""The same commands have the same outcome and the same output, whether a daemon holds the store or nobody does."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
from collections.abc import Iterator

import pytest

import crabstore
from crabstore.cli import main
from crabstore.cli.app import COMMANDS
from crabstore.daemon.home import Home
from crabstore.store.messages import HistoryEntry

from .scene import configured, process, short_home

ALONE = {"serve", "steer", "cancel", "demo"}
"""Commands that are about a daemon, or never look at the store."""

SKILL = "---\nname: deploy-app\ndescription: How we deploy.\n---\nPush, then watch.\n"

SCRIPT = [
    "agents list",
    "agents add new --description why --model play/m",
    "agents add new",
    "agents add other --json",
    "agents default new",
    "agents default --json",
    "agents show new",
    "agents change new --name newer --from agent.json --json",
    "agents change newer --name new --description better",
    "agents change nobody --model x",
    "agents add wrong --from bad.md",
    "agents remove nobody",
    "agents remove other",
    "agents list --json",
    "memory add db Postgres --alias database",
    "memory add empty -",
    "memory add read -",
    "memory list",
    "memory search database",
    "memory remove db --json",
    "memory remove db --json",
    "memory show db",
    "skills add SKILL.md bad.md",
    "skills list",
    "skills show deploy-app",
    "skills remove deploy-app",
    "import talk.jsonl",
    "import talk.jsonl --json",
    "import nothing.jsonl",
    "search retry",
    "search retry --json",
    "sessions list",
    "sessions show old --json",
    "sessions export old",
    "run hello --agent new",
    "run hello --session old --json",
    "run hello --agent nobody",
    "chat --session old",
    "sessions show old",
    "sessions delete old",
    "sessions delete old --yes --forget",
    "sessions delete old --yes",
    "reindex",
    "search hello --json",
    "compact --json",
    "compact --erase",
    "stats --json",
    "verify --json",
    "backup copy.crmem",
    "backup copy.crmem",
    "repair --json",
    "nonsense",
]

VARYING = (
    (re.compile(r"\b01[0-9A-Z]{24}\b"), "ULID"),
    (re.compile(r"\b[0-9a-f]{20}\b"), "HANDLE"),
    (re.compile(r"\b[0-9a-f]{10}\b"), "HANDLE"),
    (re.compile(r"20\d\d-\d\d-\d\d[T ][0-9:.]+Z?"), "TIME"),
    (re.compile(r'"milliseconds":[0-9.]+|[0-9.]+ ms'), "MS"),
)
"""What is random, or the time."""
SIZES = re.compile(
    r'"(before|after|freed|ratio|size|live|dead|synced|not_synced|snapshot|tail|\w*bytes|records|frames)":-?[0-9.]+'
    r"|-?[0-9.,]+ (B|KiB)"
)
"""What depends on how often the file was made durable."""


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as made:
        configured(made, "model='play/m'\n[providers.play]\nkind='scripted'\nscript='script.json'\n")
        asyncio.run(fill(made))
        folder = made.path.parent
        (folder / "SKILL.md").write_text(SKILL)
        (folder / "bad.md").write_text("no front matter")
        (folder / "agent.json").write_text('{"agent": {"skills": ["deploy-app"], "max_iterations": 3}}')
        talk = [{"role": "user", "content": "hi retry"}, {"role": "assistant", "content": "hello"}]
        (folder / "talk.jsonl").write_text(json.dumps({"messages": talk}) + "\nno json\n")
        yield made


async def fill(home: Home) -> None:
    async with crabstore.open(home.store) as store:
        agent = await store.agents.ensure("coder")
        meta = await store.sessions.open("old", agent=agent.id, created_by="ada", title="Retry storm")
        said = [HistoryEntry.user("why does it retry?"), HistoryEntry.assistant("No backoff.")]
        await store.sessions.append_messages(meta.handle, said, at="2026-01-01T00:00:00Z")


def outcome(words: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """Exit code, stdout and stderr of a command, without what varies from run to run."""
    out, err = io.StringIO(), io.StringIO()
    with monkeypatch.context() as patch:
        patch.chdir(home.path.parent)
        patch.setattr("sys.stdin", io.StringIO("from stdin\n" if "read" in words or "chat" in words else ""))
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        code = main([*words.split(), "--store", str(home.store)])
    text = f"$ {words}\n{code}\n{out.getvalue()}\n{err.getvalue()}"
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return SIZES.sub("SIZE", text)


def test_every_command_does_the_same_with_a_daemon_and_without(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRABSTORE_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    folder = home.path.parent
    before = folder.parent / f"{folder.name}-copy"
    shutil.copytree(folder, before)
    try:
        alone = [outcome(words, home, monkeypatch) for words in SCRIPT]
        shutil.rmtree(home.path)
        (folder / "copy.crmem").unlink()
        shutil.copytree(before / home.path.name, home.path)
        with process(home):
            beside = [outcome(words, home, monkeypatch) for words in SCRIPT]
    finally:
        shutil.rmtree(before)
    for one, other in zip(alone, beside, strict=True):
        assert one == other


def test_the_comparison_leaves_no_command_out() -> None:
    assert {words.split()[0] for words in SCRIPT} >= set(COMMANDS) - ALONE


def test_what_a_command_wrote_beside_a_daemon_is_there_for_the_next_reader(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(home) as there:
        outcome("memory add kept forever", home, monkeypatch)
        there.kill()
    assert "forever" in outcome("memory show kept", home, monkeypatch)


def test_a_socket_that_a_dead_daemon_left_stops_no_command(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(home) as there:
        there.kill()
    assert home.socket.exists()
    assert outcome("memory add a b", home, monkeypatch).startswith("$ memory add a b\n0\n")
    with process(home):
        assert "remembered c" in outcome("memory add c d", home, monkeypatch)
