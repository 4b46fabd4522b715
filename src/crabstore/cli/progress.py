"""A progress bar on a terminal, and nothing at all in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .call import Call

__all__ = ["Advance", "progress"]

Advance = Callable[[int, int | None], None]
"""Told what is done, and of how much (None: not known)."""


@contextmanager
def progress(what: str, call: Call, *, unit: str) -> Iterator[Advance]:
    """Show how far `what` is, on stderr, while it lasts."""
    shown = sys.stderr.isatty() and not call.json
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=not shown,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
