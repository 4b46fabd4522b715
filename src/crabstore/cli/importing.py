"""`crabstore import`: transcripts of other programs into the store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ..answers.failures import ExitCode, Refusal
from ..importers import FileReport, Place, Report, find, ingest, places
from ..store.backend import Backend
from .call import Call, home
from .console import Column, Screen, count, one_line
from .progress import progress
from .summary import HEADS, cells, news, place_document, placed, report_document

__all__ = ["draw_report", "import_paths", "import_transcripts"]

_LISTED = 20
"""What was left out, as far as a screen lists it."""


@dataclass
class _Import:
    """An import as far as it got."""

    places: Sequence[Place] = ()
    report: Report = field(default_factory=Report)


def import_transcripts(
    call: Call,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Files and folders; without any, the well-known places."),
    ] = None,
) -> ExitCode | None:
    """Import the sessions of Claude Code, Codex, and message files; doing it again adds only what is new."""
    job = _Import(places=() if paths else _well_known())
    wanted = _existing(paths) if paths else [place.path for place in job.places if place.exists]
    if not wanted:
        raise _nothing_there(job.places)
    try:
        call.write(lambda store: import_paths(store, wanted, call, job.report), create=True)
    except KeyboardInterrupt:
        _answer(call, job)
        raise Refusal(
            ExitCode.INTERRUPTED,
            "interrupted",
            "interrupted: what was imported is kept, and running it again continues",
        ) from None
    _answer(call, job)
    return None if job.report.ok else ExitCode.PARTIAL


async def import_paths(store: Backend, paths: Sequence[Path], call: Call, report: Report) -> None:
    """Import what stands at `paths`; each file is in `report` as soon as it was read."""
    total = sum(len(find(path).files) for path in paths)
    with progress("importing", call, unit="files") as advance:

        def tell(file: FileReport) -> None:
            report.files.append(file)
            advance(len(report.files), max(total, len(report.files)))

        await ingest(store, paths, progress=tell)


def draw_report(screen: Screen, report: Report) -> None:
    """A table of sources, and what was left out."""
    columns = [Column("source"), *(Column(head, right=True) for head in HEADS)]
    screen.table(columns, cells(report))
    _draw_problems(screen, report)


def _well_known() -> list[Place]:
    claude, codex = os.environ.get("CLAUDE_CONFIG_DIR"), os.environ.get("CODEX_HOME")
    return places(
        home(),
        claude_config_dir=Path(claude) if claude else None,
        codex_home=Path(codex) if codex else None,
    )


def _existing(paths: Iterable[Path]) -> list[Path]:
    """The paths, all of which are there. Raises Refusal before anything is opened."""
    wanted = list(paths)
    for path in wanted:
        if not path.exists():
            raise Refusal(ExitCode.MISSING, "not-found", f"there is nothing at {path}", path=str(path))
    return wanted


def _nothing_there(looked: Sequence[Place]) -> Refusal:
    where = ", ".join(str(place.path) for place in looked)
    problem = (
        f"no transcripts at the well-known places ({where}): name files or folders, crabstore import PATH"
    )
    return Refusal(
        ExitCode.MISSING, "nothing-to-import", problem, places=[place_document(place) for place in looked]
    )


def _answer(call: Call, job: _Import) -> None:
    call.answer(report_document(job.report, job.places), lambda screen: _draw(screen, call, job))


def _draw(screen: Screen, call: Call, job: _Import) -> None:
    for place in job.places:
        screen.show(one_line(f"{place.tool}: {place.path}: {'found' if place.exists else 'not there'}"))
    if job.places:
        screen.show("")
    draw_report(screen, job.report)
    screen.show("", f"{news(job.report)}; search: {call.again('search', 'WORDS')}")


def _draw_problems(screen: Screen, report: Report) -> None:
    """What was left out; of what is odd and was read all the same only the number."""
    total = report.total("lost")
    if total:
        lost = [placed(path, problem) for path, problem in report.problems if not problem.note][:_LISTED]
        screen.show("", f"left out, {total:,}:")
        screen.indented(lost + ([f"and {total - len(lost):,} more"] if total > len(lost) else []))
    notes = sum(file.notes for file in report.files)
    if notes:
        screen.show("", f"{count(notes, 'oddity')} by which nothing was lost; --json lists them")
