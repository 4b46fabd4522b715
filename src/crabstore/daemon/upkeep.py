"""What the daemon does by itself, beside what it is asked: durability points, and keeping its event loop fair."""

from __future__ import annotations

import asyncio
import logging

from crabdb import CrabDBError

from ..backends.crabdb import CrabBackend
from ..runtime import Clock
from .config import DurabilityConfig
from .metrics import Histogram

__all__ = ["Durability", "Turnstile", "watch_lag"]

_LAG_EVERY = 0.02
"""Seconds between looks at the loop: a block is seen where it lasts longer than a client would notice."""

_log = logging.getLogger("crabstore.daemon")


class Durability:
    """Takes the store's durability points: an fsync while something is not yet on the medium, and now and then a
    checkpoint, which the store skips where it is not worth it.
    """

    def __init__(self, store: CrabBackend, config: DurabilityConfig, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.config = config
        """Replaced when the configuration is read again."""
        self._checked = 0
        """Bytes of the file when a checkpoint was last asked for."""

    async def keep(self) -> None:
        """Take durability points until cancelled. A failed medium is logged, and told to whoever writes next."""
        due = self._clock.monotonic() + self.config.checkpoint
        while True:
            await self._clock.sleep(self.config.sync)
            try:
                await self.sync()
                if self._clock.monotonic() >= due:
                    due = self._clock.monotonic() + self.config.checkpoint
                    await self._checkpoint()
            except (CrabDBError, OSError) as error:
                _log.error("the store could not be made durable: %s", error)

    async def sync(self) -> None:
        """Have everything on the medium, unless it is."""
        stats = self._store.db.stats()
        if stats.durable < stats.size:
            await self._store.sync()

    async def _checkpoint(self) -> None:
        size = self._store.db.stats().size
        if size != self._checked:
            await self._store.checkpoint()
            self._checked = self._store.db.stats().size


class Turnstile:
    """Lets one request begin a turn of the event loop. Most are answered without waiting for anything: of a crowd
    that came at once, the last would otherwise hold up every run until the first of them had been answered.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def passed(self) -> None:
        """Return when this request may begin; in the order in which they came."""
        async with self._turn:
            await asyncio.sleep(0)


async def watch_lag(lag: Histogram, clock: Clock) -> None:
    """Note again and again how much later than asked the event loop comes back, until cancelled."""
    while True:
        begin = clock.monotonic()
        await clock.sleep(_LAG_EVERY)
        lag.observe(max(0.0, clock.monotonic() - begin - _LAG_EVERY))
        await asyncio.sleep(0)
