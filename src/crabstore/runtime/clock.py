"""Time as the runtime sees it: one seam, so that tests neither wait nor look at a wall clock."""

from __future__ import annotations

import asyncio
import time

from ..store.records import utc_now

__all__ = ["Clock"]


class Clock:
    """The system's time. A test passes a subclass."""

    def now(self) -> str:
        """The present time, UTC RFC 3339 with six fractional digits."""
        return utc_now()

    def monotonic(self) -> float:
        """Seconds since some moment; only differences mean anything."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        await asyncio.sleep(seconds)
