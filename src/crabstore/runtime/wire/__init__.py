"""The wire formats of the providers' requests and streams: pure, without an SDK, and total."""

from __future__ import annotations

from .convert import convert
from .results import assistant_message, tool_message

__all__ = ["assistant_message", "convert", "tool_message"]
