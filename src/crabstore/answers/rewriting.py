"""Rewriting a store's file without its dead bytes, for whoever holds the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from ..backends.crabdb import CrabBackend
from .documents import Document

__all__ = ["Rewritten", "rewrite"]


@dataclass(frozen=True)
class Rewritten:
    """What it did; sizes in bytes."""

    before: int
    after: int
    removed: tuple[Path, ...] = ()
    """Torn tails and damaged originals that had been saved beside the store."""

    def document(self) -> Document:
        """As JSON gives it."""
        numbers = {"before": self.before, "after": self.after, "freed": self.before - self.after}
        return {"compacted": {**numbers, "removed": [str(path) for path in self.removed]}}


async def rewrite(store: CrabBackend, *, erase: bool) -> Rewritten:
    """Compact the file, and with `erase` remove what was saved beside it. Raises what `CrabDB.compact` raises."""
    before = store.db.stats().size
    removed: tuple[Path, ...] = ()
    if erase:
        removed = await asyncio.to_thread(store.db.erase)
    else:
        await asyncio.to_thread(store.db.compact)
    return Rewritten(before, store.db.stats().size, removed)
