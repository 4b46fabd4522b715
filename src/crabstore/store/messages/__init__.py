"""What was said: history entries, their provider formats read neutrally, and provider-valid repair. Pure."""

from __future__ import annotations

from .blocks import Block, Document, Image, Text, Thinking, ToolCall, ToolResult, Unknown
from .entry import Format, HistoryEntry, Mark, without_reminders
from .repair import MISSING_RESULT, repair

__all__ = [
    "MISSING_RESULT",
    "Block",
    "Document",
    "Format",
    "HistoryEntry",
    "Image",
    "Mark",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Unknown",
    "repair",
    "without_reminders",
]
