"""What an import did, by source: as a table, and as ``--json`` gives it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..answers.documents import Document
from ..importers import FileReport, Place, Problem, Report
from .console import count, size

__all__ = ["HEADS", "cells", "news", "place_document", "placed", "report_document"]

HEADS = ("files", "sessions", "messages", "known", "left out", "bytes")
"""What the table tells of a source."""


@dataclass
class _Row:
    """The files of one source."""

    files: int = 0
    sessions: int = 0
    new_sessions: int = 0
    added: int = 0
    replaced: int = 0
    known: int = 0
    lost: int = 0
    bytes: int = 0

    def add(self, file: FileReport) -> None:
        """Count one file in."""
        self.files += 1
        self.sessions += file.sessions
        self.new_sessions += file.new_sessions
        self.added += file.added
        self.replaced += file.replaced
        self.known += file.skipped
        self.lost += file.lost
        self.bytes += file.bytes


def cells(report: Report) -> list[tuple[str, ...]]:
    """The table's rows: the source, and what HEADS says."""
    return [(source, *_cells(row)) for source, row in _by_source(report.files).items()]


def news(report: Report) -> str:
    """How much is new, in words."""
    sessions = count(report.total("new_sessions"), "new session")
    return f"{sessions}, {count(report.total('added'), 'new message')}"


def placed(path: str, problem: Problem) -> str:
    """A problem and where it is."""
    line = f":{problem.line}" if problem.line else ""
    return f"{path}{line}: {problem.reason}"


def report_document(report: Report, places: Sequence[Place]) -> Document:
    """As ``--json`` gives it."""
    problems = [_problem_document(path, problem) for path, problem in report.problems]
    return {
        "places": [place_document(place) for place in places],
        "sources": [{"source": source, **vars(row)} for source, row in _by_source(report.files).items()],
        "total": vars(_sum(report.files)),
        "left_out": [problem for problem in problems if not problem["note"]],
        "notes": [problem for problem in problems if problem["note"]],
        "ok": report.ok,
    }


def place_document(place: Place) -> Document:
    """A well-known place, and whether it is there."""
    return {"tool": place.tool, "path": str(place.path), "found": place.exists}


def _cells(row: _Row) -> tuple[str, ...]:
    numbers = (row.files, row.sessions, row.added + row.replaced, row.known, row.lost)
    return (*(f"{number:,}" for number in numbers), size(row.bytes))


def _by_source(files: Iterable[FileReport]) -> dict[str, _Row]:
    """A file that was not opened, or is no transcript, stands under what became of it."""
    rows: dict[str, _Row] = {}
    for file in files:
        rows.setdefault(file.tool or file.status, _Row()).add(file)
    return dict(sorted(rows.items()))


def _sum(files: Iterable[FileReport]) -> _Row:
    total = _Row()
    for file in files:
        total.add(file)
    return total


def _problem_document(path: str, problem: Problem) -> Document:
    return {
        "path": path,
        "line": problem.line,
        "offset": problem.offset,
        "reason": problem.reason,
        "note": problem.note,
    }
