"""The application: a store, a runtime over it, and what goes on beside; no sockets.

It is configured when it opens and at every reload; a configuration that cannot be used changes nothing and says
why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager

from ..backends.crabdb import CrabBackend
from ..runtime import Clock, Runtime, RuntimeClosed
from ..runtime.harness import standard_harnesses
from ..runtime.providers.routing import Providers
from ..store.messages import HistoryEntry
from ..store.schema import require_keyspace
from .config import BadConfig, Config, load
from .events import ended
from .home import Home
from .metrics import Counts, Histogram
from .providers import Models, build_providers, retries
from .runs import LiveRun, Runs
from .upkeep import Durability, Turnstile, watch_lag

__all__ = ["Daemon"]

_log = logging.getLogger("crabstore.daemon")


class Daemon:
    """What serves a home. Made by `opened`."""

    def __init__(
        self, home: Home, config: Config, store: CrabBackend, environ: Mapping[str, str], clock: Clock
    ) -> None:
        self.home = home
        self.config = config
        self.store = store
        self.clock = clock
        self.began = clock.monotonic()
        self.config_error = ""
        """Why the configuration that stands in the file is not the one in force, "" if it is."""
        self.closing = False
        """Whether it takes no further runs."""
        self.runs = Runs()
        self.turnstile = Turnstile()
        self.lag = Histogram(
            "crabstore_loop_lag_seconds", "How much later than asked the event loop came back."
        )
        self.ended = Counts("crabstore_runs_total", "Runs that ended, by how.", "stop_reason")
        self.requests = Counts("crabstore_requests_total", "Requests, by status.", "status")
        self.durability = Durability(store, config.durability, clock)
        self._environ = environ
        self._models = Models(config)
        self._hurry = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.runtime = Runtime(
            store,
            build_providers(config, home, environ),
            [self._models, *standard_harnesses(store, clock=clock, others=[Models.name])],
            retries=retries(config),
            clock=clock,
        )

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, home: Home, environ: Mapping[str, str], *, clock: Clock | None = None
    ) -> AsyncIterator[Daemon]:
        """The application of `home`, whose store it holds until it ends, which is durable then.

        Raises BadConfig, Refusal, and what opening a store raises: `crabdb.Locked` if another process holds it.
        """
        config = load(home.config)
        home.make()
        store = await CrabBackend.open(home.store)
        try:
            await require_keyspace(store)
            await store.text.conform()  # it seals what other processes hand in from the first commit on
            daemon = cls(home, config, store, environ, clock or Clock())
            daemon._begin()
            try:
                yield daemon
            finally:
                await daemon._end()
        finally:
            await store.close()

    async def start(
        self, handle: str, message: str | HistoryEntry, *, sender: str = "", wait: bool = True
    ) -> LiveRun:
        """Start a run, as `Runtime.start` does. Raises RuntimeClosed while the daemon is shutting down."""
        if self.closing:
            raise RuntimeClosed
        run = await self.runtime.start(handle, message, sender=sender, wait=wait)
        self._beside(self._count(live := self.runs.add(run)))
        return live

    def reload(self) -> None:
        """Read the configuration again; runs that are going on keep what they began with. Raises BadConfig."""
        try:
            config = load(self.home.config)
            former = self.runtime.use(
                build_providers(config, self.home, self._environ), retries=retries(config)
            )
        except BadConfig as error:
            self.config_error = str(error)
            _log.error("the configuration in force is kept: %s", error)
            raise
        self.config, self.config_error = config, ""
        self._models.config, self.durability.config = config, config.durability
        self._beside(self._retire(former))
        _log.info("the configuration was read again")

    def hurry(self) -> None:
        """Do not wait any longer for runs to end by themselves."""
        self._hurry.set()

    async def drain(self) -> None:
        """Take no further runs, let those that go on end, and after the grace time cancel them."""
        self.closing = True
        waits = [asyncio.create_task(self.runtime.drain()), asyncio.create_task(_until(self._hurry))]
        await asyncio.wait(waits, timeout=self.config.server.grace, return_when=asyncio.FIRST_COMPLETED)
        await _cancelled(waits)
        await self.runtime.close()

    def _begin(self) -> None:
        self._beside(self.durability.keep())
        self._beside(watch_lag(self.lag, self.clock))

    async def _end(self) -> None:
        await self.drain()
        await _cancelled(list(self._tasks))
        await self.store.checkpoint()

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _count(self, live: LiveRun) -> None:
        _, data = await ended(live.run)
        self.ended.add(str(data.get("stop_reason", "error")))

    async def _retire(self, former: Providers) -> None:
        """Close providers that nothing new is asked of, when nothing is asked of them any more."""
        try:
            await self.runtime.drain()
        finally:
            await former.close()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
