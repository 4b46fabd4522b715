"""`crabstore demo`: the main job on transcripts that come with the package, in a store that goes away."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path

from rich.text import Text

from ..answers.documents import Document
from ..answers.failures import ExitCode
from ..importers import Report
from ..store.backend import Backend
from ..store.session_search import SessionFilter
from .call import Call, Globals
from .console import Screen, count
from .importing import draw_report, import_paths
from .search import Found, draw_found, find, found_document
from .summary import news, report_document

__all__ = ["demo"]

_SEARCHES = ("retry storm", "database is locked", "rollback* health")
_SECRET = "bladderwrack"
"""A word of the demo's transcripts that stands in nothing but a tool's output: it is part of a password."""

_NEXT = (
    ("crabstore import", "your own sessions: Claude Code, Codex, message files"),
    ("crabstore search WORDS", "find them again; every hit names the command that opens it"),
    ("crabstore sessions list", "what changed last comes first"),
    ("crabstore --help", "everything else"),
)


@dataclass
class _Demo:
    """What the demo saw."""

    report: Report = field(default_factory=Report)
    searches: list[tuple[str, Found]] = field(default_factory=list)
    secret: Found | None = None
    secret_results: int = 0
    """Tool results that hold the secret."""


def demo(call: Call) -> ExitCode | None:
    """Import transcripts that come with the package into a temporary store, and search it."""
    with tempfile.TemporaryDirectory(prefix="crabstore-demo-") as folder:
        store = Call(Globals(store=str(Path(folder) / "demo.crmem"), json=call.json))
        seen = _Demo()
        with as_file(files("crabstore") / "demo") as transcripts:
            store.write(lambda opened: _run(opened, transcripts, store, seen), create=True)
        call.answer(_document(store, seen), lambda screen: _draw(screen, store, seen))
    return None


async def _run(store: Backend, transcripts: Path, call: Call, seen: _Demo) -> None:
    await import_paths(store, [transcripts], call, seen.report)
    for query in _SEARCHES:
        seen.searches.append((query, await find(store, query, SessionFilter(), limit=2, context=1)))
    seen.secret = await find(store, _SECRET, SessionFilter(), limit=2, context=1)
    for handle in await store.sessions.handles():
        for entry in await store.sessions.messages(handle):
            seen.secret_results += sum(_SECRET in result.text for result in entry.tool_results)


def _draw(screen: Screen, call: Call, seen: _Demo) -> None:
    screen.show("Transcripts of three programs, imported into one file:", "")
    draw_report(screen, seen.report)
    screen.show("", news(seen.report), "")
    for query, found in seen.searches:
        _draw_search(screen, call, query, found)
    if seen.secret:
        _draw_search(screen, call, _SECRET, seen.secret)
    screen.show(
        f"{_SECRET!r} is part of a password, and stands in {count(seen.secret_results, 'tool result')} there: "
        "what tools print is kept, but no search finds it.",
        "",
        "Next:",
    )
    screen.facts((f"  {command}", purpose) for command, purpose in _NEXT)


def _draw_search(screen: Screen, call: Call, query: str, found: Found) -> None:
    screen.show(Text(f"$ crabstore search {query!r}", style="bold green"), "")
    draw_found(screen, call, found, openings=False)
    screen.show("")


def _document(call: Call, seen: _Demo) -> Document:
    return {
        "import": report_document(seen.report, ()),
        "searches": [found_document(call, query, found) for query, found in seen.searches],
        "secret": {
            "word": _SECRET,
            "tool_results": seen.secret_results,
            "hits": len(seen.secret.answer.hits) if seen.secret else 0,
        },
    }
