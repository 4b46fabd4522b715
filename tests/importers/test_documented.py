"""The document on importing, and the transcripts that ship with the package, say what is."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from tests.importers.writing import Stored

import crabstore
from crabstore.backends.volatile import VolatileBackend
from crabstore.importers import detect, ingest, lines, places, report
from crabstore.store.session_search import SessionAnswer

PAGE = (Path(__file__).parents[2] / "docs" / "importing.md").read_text(encoding="utf-8")
DEMO = Path(crabstore.__file__).parent / "demo"


def test_every_format_that_is_refused_by_name_is_named() -> None:
    named = re.findall(
        r"^\| ([^|]+) \|$", PAGE.partition("| refused |")[2].partition("\n\n")[0], re.MULTILINE
    )
    known = {name for _, name in (*detect._EXPORTS, *detect._COMPANIONS)} | {detect._EXEC_OUTPUT}
    assert set(named) - {"---"} == known


def test_limits_are_the_ones_in_the_code() -> None:
    assert f"over {lines.MAX_RECORD >> 20} MiB" in PAGE
    assert f"{report._KEPT} of a file" in PAGE.replace("\n", " ")
    assert "256 entries or 1 MiB" in PAGE


def test_the_places_are_the_ones_in_the_code() -> None:
    for place in places(Path("~")):
        assert f"`{place.path.parent if place.tool == 'codex' else place.path}`" in PAGE
        assert f"| `{place.tool}` |" in PAGE


def found(*queries: str) -> list[SessionAnswer]:
    async def search() -> list[SessionAnswer]:
        store = VolatileBackend()
        await ingest(store, [DEMO])
        return [await store.sessions.search(query) for query in queries]

    return asyncio.run(search())


def test_the_demo_imports_whole_and_shows_every_kind() -> None:
    with Stored() as stored:
        told, held = stored.run(DEMO)
    assert told.ok
    assert [sum(tool == name for tool, _ in held) for name in ("claude-code", "codex", "messages")] == [
        5,
        2,
        3,
    ]
    entries = [entry for row in held.values() for entry in row[5]]
    assert len(entries) == 78
    assert {entry.mark for entry in entries} == {"", "injected"}
    assert next(entry.text[:30] for entry in entries if not entry.active).startswith(
        "Yes, and make the first retry"
    )
    assert any(len(entry.blocks) > 2 for entry in entries)
    assert any(row[4].parent for row in held.values())


@pytest.mark.parametrize(
    ("query", "tool", "title"),
    [
        ("database is locked", "claude-code", "Nightly export: database is locked"),
        ("roll back the deploy", "codex", "The deploy from ten minutes ago"),
        ("retry jitter", "messages", "Explain to a new colleague"),
    ],
)
def test_the_demos_searches_find_what_they_show(query: str, tool: str, title: str) -> None:
    (answer,) = found(query)
    best = answer.hits[0].meta
    assert best.source.tool == tool
    assert best.title.startswith(title)


def test_a_secret_of_the_demo_stands_only_in_a_tool_result_and_is_not_found() -> None:
    holding = [
        row
        for path in DEMO.rglob("*.jsonl")
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if "bladderwrack" in json.dumps(row)
    ]
    assert [row["message"]["content"][0]["type"] for row in holding] == ["tool_result"]
    assert [len(answer.hits) for answer in found("bladderwrack", "bladderwrack*", "bladderwrack-7713")] == [
        0,
        0,
        0,
    ]
