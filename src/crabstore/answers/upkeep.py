"""What concerns a store as a whole: rewriting its file without dead bytes, and building its indexes anew.

Whoever holds the store does it; a store that another process holds passes it on.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import dataclass

from ..backends.crabdb import CrabBackend
from ..store.backend import Backend
from ..store.reindex import reindex
from ..store.session_index import Progress
from .documents import Document
from .failures import ExitCode, Refusal

__all__ = ["HeldStore", "Rewritten", "file_behind", "rebuild", "rewrite"]


@dataclass(frozen=True)
class Rewritten:
    """What rewriting a file did; sizes in bytes."""

    before: int
    after: int
    removed: tuple[str, ...] = ()
    """Torn tails and damaged originals that had been saved beside the store: their paths."""

    def document(self) -> Document:
        """As JSON gives it."""
        numbers = {"before": self.before, "after": self.after, "freed": self.before - self.after}
        return {"compacted": {**numbers, "removed": list(self.removed)}}


class HeldStore(Backend):
    """A store that another process holds for writing."""

    @abstractmethod
    async def rewrite(self, *, erase: bool) -> Rewritten:
        """As the function `rewrite`, done by whoever holds the store."""

    @abstractmethod
    async def rebuild(self, progress: Progress) -> None:
        """As the function `rebuild`, done by whoever holds the store."""


async def rewrite(store: Backend, *, erase: bool) -> Rewritten:
    """Rewrite the file without its dead bytes, and with `erase` remove what was saved beside it.

    Raises Refusal for a store that is no file, and what `CrabBackend.erase` raises.
    """
    if isinstance(store, HeldStore):
        return await store.rewrite(erase=erase)
    file = file_behind(store)
    before = file.db.stats().size
    removed = await file.erase() if erase else ()
    if not erase:
        await asyncio.to_thread(file.db.compact)
    return Rewritten(before, file.db.stats().size, tuple(map(str, removed)))


async def rebuild(store: Backend, progress: Progress) -> None:
    """Build every index anew; `progress` is called after every session."""
    if isinstance(store, HeldStore):
        await store.rebuild(progress)
    else:
        await reindex(store, progress)


def file_behind(store: Backend) -> CrabBackend:
    """`store`, if it is one in a file. Raises Refusal."""
    if not isinstance(store, CrabBackend):
        problem = "only a store in a file (crabdb) can be verified and compacted"
        raise Refusal(ExitCode.USAGE, "usage", problem)
    return store
