"""Runtime: agents that run over a store. It holds nothing that the store can tell.

An agent is read for the run that needs it, built, resolved, and dropped. What is kept per process is what cannot
be persisted: for each session that has a run, who waits for it and its steering channel; both go with the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from ..store.agents import AgentConfig
from ..store.backend import Backend
from ..store.errors import InvalidArgument, NotFound
from ..store.messages import HistoryEntry, Text
from ..store.records import checked
from ..store.session_records import SessionMeta
from .clock import Clock
from .errors import Busy, IncompleteReply, NotRunning, RuntimeClosed
from .events import Compacted, RunEvent
from .harness import Context, Harness, Hooks
from .history import Histories
from .loop import Loop
from .providers.protocol import Provider
from .providers.routing import Providers
from .recorder import Recorder
from .retries import Asking, Retries
from .run import Job, Run, RunResult
from .steering import Steering

__all__ = ["LiveSession", "Runtime"]

T = TypeVar("T")

_log = logging.getLogger("crabstore.runtime")


@dataclass
class _Live:
    """A session that has work: the turn that its jobs take in order, and its steering channel."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    steering: Steering = field(default_factory=Steering)
    jobs: list[Job[Any]] = field(default_factory=list)
    """The one that is going on, then those that wait."""


@dataclass(frozen=True)
class LiveSession:
    """A session that has work, as a listing shows it."""

    handle: str
    agent_id: str
    """Whose run is going on, "" while nothing has begun."""
    waiting: int
    """Jobs behind the one that is going on."""


class Runtime:
    """Runs agents over `store`.

    `providers` is one provider, or several by name (see `Providers`); `harnesses` take part in their order. The
    runtime belongs to the event loop of its store. Close it before the store.
    """

    def __init__(
        self,
        store: Backend,
        providers: Provider | Mapping[str, Provider],
        harnesses: Iterable[Harness] = (),
        *,
        retries: Retries | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self._providers = Providers(providers)
        self._hooks = Hooks(harnesses)
        self._retries = retries or Retries()
        self._clock = clock or Clock()
        self._histories = Histories(store, self._providers, self._retries, self._clock)
        self._live: dict[str, _Live] = {}
        self._closed = False

    # -- running --

    async def start(
        self,
        handle: str,
        message: str | HistoryEntry,
        *,
        sender: str = "",
        wait: bool = True,
        compact: bool = False,
    ) -> Run:
        """Answer `message` in the session; it is stored when its turn comes, behind the runs before it.

        With `compact`, a context that has become too long for the model is compacted, once, instead of failing
        the run with ContextTooLong. Raises NotFound for a session that is not there, and Busy, with `wait=False`,
        for one that has a run. What goes wrong later the run raises: NotFound (the agent), UnknownModel,
        ProviderError, the store's errors.
        """
        entry = _said(message, sender)
        await self._require_session(handle)
        run = Run(handle)
        run.untaken.append(entry)
        task = self._begin(run, lambda live: self._run(live, run, entry, compact=compact), wait=wait)
        task.add_done_callback(lambda _: run.feed.close())
        return run

    async def steer(self, handle: str, message: str | HistoryEntry, *, sender: str = "") -> None:
        """Say something to the run that is going on: it is stored, and the model hears it, before its next step.

        Raises NotRunning if no run of the session will look again.
        """
        live = self._live.get(handle)
        if live is None or not live.steering.open:
            raise NotRunning(handle)
        live.steering.say(_said(message, sender))

    async def cancel(self, handle: str) -> bool:
        """Stop what the session works on, at its next await, and wait for that; whether there was something.

        What waits behind it goes on. The history stays valid; words that had arrived are kept, marked "partial".
        """
        live = self._live.get(handle)
        if live is None:
            return False
        await live.jobs[0].cancel()
        return True

    async def compact(self, handle: str, *, wait: bool = True) -> str | None:
        """Let the session's model summarise what is in its context; the name of the archive that holds it.

        The originals stay addressable and searchable. None if nothing was said since the last compaction. Takes
        its turn like a run, and is cancelled like one. Raises NotFound, Busy, ProviderError, or IncompleteReply,
        and then nothing was stored.
        """
        await self._require_session(handle)
        job: Job[str | None] = Job(handle)
        task = self._begin(job, lambda _: self._compact(job), wait=wait)
        await asyncio.wait([task])
        if task.cancelled():
            raise IncompleteReply("cancelled")
        return task.result()

    async def delete_agent(self, agent_id: str) -> bool:
        """Delete the agent, stop what it works on, and let the harnesses forget it; whether it was there."""
        if not await self.store.agents.delete(agent_id):
            return False
        for job in [job for live in self._live.values() for job in live.jobs if job.agent_id == agent_id]:
            await job.cancel()
        await self._hooks.forget(agent_id, _ignore)
        return True

    # -- the whole --

    def live(self) -> list[LiveSession]:
        """The sessions that have work, in the order in which they got it."""
        return [
            LiveSession(handle, live.jobs[0].agent_id, len(live.jobs) - 1)
            for handle, live in self._live.items()
        ]

    async def drain(self) -> None:
        """Wait until no session has work."""
        while self._live:
            await next(iter(self._live.values())).jobs[0].wait()
            await asyncio.sleep(0)

    def use(
        self, providers: Provider | Mapping[str, Provider], *, retries: Retries | None = None
    ) -> Providers:
        """Ask these providers in all that begins from now on.

        Runs that are going on keep the former ones, which are returned: close them when those have ended.
        """
        former, self._providers = self._providers, Providers(providers)
        self._retries = retries or self._retries
        self._histories = Histories(self.store, self._providers, self._retries, self._clock)
        return former

    async def close(self) -> None:
        """Cancel everything, close harnesses and providers; the store stays open. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for job in [job for live in self._live.values() for job in reversed(live.jobs)]:
            await job.cancel()
        await self._hooks.close(_ignore)
        await self._providers.close()

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    # -- turns --

    def _begin(
        self, job: Job[T], work: Callable[[_Live], Coroutine[Any, Any, T]], *, wait: bool
    ) -> asyncio.Task[T]:
        """Queue `work` on the session of `job`. Nothing is awaited here: two callers cannot both find it idle."""
        if self._closed:
            raise RuntimeClosed
        if not wait and job.handle in self._live:
            raise Busy(job.handle)
        live = self._live.setdefault(job.handle, _Live())
        live.jobs.append(job)
        task = job.begin(_in_turn(live, work))
        task.add_done_callback(lambda done: self._ended(live, job, done))
        return task

    def _ended(self, live: _Live, job: Job[T], task: asyncio.Task[T]) -> None:
        live.jobs.remove(job)
        if not live.jobs:
            del self._live[job.handle]
        if not any(isinstance(later, Run) for later in live.jobs):
            job.untaken += live.steering.drain()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("the work on session %s failed: %s", job.handle, error)

    async def _require_session(self, handle: str) -> SessionMeta:
        meta = await self.store.sessions.meta(handle)
        if meta is None:
            raise NotFound("session", handle)
        return meta

    # -- a run --

    async def _run(self, live: _Live, run: Run, entry: HistoryEntry, *, compact: bool) -> RunResult:
        loaded, history = await self._histories.load(run.handle)
        stored = await self._agent(run, loaded.meta)
        async with self._hooks.working(stored, run.feed.put) as scope:
            provider, model = self._providers.serving(scope.agent.model)
            context = Context(scope.agent, loaded.meta, entry.sender)
            loop = Loop(
                context=context,
                scope=scope,
                provider=provider,
                model=model,
                history=history,
                steering=live.steering,
                recorder=Recorder(self.store, scope, context, run.feed.put, self._clock),
                asking=Asking(provider, run.feed.put, self._retries, self._clock),
                clock=self._clock,
                compact=partial(self._make_room, run, scope.agent) if compact else None,
            )
            live.steering.open = True
            try:
                return await loop.run(entry, run.untaken.clear)
            finally:
                live.steering.open = False

    async def _make_room(self, run: Run, agent: AgentConfig) -> list[HistoryEntry]:
        """Compact the session in the middle of a run; the history that it then has."""
        if (archive := await self._histories.compact(run.handle, agent)) is not None:
            run.feed.put(Compacted(archive))
        _, history = await self._histories.load(run.handle)
        return history

    async def _agent(self, job: Job[T], meta: SessionMeta) -> AgentConfig:
        job.agent_id = meta.agent  # before it is read: an agent deleted meanwhile finds this job and ends it
        agent = await self.store.agents.get(meta.agent)
        if agent is None:
            raise NotFound("agent", meta.agent)
        return agent

    async def _compact(self, job: Job[str | None]) -> str | None:
        meta = await self._require_session(job.handle)
        agent = await self._hooks.build(await self._agent(job, meta), _ignore)
        return await self._histories.compact(job.handle, agent)


async def _in_turn(live: _Live, work: Callable[[_Live], Coroutine[Any, Any, T]]) -> T:
    async with live.turn:
        return await work(live)


def _said(message: str | HistoryEntry, sender: str) -> HistoryEntry:
    """A user's message as an entry. Raises InvalidArgument for one that says nothing, or that none can store."""
    entry = HistoryEntry.user(message) if isinstance(message, str) else message
    if not isinstance(entry, HistoryEntry) or entry.role != "user" or _is_blank(entry):
        raise InvalidArgument("message", message, "must be text, or a user's entry, that is not blank")
    if entry.auto_injected:
        raise InvalidArgument("message", message, "must not be one that is never stored")
    checked(entry, HistoryEntry)
    entry.sender = sender or entry.sender
    return entry


def _is_blank(entry: HistoryEntry) -> bool:
    return not any(block.text.strip() if isinstance(block, Text) else block for block in entry.blocks)


def _ignore(event: RunEvent) -> None:
    """Nobody listens; a failed harness is logged all the same."""
