"""`crabstore search`: find sessions by what was said in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..answers.documents import Document, hit_document
from ..answers.failures import ExitCode, Refusal
from ..answers.lookup import agent_names, find_agent
from ..store.backend import Backend
from ..store.session_search import Excerpt, SessionAnswer, SessionFilter, SessionHit
from .call import Call, from_home
from .console import Screen, count, excerpt, minute, one_line
from .moments import since as since_moment
from .moments import until as until_moment

__all__ = ["Found", "draw_found", "find", "found_document", "project_of", "search"]

_BEST, _AROUND = 400, 160
"""Characters shown of the message that matches, and of those around it."""


@dataclass(frozen=True)
class Found:
    """What a search gave, with the names of its agents and the time it took."""

    answer: SessionAnswer
    names: dict[str, str]
    milliseconds: float


def search(
    call: Call,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Any words; one that ends in * matches by prefix.")
    ],
    agent: Annotated[str, typer.Option(metavar="AGENT", help="Only of this agent (name or id).")] = "",
    sender: Annotated[str, typer.Option(metavar="NAME", help="Only sessions of this person.")] = "",
    project: Annotated[str, typer.Option(metavar="FOLDER", help="Only sessions of this folder.")] = "",
    role: Annotated[str, typer.Option(metavar="ROLE", help="Only what was said by: user, assistant.")] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="From this time on: 2026-03, 2026-03-01, 7d, 24h.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="TIME", help="Up to this time, a named day or month included.")
    ] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Sessions to show.")] = 10,
    context: Annotated[
        int, typer.Option(metavar="N", min=0, help="Messages to show on each side of a match.")
    ] = 1,
) -> ExitCode | None:
    """Find sessions by what was said in them, best first."""
    now = datetime.now(UTC)
    if role not in ("", "user", "assistant"):
        raise Refusal(
            ExitCode.USAGE, "usage", f"--role {role!r} must be user or assistant: nothing else is indexed"
        )
    where = SessionFilter(
        agent=agent,
        sender=sender,
        project=project_of(project),
        role=role,
        since=since_moment(since, now),
        until=until_moment(until, now),
    )
    found = call.read(lambda store: find(store, query, where, limit=limit, context=context))
    call.answer(found_document(call, query, found), lambda screen: draw_found(screen, call, found))
    return None


async def find(store: Backend, query: str, where: SessionFilter, *, limit: int, context: int) -> Found:
    """Search; `where.agent` may be a name. Raises NotFound for an agent that is not there."""
    if where.agent:
        where = SessionFilter(**{**vars(where), "agent": (await find_agent(store, where.agent)).id})
    begin = perf_counter()
    answer = await store.sessions.search(query, limit, where, before=context, after=context)
    took = perf_counter() - begin
    names = await agent_names(store, (hit.meta.agent for hit in answer.hits))
    return Found(answer, names, took * 1000)


def draw_found(screen: Screen, call: Call, found: Found, *, openings: bool = True) -> None:
    """Every hit with its window, and with `openings` how to open it; then how many, and whether these are all."""
    for place, hit in enumerate(found.answer.hits, 1):
        opening = [_opening(call, hit)] if openings else []
        screen.show(*_heading(place, hit, found.names), _window(screen, hit), *opening, "")
    hits = count(len(found.answer.hits), "session")
    rest = "complete" if found.answer.complete else "not complete (--limit shows more)"
    screen.show(Text(f"{hits}, {rest}, {found.milliseconds:.1f} ms", style="dim"))


def project_of(text: str) -> str:
    """The project that `text` names: a relative path, or one from home, is made whole; any other text stays."""
    path = from_home(text)
    return str(Path(path).resolve()) if path != text or text.startswith(".") else text


def found_document(call: Call, query: str, found: Found) -> Document:
    """As ``--json`` gives it."""
    return {
        "query": query,
        "hits": [hit_document(hit, found.names, _command(call, hit)) for hit in found.answer.hits],
        "complete": found.answer.complete,
        "milliseconds": round(found.milliseconds, 3),
    }


def _heading(place: int, hit: SessionHit, names: dict[str, str]) -> tuple[Text, Text]:
    meta = hit.meta
    facts = (names[meta.agent], meta.project, minute(meta.updated_at), f"score {hit.score:.2f}")
    return (
        Text(f"{place}. {one_line(meta.title) or '(no title)'}", style="bold"),
        Text("   " + " · ".join(one_line(fact) for fact in facts if fact), style="dim"),
    )


def _window(screen: Screen, hit: SessionHit) -> Table:
    grid = Table.grid(padding=(0, 1))
    for _ in range(3):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for seen in hit.window:
        best = seen.position == hit.position
        words = _said(screen, seen, _BEST if best else _AROUND)
        grid.add_row(
            "  >" if best else "",
            str(seen.position),
            one_line(seen.entry.role),
            words,
            style="" if best else "dim",
        )
    return grid


def _said(screen: Screen, seen: Excerpt, most: int) -> Text:
    words = excerpt(seen.text, seen.spans, most, terminal=screen.terminal)
    if words.plain.strip():
        return words
    calls = one_line(", ".join(call.name for call in seen.entry.tool_calls))
    return Text(f"({calls or ('tool result' if seen.entry.tool_results else 'no text')})")


def _opening(call: Call, hit: SessionHit) -> Text:
    return Text(f"   {_command(call, hit)}", style="cyan")


def _command(call: Call, hit: SessionHit) -> str:
    place = () if hit.position is None else ("--at", str(hit.position))
    return call.again("sessions", "show", hit.meta.handle, *place)
