"""A session's history as a model reads it, and its compaction: the model summarises, the store keeps it."""

from __future__ import annotations

from ..store.agents import AgentConfig
from ..store.backend import Backend
from ..store.errors import NotFound
from ..store.messages import HistoryEntry
from ..store.session_records import Loaded
from .clock import Clock
from .compaction import INSTRUCTION, preamble, question
from .errors import IncompleteReply
from .events import RunEvent
from .finishing import finished
from .providers.protocol import Request
from .providers.routing import Providers
from .retries import Asking, Retries

__all__ = ["Histories"]


class Histories:
    """The histories of a store's sessions, as runs need them."""

    def __init__(self, store: Backend, providers: Providers, retries: Retries, clock: Clock) -> None:
        self._store = store
        self._providers = providers
        self._retries = retries
        self._clock = clock

    async def load(self, handle: str) -> tuple[Loaded, list[HistoryEntry]]:
        """The session, and its history: what was compacted away opens it as a summary. Raises NotFound."""
        loaded = await self._store.sessions.load(handle)
        if loaded is None:
            raise NotFound("session", handle)
        summary = await self._summary(loaded)
        return loaded, [preamble(summary), *loaded.entries] if summary else loaded.entries

    async def compact(self, handle: str, agent: AgentConfig) -> str | None:
        """Let the agent's model summarise the context; the archive's name, None if there is nothing new.

        Raises NotFound, ProviderError, or IncompleteReply, and then nothing was stored.
        """
        loaded, _ = await self.load(handle)
        if not loaded.entries:
            return None
        told = question(await self._summary(loaded), loaded.entries, agent.compact_tool_max_len)
        summary = await self._summarised(agent, handle, told)
        return await finished(self._archive(handle, summary, loaded.meta.message_count))

    async def _summary(self, loaded: Loaded) -> str:
        archive = await self._store.memory.get(loaded.archive) if loaded.archive else None
        return archive.content if archive else ""

    async def _summarised(self, agent: AgentConfig, handle: str, told: str) -> str:
        provider, model = self._providers.serving(agent.model)
        request = Request(
            model=model,
            entries=(HistoryEntry.user(told, format=provider.format),),
            system=INSTRUCTION,
            max_tokens=agent.max_tokens,
            session=handle,
        )
        reply = await Asking(provider, _ignore, self._retries, self._clock).reply(request)
        text = HistoryEntry(message=reply.message, format=provider.format).text.strip()
        if reply.stop_reason not in ("end_turn", "stop_sequence") or not text:
            raise IncompleteReply(reply.stop_reason)
        return text

    async def _archive(self, handle: str, summary: str, boundary: int) -> str:
        name = await self._store.sessions.append_compact(handle, summary, boundary=boundary)
        await self._store.sync()
        return name


def _ignore(event: RunEvent) -> None:
    """Nobody follows a summary while it is written."""
