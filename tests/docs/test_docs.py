"""The documents say what is: every key row, method, number and snippet in them is checked."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import runpy
from pathlib import Path

import pytest

import crabstore
from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Column
from crabstore.store.session_records import Done, Source
from crabstore.store.testing import contents
from crabstore.store.testing.entities import SKILL

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
SNIPPETS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(SNIPPET.findall(page.read_text(encoding="utf-8")))
]


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if not set(row[0]) <= {"-", " "}]


@pytest.mark.parametrize("code", SNIPPETS)
def test_every_snippet_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")


async def everything() -> dict[Column, list[tuple[bytes, bytes]]]:
    """The contents of a store in which every kind of key occurs."""
    store = VolatileBackend()
    agent = await store.agents.ensure("helper")
    await store.agents.set_default(agent.id)
    await store.skills.put(SKILL)
    await store.harnesses.put(b"image", "os")
    for name in ("kept", "gone"):
        source = Source(tool="codex", original_id=name)
        meta = await store.sessions.open(name, agent=agent.id, created_by="me", title="crab", source=source)
        await store.sessions.append_messages(meta.handle, [crabstore.HistoryEntry.user("crab", id="1")])
    await store.sessions.append_compact("kept", "about crabs")
    await store.sessions.append_events(
        "kept", [Done(model="m", iterations=1, stop_reason="end", ts="2026-01-01T00:00:00Z")]
    )
    await store.sessions.forget("gone")
    return await contents(store)


def test_the_key_table_is_exactly_what_is_written() -> None:
    table = [
        (row[0], row[1].strip("`")) for row in rows("keyspace.md") if row[0].upper() in Column.__members__
    ]
    patterns = {
        (column.upper(), key): re.compile(
            # A document's key and its group's stand in a key as they are, their slashes included.
            "local/" + re.sub(r"\\{\w+\\}", "[^/]+", re.sub(r"\\{(?:key|group)\\}", ".+", re.escape(key)))
        )
        for column, key in table
    }
    written = [
        (col.name, key.decode()) for col, pairs in asyncio.run(everything()).items() for key, _ in pairs
    ]
    matches = {
        (column, key): [
            row for row, pattern in patterns.items() if row[0] == column and pattern.fullmatch(key)
        ]
        for column, key in written
    }
    assert [key for key, found in matches.items() if len(found) != 1] == []
    assert set(patterns) - {found[0] for found in matches.values()} == set()


def test_every_method_that_the_interfaces_page_names_exists() -> None:
    text = (ROOT / "docs/interfaces.md").read_text(encoding="utf-8")
    store = VolatileBackend()
    names = set(re.findall(r"`(store\.[a-z_.]+)`", text))
    assert len(names) > 40
    for name in names:
        target: object = store
        for part in name.split(".")[1:]:
            target = getattr(target, part)
        assert callable(target), name


def test_every_public_method_of_an_interface_is_on_the_interfaces_page() -> None:
    text = (ROOT / "docs/interfaces.md").read_text(encoding="utf-8")
    store = VolatileBackend()
    internal = {"stage", "rebuild", "reindex", "clear", "conform", "rebuilding", "layout", "analysis"}
    for attribute in ("agents", "sessions", "memory", "skills", "harnesses", "text"):
        interface = type(getattr(store, attribute))
        for name in {name for name in dir(interface) if not name.startswith("_")} - internal:
            assert f"`store.{attribute}.{name}`" in text, name
            assert inspect.getdoc(getattr(interface, name)), name


def test_the_numbers_of_the_search_page_are_the_defaults() -> None:
    numbers = {row[0].strip("`"): row[1] for row in rows("search.md") if row[0].startswith("`")}
    stated = {
        name: value == "on" if value in ("on", "off") else float(value)
        for name, value in numbers.items()
        if name not in ("Bm25", "Weights")
    }
    defaults = dataclasses.asdict(crabstore.Bm25()) | dataclasses.asdict(crabstore.Weights())
    assert stated == defaults


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_benchmark_that_a_page_names_exists() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`python -m bench\.(\w+)", text))
    assert {"engines", "scale"} <= named
    for name in named:
        assert (ROOT / "bench" / f"{name}.py").exists(), name
