"""The runtime: agents that run over a store, with any model, killed at any moment without poisoning a history.

`Runtime` runs them, a `Provider` answers, and a `Harness` brings tools, context and state. It names no backend and
reads no environment.
"""

from __future__ import annotations

from ..store.messages import ToolCall
from .clock import Clock
from .engine import LiveSession, Runtime
from .errors import (
    BadScript,
    BrokenStream,
    Busy,
    ContextTooLong,
    IncompleteReply,
    NotRunning,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
    RunError,
    RuntimeClosed,
    SdkMissing,
    Unauthorized,
    UnknownModel,
)
from .events import Compacted, HarnessFailed, MessageStored, Retrying, RunEvent
from .harness import Context, Harness, Hooks, PartlyResolved, standard_harnesses
from .providers.anthropic import AnthropicProvider
from .providers.openai import OpenAIProvider
from .providers.protocol import Provider, ProviderEvent, Reply, Request, TextDelta, ThinkingDelta, Usage
from .providers.scripted import ScriptedProvider
from .retries import Retries
from .run import Run, RunResult
from .tools import Tool, ToolOutput

__all__ = [
    "AnthropicProvider",
    "BadScript",
    "BrokenStream",
    "Busy",
    "Clock",
    "Compacted",
    "Context",
    "ContextTooLong",
    "Harness",
    "HarnessFailed",
    "Hooks",
    "IncompleteReply",
    "LiveSession",
    "MessageStored",
    "NotRunning",
    "OpenAIProvider",
    "PartlyResolved",
    "Provider",
    "ProviderError",
    "ProviderEvent",
    "ProviderUnavailable",
    "RateLimited",
    "Reply",
    "Request",
    "RequestRejected",
    "Retries",
    "Retrying",
    "Run",
    "RunError",
    "RunEvent",
    "RunResult",
    "Runtime",
    "RuntimeClosed",
    "ScriptedProvider",
    "SdkMissing",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolOutput",
    "Unauthorized",
    "UnknownModel",
    "Usage",
    "standard_harnesses",
]
