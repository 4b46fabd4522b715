"""`crabstore stats`, `verify`, `compact`, `reindex`: what a store holds, whether it is sound, and its upkeep."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ..answers.failures import ExitCode
from ..answers.upkeep import file_behind, rebuild, rewrite
from ..store.backend import Backend
from ..store.records import utc_now
from .call import Call
from .console import Column, Screen, count, minute, size
from .measuring import Measures, measure
from .progress import progress
from .verdict import Verdict, write_verdict

__all__ = ["compact", "reindex", "stats", "verify"]

_PROBLEMS = 20
"""Damaged places listed on a screen."""


def stats(call: Call) -> ExitCode | None:
    """Show what the store holds, and where its bytes are."""
    found = call.read(measure)
    call.answer(found.document(), lambda screen: _draw_stats(screen, found))
    return None


def verify(call: Call) -> ExitCode | None:
    """Read every byte of the store and check it; what was found is kept for `stats`."""
    verdict = call.read(_verify)
    kept = _keep(verdict, call)
    document = {"verified": verdict.document() | {"kept": kept}}
    call.answer(document, lambda screen: _draw_verdict(screen, verdict))
    if not verdict.ok:
        return ExitCode.DAMAGED
    return ExitCode.TORN if verdict.torn else None


def compact(
    call: Call,
    erase: Annotated[
        bool,
        typer.Option(
            "--erase", help="Also remove torn tails and damaged originals that were saved beside it."
        ),
    ] = False,
) -> ExitCode | None:
    """Rewrite the file without its dead bytes."""
    done = call.write(lambda store: rewrite(store, erase=erase))
    words = [f"{size(done.before)} before, {size(done.after)} after: {size(done.before - done.after)} freed"]
    words += [f"removed {path}" for path in done.removed]
    call.answer(done.document(), lambda screen: screen.show("\n".join(words)))
    return None


def reindex(call: Call) -> ExitCode | None:
    """Build every index anew from what is stored."""
    sessions = call.write(lambda store: _reindex(store, call))
    document = {"reindexed": {"sessions": sessions}}
    call.answer(document, lambda screen: screen.show(f"indexes of {count(sessions, 'session')} built anew"))
    return None


async def _verify(store: Backend) -> Verdict:
    db = file_behind(store).db
    found = await asyncio.to_thread(db.verify)
    return Verdict.of(found, db.path, at=utc_now())


def _keep(verdict: Verdict, call: Call) -> bool:
    """Keep the verdict for `stats`, where this user may write beside the store."""
    try:
        write_verdict(verdict)
    except OSError as error:
        call.note(f"the outcome could not be kept for `crabstore stats`: {error.strerror}")
        return False
    return True


async def _reindex(store: Backend, call: Call) -> int:
    done = 0
    with progress("reindexing", call, unit="sessions") as advance:

        def tell(sessions: int, total: int) -> None:
            nonlocal done
            done = sessions
            advance(sessions, total)

        await rebuild(store, tell)
    return done


def _draw_stats(screen: Screen, found: Measures) -> None:
    screen.facts(found.facts())
    if found.columns:
        screen.show("")
        columns = [Column("kind"), Column("keys", right=True), Column("bytes", right=True)]
        rows = [(kind, f"{keys:,}", size(held)) for kind, (keys, held) in found.columns.items()]
        screen.table(columns, rows)


def _draw_verdict(screen: Screen, verdict: Verdict) -> None:
    if verdict.ok:
        held = f"{count(verdict.records, 'record')} in {count(verdict.frames, 'commit')}"
        screen.show(f"sound: {held}, {size(verdict.size)}, read on {minute(verdict.at)} UTC")
        if verdict.torn:
            screen.show(f"behind that: {size(verdict.torn)} of a torn tail, which the next writer cuts off")
        return
    screen.show(f"damaged: {count(len(verdict.problems), 'place')} in {size(verdict.size)}")
    places = [f"at byte {offset}: {problem}" for offset, problem in verdict.problems]
    rest = len(places) - _PROBLEMS
    screen.indented(places[:_PROBLEMS] + ([f"and {rest:,} more"] if rest > 0 else []))
