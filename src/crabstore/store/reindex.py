"""Reindex: every index of a store built anew from its content. Nothing that a caller stored is touched."""

from __future__ import annotations

from .backend import Backend
from .session_index import Progress

__all__ = ["reindex"]


async def reindex(store: Backend, progress: Progress | None = None) -> None:
    """Rebuild the name, session, recent, source and entry-id indexes, the skill summaries and the text index.

    Until it ends well, searching raises SchemaMismatch instead of answering from half an index. How far
    source files were read is no content: the next import reads them again, and adds nothing twice.
    `progress` is called after every session.
    """
    async with store.text.rebuilding():
        await store.agents.rebuild()
        await store.skills.rebuild()
        await store.memory.reindex()
        await store.sessions.rebuild(progress)
