"""Stores what happens in a run and then tells it, in this order always.

A write that was begun is finished, also when the run is cancelled: no half state.
"""

from __future__ import annotations

from collections.abc import Callable

from ..store.backend import Backend
from ..store.messages import HistoryEntry
from ..store.records import evolve
from ..store.session_records import EventLine
from .clock import Clock
from .events import MessageStored, RunEvent
from .finishing import finished
from .harness import Context, Scope

__all__ = ["Recorder"]


class Recorder:
    """The history and the trace of one run's session, as the run writes them."""

    def __init__(
        self,
        store: Backend,
        scope: Scope,
        context: Context,
        tell: Callable[[RunEvent], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._scope = scope
        self._context = context
        self._handle = context.session.handle
        self._clock = clock
        self.tell = tell
        """Tells the caller what is not stored: deltas, retries."""

    def now(self) -> str:
        return self._clock.now()

    async def message(self, entry: HistoryEntry, stored: Callable[[], object] | None = None) -> HistoryEntry:
        """Append `entry` to the history, and call `stored` once it is there; the entry as it was stored."""
        dated = entry if entry.ts else evolve(entry, ts=self.now())
        await finished(self._append(dated, stored))
        await self._scope.on_event(self._context, MessageStored(dated))
        return dated

    async def event(self, line: EventLine) -> None:
        """Append `line` to the trace."""
        await finished(self._trace(line))
        await self._scope.on_event(self._context, line)

    async def sync(self) -> None:
        """Make what was stored survive a power loss."""
        await finished(self._store.sync())

    async def _append(self, entry: HistoryEntry, stored: Callable[[], object] | None) -> None:
        await self._store.sessions.append_messages(self._handle, [entry])
        if stored is not None:
            stored()
        self.tell(MessageStored(entry))

    async def _trace(self, line: EventLine) -> None:
        await self._store.sessions.append_events(self._handle, [line])
        self.tell(line)
