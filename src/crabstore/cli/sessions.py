"""`crabstore sessions`: list, read, export and delete conversations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..answers.documents import entry_document, session_document
from ..answers.failures import ExitCode, Refusal
from ..answers.listing import Page, listing, started
from ..answers.lookup import agent_names, find_session
from ..store.backend import Backend
from ..store.messages import HistoryEntry
from ..store.session_records import Card, SessionMeta
from .call import Call, command, group
from .console import Column, Screen, count, minute, one_line
from .exporting import Format, export_file, export_stdout
from .messages import draw_entry
from .search import project_of

__all__ = ["app"]

app = group("List, read, export and delete conversations.")

_PAGE = 20
"""Sessions and messages shown unless asked otherwise."""

Handle = Annotated[
    str, typer.Argument(metavar="HANDLE", help="A session's handle, or enough of its beginning.")
]


@dataclass(frozen=True)
class _Extract:
    meta: SessionMeta
    names: dict[str, str]
    start: int
    entries: list[HistoryEntry]


@command(app, "list")
def list_sessions(
    call: Call,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Sessions to show.")] = _PAGE,
    after: Annotated[str, typer.Option(metavar="TOKEN", help="Go on where a page before ended.")] = "",
    agent: Annotated[str, typer.Option(metavar="AGENT", help="Only of this agent (name or id).")] = "",
    project: Annotated[str, typer.Option(metavar="FOLDER", help="Only sessions of this folder.")] = "",
    source: Annotated[str, typer.Option(metavar="TOOL", help="Only sessions that this tool recorded.")] = "",
) -> ExitCode | None:
    """List sessions, the one that changed last first."""
    start = started(after, "--after")
    wanted = Card(agent=agent, project=project_of(project), tool=source)
    page = call.read(lambda store: listing(store, wanted, limit, start))
    call.answer(page.document(), lambda screen: _draw_page(screen, call, page))
    return None


@command(app, "show")
def show(
    call: Call,
    handle: Handle,
    at: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show the messages around this position.")
    ] = None,
    context: Annotated[int, typer.Option(metavar="N", min=0, help="With --at: messages on each side.")] = 5,
    all_: Annotated[bool, typer.Option("--all", help="Show every message.")] = False,
) -> ExitCode | None:
    """Show a session: what it is, and its last messages, or those around a position, or all."""
    found = call.read(lambda store: _extract(store, handle, at, context, whole=all_))
    messages = [entry_document(place, entry) for place, entry in enumerate(found.entries, found.start)]
    document = {"session": session_document(found.meta, found.names), "messages": messages}
    call.answer(document, lambda screen: _draw_extract(screen, call, found, at))
    return None


@command(app, "export")
def export(
    call: Call,
    handle: Handle,
    format: Annotated[
        Format, typer.Option(help="One verbatim message a line, or text to read.")
    ] = Format.JSONL,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there; mode 0600.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> ExitCode | None:
    """Write a session's messages out, all of them, exactly as they were recorded."""
    if output is None:
        call.read(lambda store: export_stdout(store, handle, format, whole=call.json))
        return None
    done = call.read(lambda store: export_file(store, handle, format, output, force=force))
    report = {"handle": done.handle, "path": str(output), "messages": done.messages, "bytes": done.size}
    words = f"{count(done.messages, 'message')}, {count(done.size, 'byte')} in {output}"
    call.answer({"exported": report}, lambda screen: screen.show(one_line(words)))
    return None


@command(app, "delete")
def delete(
    call: Call,
    handle: Handle,
    forget: Annotated[bool, typer.Option("--forget", help="Never import it again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> ExitCode | None:
    """Delete a session for good."""
    meta = call.read(lambda store: find_session(store, handle))
    title = f" ({meta.title})" if meta.title else ""
    call.confirm(f"Delete {meta.handle}{title} with {count(meta.message_count, 'message')}?", yes=yes)
    call.write(lambda store: _delete(store, meta.handle, forget=forget))
    done = {"deleted": {"handle": meta.handle, "messages": meta.message_count, "forgotten": forget}}
    call.answer(done, lambda screen: screen.show(f"deleted {one_line(meta.handle)}"))
    return None


def _draw_page(screen: Screen, call: Call, page: Page) -> None:
    columns = [Column("handle"), Column("changed"), Column("agent"), Column("project", flexible=True)]
    rows = [
        (
            row.handle[:10] if screen.terminal and _is_random(row.handle) else row.handle,
            minute(row.updated_at),
            page.names[row.card.agent],
            Path(row.card.project).name if screen.terminal else row.card.project,
            row.card.title,
        )
        for row in page.rows
    ]
    screen.table([*columns, Column("title", flexible=True)], rows)
    if page.next:
        more = call.again("sessions", "list", "--after", page.next)
        screen.show(Text(f"more: {one_line(more)}", style="dim"))


def _is_random(handle: str) -> bool:
    """Whether the store made the handle: the beginning of such a one is enough to tell it from others."""
    return len(handle) == 20 and all(char in "0123456789abcdef" for char in handle)


async def _extract(store: Backend, start: str, at: int | None, context: int, *, whole: bool) -> _Extract:
    meta = await find_session(store, start)
    if at is not None and at >= meta.message_count:
        last = f"its last message is {meta.message_count - 1}" if meta.message_count else "it has no messages"
        raise Refusal(ExitCode.MISSING, "not-found", f"session {meta.handle!r} has no message {at}: {last}")
    first, stop = _range(meta.message_count, at, context, whole=whole)
    entries = await store.sessions.messages(meta.handle, first, stop)
    return _Extract(meta, await agent_names(store, [meta.agent]), first, entries)


def _range(total: int, at: int | None, context: int, *, whole: bool) -> tuple[int, int]:
    if whole:
        return 0, total
    if at is not None:
        return max(0, at - context), min(total, at + context + 1)
    return max(0, total - _PAGE), total


def _draw_extract(screen: Screen, call: Call, found: _Extract, at: int | None) -> None:
    meta, stop = found.meta, found.start + len(found.entries)
    screen.show(Text(one_line(meta.title) or "(no title)", style="bold"))
    facts = [
        ("handle", meta.handle),
        ("agent", found.names[meta.agent]),
        ("project", meta.project),
        ("from", meta.source.path),
        ("parent", meta.source.parent),
        ("created", f"{minute(meta.created_at)} by {meta.created_by}"),
        ("changed", minute(meta.updated_at)),
        ("summary", meta.summary),
        ("messages", _shown(meta.message_count, found.start, stop)),
    ]
    screen.facts((name, value) for name, value in facts if value)
    screen.show("")
    for place, entry in enumerate(found.entries, found.start):
        screen.show(*draw_entry(place, entry, best=place == at))
    if len(found.entries) < meta.message_count:
        every = call.again("sessions", "show", meta.handle, "--all")
        screen.show(Text(f"all of it: {one_line(every)}", style="dim"))


def _shown(total: int, start: int, stop: int) -> str:
    return f"{total:,}" if stop - start == total else f"{total:,}, here {start} to {stop - 1}"


async def _delete(store: Backend, handle: str, *, forget: bool) -> None:
    await (store.sessions.forget(handle) if forget else store.sessions.delete(handle))
