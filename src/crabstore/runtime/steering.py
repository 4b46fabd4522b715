"""The steering channel of a live session: what was said while a run goes on, until the model hears it.

A channel cannot be persisted, so it is per process, and the only thing of a session that the runtime holds.
"""

from __future__ import annotations

from collections import deque

from ..store.messages import HistoryEntry

__all__ = ["Steering"]


class Steering:
    """Messages on their way to the run that is going on; open only while that run will look again."""

    def __init__(self) -> None:
        self._waiting: deque[HistoryEntry] = deque()
        self.open = False

    def say(self, entry: HistoryEntry) -> None:
        """Put a message in; the run takes it before the model's next step."""
        self._waiting.append(entry)

    def first(self) -> HistoryEntry | None:
        """The message that has waited longest, which stays until it is dropped."""
        return self._waiting[0] if self._waiting else None

    def drop(self) -> None:
        """The first message has been stored."""
        self._waiting.popleft()

    def drain(self) -> list[HistoryEntry]:
        """Everything that waits, taken out."""
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def closed_for_now(self) -> bool:
        """The run would end: close the channel, unless something waits. Whether it is closed."""
        self.open = bool(self._waiting)
        return not self.open
