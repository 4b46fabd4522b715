"""`crabstore memory`: what agents remember."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from ..answers.documents import memory_document
from ..answers.failures import ExitCode, Refusal
from ..store.backend import Backend
from ..store.errors import NotFound
from ..store.memory import MemoryEntry, MemoryHit
from .call import Call, command, group
from .console import Column, Screen, count, day, excerpt, one_line

__all__ = ["app"]

app = group("List, show, add, remove and search what agents remember.")

_EXCERPT = 240
"""Characters shown of an entry that a search found."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="An entry's name.")]


class Kind(StrEnum):
    """What an entry is: somebody's note, or the summary of a compacted session."""

    NOTE = "note"
    ARCHIVE = "archive"


KindOption = Annotated[Kind | None, typer.Option(metavar="note|archive", help="Only entries of this kind.")]


@command(app, "list")
def list_memory(call: Call, kind: KindOption = None) -> ExitCode | None:
    """List entries by name."""
    entries = call.read(lambda store: store.memory.entries(kind.value if kind else None))
    document = {"memory": [memory_document(entry) for entry in entries]}
    call.answer(document, lambda screen: _draw_all(screen, entries))
    return None


@command(app, "show")
def show(call: Call, name: Name) -> ExitCode | None:
    """Show an entry."""
    entry = call.read(lambda store: _one(store, name))
    call.answer({"entry": memory_document(entry)}, lambda screen: _draw(screen, entry))
    return None


@command(app, "add")
def add(
    call: Call,
    name: Name,
    content: Annotated[
        str, typer.Argument(metavar="CONTENT", help="What to remember; - reads it from stdin.")
    ],
    alias: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="A further word to find it by; may be repeated.")
    ] = None,
) -> ExitCode | None:
    """Remember something, replacing what has that name."""
    text = sys.stdin.read() if content == "-" else content
    if not text.strip():
        raise Refusal(ExitCode.USAGE, "usage", "there is nothing to remember: the content is empty")
    entry = MemoryEntry(name=name, content=text, aliases=alias or [])
    stored = call.write(lambda store: _put(store, entry), create=True)
    call.answer(
        {"entry": memory_document(stored)}, lambda screen: screen.show(f"remembered {one_line(name)}")
    )
    return None


@command(app, "remove")
def remove(call: Call, name: Name) -> ExitCode | None:
    """Forget an entry."""
    call.write(lambda store: _remove(store, name))
    call.answer({"removed": {"name": name}}, lambda screen: screen.show(f"removed {one_line(name)}"))
    return None


@command(app, "search")
def search(
    call: Call,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Any words; one that ends in * matches by prefix.")
    ],
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Entries to show.")] = 20,
    kind: KindOption = None,
) -> ExitCode | None:
    """Find entries by their words, best first."""
    hits, spans = call.read(lambda store: _search(store, query, limit, kind))
    found = [{"entry": memory_document(hit.entry), "score": hit.score} for hit in hits]
    call.answer({"query": query, "hits": found}, lambda screen: _draw_hits(screen, hits, spans))
    return None


async def _one(store: Backend, name: str) -> MemoryEntry:
    entry = await store.memory.get(name)
    if entry is None:
        raise NotFound("memory entry", name)
    return entry


async def _put(store: Backend, entry: MemoryEntry) -> MemoryEntry:
    await store.memory.put(entry)
    return await _one(store, entry.name)


async def _remove(store: Backend, name: str) -> None:
    if not await store.memory.delete(name):
        raise NotFound("memory entry", name)


async def _search(
    store: Backend, query: str, limit: int, kind: Kind | None
) -> tuple[list[MemoryHit], list[list[tuple[int, int]]]]:
    hits = await store.memory.search(query, limit, kind.value if kind else None)
    return hits, [store.text.spans(query, hit.entry.content) for hit in hits]


def _draw_all(screen: Screen, entries: list[MemoryEntry]) -> None:
    columns = [Column("name"), Column("kind"), Column("created"), Column("content", flexible=True)]
    screen.table(
        columns, ((entry.name, entry.kind, day(entry.created_at), entry.content) for entry in entries)
    )


def _draw(screen: Screen, entry: MemoryEntry) -> None:
    facts = (("name", entry.name), ("kind", entry.kind), ("aliases", ", ".join(entry.aliases)))
    screen.facts((name, value) for name, value in facts if value)
    screen.show("")
    screen.text(entry.content)


def _draw_hits(screen: Screen, hits: list[MemoryHit], spans: list[list[tuple[int, int]]]) -> None:
    for hit, marks in zip(hits, spans, strict=True):
        screen.show(Text(f"{one_line(hit.entry.name)}  {hit.score:.2f}", style="bold"))
        screen.show(excerpt(hit.entry.content, marks, _EXCERPT, terminal=screen.terminal), "")
    screen.show(Text(count(len(hits), "entry"), style="dim"))
