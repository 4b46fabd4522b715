"""What a run tells while it goes on. Whatever is stored is stored before it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..store.messages import HistoryEntry
from ..store.session_records import Done, ToolResultEvent, ToolStart
from .errors import ProviderError
from .providers.protocol import TextDelta, ThinkingDelta

__all__ = ["Compacted", "HarnessFailed", "MessageStored", "Retrying", "RunEvent", "Told"]


@dataclass(frozen=True)
class MessageStored:
    """An entry is in the session's history now: a user's, the model's answer, or a tool's result."""

    entry: HistoryEntry


@dataclass(frozen=True)
class Retrying:
    """The provider failed and is asked again in `delay` seconds; deltas of this answer so far are void."""

    error: ProviderError
    attempt: int
    """The number of the attempt that failed, from 1."""
    delay: float


@dataclass(frozen=True)
class Compacted:
    """The context had become too long: the run goes on with a summary, which this archive holds."""

    archive: str


@dataclass(frozen=True)
class HarnessFailed:
    """A hook of a harness raised; the run goes on without what it would have given."""

    harness: str
    hook: str
    error: BaseException


Told: TypeAlias = MessageStored | ToolStart | ToolResultEvent | Done
"""What has been stored."""

RunEvent: TypeAlias = TextDelta | ThinkingDelta | Told | Retrying | Compacted | HarnessFailed
