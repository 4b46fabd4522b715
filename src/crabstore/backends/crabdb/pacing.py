"""What waits for the disk or takes long, beside an event loop: one fsync for all who wait, long work step by step.

Knows no keys and no values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from crabdb import Step

__all__ = ["SharedSync", "take_steps"]


class SharedSync:
    """One call in one thread for all tasks that wait for what they have written."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return when a call that began after this one has returned. Raises what it raises, to all who wait."""
        if self._next is None:
            # The call that is running may have begun before the caller's last write.
            self._next = asyncio.create_task(self._run_after(self._running))
        await asyncio.shield(self._next)

    async def _run_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        await asyncio.to_thread(self._sync)


async def take_steps(steps: Iterator[Step]) -> None:
    """Take all steps, those that wait for the medium in a thread, and let other tasks run after each. Raises what
    a step raises.
    """
    upcoming: Step | None = Step.BRIEF
    while upcoming is not None:
        if upcoming is Step.WAITING:
            upcoming = await asyncio.to_thread(next, steps, None)
        else:
            upcoming = next(steps, None)
            await asyncio.sleep(0)
