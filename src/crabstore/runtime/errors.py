"""The errors of the runtime: each says whose fault it is, what to do next, and carries its data.

The store's own errors pass through a run unchanged. A failing harness is no error of the run: it becomes an
error result or a `HarnessFailed` event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "BadScript",
    "BrokenStream",
    "Busy",
    "ContextTooLong",
    "IncompleteReply",
    "NotRunning",
    "ProviderError",
    "ProviderUnavailable",
    "RateLimited",
    "RequestRejected",
    "RunError",
    "RuntimeClosed",
    "SdkMissing",
    "Unauthorized",
    "UnknownModel",
]


class RunError(Exception):
    """Everything that the runtime itself raises."""


class Busy(RunError):
    """The session has a run and the caller did not want to wait; nothing was stored. Wait, steer or cancel it."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"session {handle!r} has a run already: wait for it, steer it or cancel it")
        self.handle = handle


class NotRunning(RunError):
    """There is no run to steer; nothing was stored. Start one."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"session {handle!r} has no run that could still hear this: start one")
        self.handle = handle


class RuntimeClosed(RunError):
    """The runtime was closed; make another one."""

    def __init__(self) -> None:
        super().__init__("this runtime was closed: make another one")


class UnknownModel(RunError, LookupError):
    """No provider serves the agent's model."""

    def __init__(self, model: str, known: Sequence[str]) -> None:
        names = ", ".join(known) or "none"
        super().__init__(
            f"no provider serves the model {model!r}: name it provider/model with one of: {names}"
        )
        self.model = model
        self.known = tuple(known)


class IncompleteReply(RunError):
    """The model stopped before its summary was whole; nothing was stored."""

    def __init__(self, stop_reason: str) -> None:
        super().__init__(f"the model gave no whole summary (it stopped with {stop_reason!r}): try again")
        self.stop_reason = stop_reason


class BadScript(RunError, ValueError):
    """A file of scripted turns cannot be read, or has no further turn for this session."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"the script {name}: {why}")
        self.name = name
        self.why = why


class SdkMissing(RunError, ImportError):
    """A library that a provider or a harness needs is not installed; `extra` is the name of what brings it."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"{extra} needs a library that is not installed: pip install 'crabstore[{extra}]'")
        self.extra = extra


class ProviderError(RunError):
    """A provider did not answer a request; `status` is its HTTP status, None if there was none."""

    transient: ClassVar[bool] = False
    """Whether the same request may succeed later."""

    def __init__(self, provider: str, why: str, status: int | None = None) -> None:
        shown = f" ({status})" if status else ""
        super().__init__(f"{provider}{shown}: {why}")
        self.provider = provider
        self.why = why
        self.status = status


class RequestRejected(ProviderError):
    """The provider understood the request and refuses it: its settings, or the model's name, must change."""


class Unauthorized(RequestRejected):
    """The key is missing, wrong, or may not do this."""


class ContextTooLong(RequestRejected):
    """The history no longer fits the model: compact the session."""


class RateLimited(ProviderError):
    """Too many requests; `retry_after` is the provider's own wish in seconds, None if it has none."""

    transient = True

    def __init__(
        self, provider: str, why: str, status: int | None = 429, retry_after: float | None = None
    ) -> None:
        super().__init__(provider, why, status)
        self.retry_after = retry_after


class ProviderUnavailable(ProviderError):
    """The provider cannot be reached, is overloaded or failed by itself."""

    transient = True


class BrokenStream(ProviderError):
    """An answer began and did not come to its end, or made no sense on the way."""

    transient = True
