"""What a model provider is to the runtime: a request in, a stream of events out, typed errors. No I/O here.

A provider renders the history in its own wire format (see `runtime.wire`), yields deltas as they arrive and one
`Reply` at the end. It raises the errors of `runtime.errors` and nothing else, and never retries: that is the
runtime's (see `retries`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...store.messages import Format, HistoryEntry, ToolCall
from ...store.records import Json
from ..tools import Tool

__all__ = ["Provider", "ProviderEvent", "Reply", "Request", "TextDelta", "ThinkingDelta", "Usage"]


@dataclass(frozen=True)
class Usage:
    """Tokens, as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    def members(self) -> dict[str, Json]:
        """As a JSON object, zeros left out."""
        return {name: count for name, count in vars(self).items() if count}


@dataclass(frozen=True)
class Request:
    """One question to a model."""

    model: str
    entries: Sequence[HistoryEntry]
    """The history, of any formats, repaired."""
    system: str = ""
    tools: Sequence[Tool] = ()
    tool_choice: Json = "auto"
    """"auto", "none", "any" (some tool), a tool's name, or the provider's own object."""
    max_tokens: int | None = None
    """Of the answer; None is the provider's default."""
    thinking: bool = False
    thinking_budget: int = 4096
    """Tokens."""
    session: str = ""
    """The handle of the session that asks."""


@dataclass(frozen=True)
class TextDelta:
    """Words of the answer, as they arrive."""

    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """Reasoning of the model, as it arrives."""

    text: str


@dataclass(frozen=True)
class Reply:
    """The whole answer; the last event of a stream."""

    message: dict[str, Json]
    """The assistant's message in the provider's wire format, as it is stored and sent back."""
    calls: tuple[ToolCall, ...] = ()
    """The tools that it asks for; `arguments` is the raw text where that is no JSON."""
    stop_reason: str = "end_turn"
    """end_turn, tool_use, max_tokens, stop_sequence, refusal, pause_turn, or the provider's own word."""
    usage: Usage = Usage()


ProviderEvent: TypeAlias = TextDelta | ThinkingDelta | Reply


class Provider(Protocol):
    """A source of answers. `stream` is an async generator, so that closing it lets go of the connection."""

    @property
    def format(self) -> Format:
        """Of the messages that it writes: "anthropic" or "openai-chat"."""

    def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        """The answer to `request` as it arrives. Raises ProviderError."""

    async def close(self) -> None:
        """Let go of connections."""
