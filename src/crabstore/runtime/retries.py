"""Asking a provider again: which failures, how often, after how long. The waiting itself is the clock's."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import count

from ..store.messages import ToolCall
from .clock import Clock
from .errors import BrokenStream, ProviderError, RateLimited
from .events import Retrying, RunEvent
from .providers.protocol import Provider, Reply, Request, TextDelta
from .wire import clean, storable

__all__ = ["Asking", "Retries"]


@dataclass(frozen=True)
class Retries:
    """How transient failures of a provider are met."""

    attempts: int = 4
    """Requests in all, the first one included; 1 never asks again."""
    first: float = 1.0
    """Seconds before the second request; they double with each further one."""
    longest: float = 60.0
    """Seconds that are ever waited; a provider that wishes for more is not asked again."""
    random: Callable[[], float] = random.random
    """From 0 to 1: half of each wait is left to it, so that many clients do not come back together."""

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        """Seconds until the request is made again after attempt number `attempt` failed; None to give up."""
        if not error.transient or attempt >= self.attempts:
            return None
        if isinstance(error, RateLimited) and error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest else None
        return min(self.longest, self.first * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * self.random())


class Asking:
    """Asks for answers and remembers what has arrived of the one that is on its way."""

    def __init__(
        self, provider: Provider, tell: Callable[[RunEvent], None], retries: Retries, clock: Clock
    ) -> None:
        self._provider = provider
        self._tell = tell
        self._retries = retries
        self._clock = clock
        self._heard: list[str] = []

    @property
    def partial(self) -> str:
        """The text of an answer that did not come to its end."""
        return clean("".join(self._heard))

    async def reply(self, request: Request) -> Reply:
        """The whole answer; its deltas are told. Raises the last ProviderError when it gives up."""
        for attempt in count(1):
            try:
                return await self._attempt(request)
            except ProviderError as error:
                delay = self._retries.delay(attempt, error)
                if delay is None:
                    raise
                self._tell(Retrying(error, attempt, delay))
            await self._clock.sleep(delay)
        raise AssertionError("count() does not end")

    async def _attempt(self, request: Request) -> Reply:
        self._heard.clear()
        async with aclosing(self._provider.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, Reply):
                    self._heard.clear()
                    return _storable(event)
                if isinstance(event, TextDelta):
                    self._heard.append(event.text)
                self._tell(type(event)(clean(event.text)))
        raise BrokenStream(type(self._provider).__name__, "the stream ended without a reply")


def _storable(reply: Reply) -> Reply:
    """The reply, if need be without what no store can hold."""
    message = storable(reply.message)
    if message is reply.message or not isinstance(message, dict):
        return reply
    calls = (ToolCall(clean(call.id), clean(call.name), storable(call.arguments)) for call in reply.calls)
    return replace(reply, message=message, calls=tuple(calls))
