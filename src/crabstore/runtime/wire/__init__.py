"""The wire formats of the providers' requests and streams: pure, without an SDK, and total."""

from __future__ import annotations

from .convert import convert
from .results import assistant_message, tool_message
from .storable import clean, storable

__all__ = ["assistant_message", "clean", "convert", "storable", "tool_message"]
