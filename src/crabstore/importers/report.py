"""What an import did: by file, and what was skipped, where and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from .events import Problem

__all__ = ["FileReport", "Report", "Status"]

Status: TypeAlias = Literal["imported", "unchanged", "empty", "refused", "unreadable"]

_KEPT = 100
"""Problems of one file that are named; all are counted."""


class FileReport(msgspec.Struct):
    """One file. Counts are of entries (messages) unless they say otherwise."""

    path: str
    status: Status = "imported"
    tool: str = ""
    bytes: int = 0
    sessions: int = 0
    """Sessions that the file holds."""
    new_sessions: int = 0
    forgotten: int = 0
    """Sessions left out since somebody asked to forget them."""
    added: int = 0
    replaced: int = 0
    """Entries that were there and have grown since."""
    skipped: int = 0
    """Entries that were there already, or that another session of their lineage holds."""
    problems: list[Problem] = []
    """The first hundred of what could not be read, and of what was read in spite of something."""
    lost: int = 0
    """Lines, messages or sessions that could not be read."""
    notes: int = 0
    """Oddities by which nothing was lost."""

    def add(self, problem: Problem) -> None:
        """Count a problem of this file, and keep it while there are few."""
        if problem.note:
            self.notes += 1
        else:
            self.lost += 1
        if len(self.problems) < _KEPT:
            self.problems.append(problem)

    def failed(self, status: Status, reason: str) -> None:
        """The file, or the rest of it, could not be read."""
        self.status = status
        self.add(Problem(reason, note=status == "empty"))

    @property
    def ok(self) -> bool:
        """Whether everything in the file that is meant for import was imported."""
        return self.lost == 0


class Report(msgspec.Struct):
    """A whole import."""

    files: list[FileReport] = []

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return all(file.ok for file in self.files)

    @property
    def problems(self) -> Iterable[tuple[str, Problem]]:
        """Path and problem, in the order of the files."""
        return ((file.path, problem) for file in self.files for problem in file.problems)

    def total(
        self, count: Literal["bytes", "sessions", "new_sessions", "added", "replaced", "skipped", "lost"]
    ) -> int:
        """The sum of one count over all files."""
        return sum(getattr(file, count) for file in self.files)

    def with_status(self, status: Status) -> int:
        """How many files ended so."""
        return sum(file.status == status for file in self.files)
