"""What follows from an entry, worked out once: a run renders its history anew for every step.

It stands beside the entry, is never stored, and goes with it when the run is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...store.messages import HistoryEntry

__all__ = ["once"]

T = TypeVar("T")


def once(entry: HistoryEntry, make: Callable[[HistoryEntry], T]) -> T:
    """`make(entry)`, remembered as long as the entry's message is the same object."""
    kept = entry.__dict__.get(make.__qualname__)
    if kept is not None and kept[0] is entry.message:
        remembered: T = kept[1]
        return remembered
    made = make(entry)
    entry.__dict__[make.__qualname__] = (entry.message, made)
    return made
