"""One entry of a session's history: the caller's message kept verbatim, and everything that follows from it.

The message is never rewritten. Whatever is derived (role, text, blocks, what may be indexed) is computed from
it by the rules of its format, by functions that are total: a junk message has an empty text and never raises.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from ..records import Json, Record
from .blocks import Block, Text, ToolCall, ToolResult
from .wire import read_blocks, read_role

__all__ = ["Format", "HistoryEntry", "Mark", "without_reminders"]

Format: TypeAlias = str
"""The shape of a message: "anthropic", "openai-chat", "openai-responses", or a name that is not known here."""

Mark: TypeAlias = str
"""What is special about a message: "injected", "summary", "error", "partial", or "" (see `HistoryEntry`)."""

_REMINDER = ("<system-reminder>", "</system-reminder>")
_BLOB_URL = ";base64,"
_BLOB_SIZE = 512
_BLOB = re.compile(
    rf"data:[\w/+.-]{{0,80}}{_BLOB_URL}[A-Za-z0-9+/=]*|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{{{_BLOB_SIZE},}}={{0,2}}"
)


class HistoryEntry(Record, omit_defaults=True):
    """What was said, by whom, when.

    Fields: `message` is the provider's wire item, verbatim; `format` names its shape (an unknown one is kept,
    and read as well as can be); `id` is the caller's own id, by which an append is idempotent; `agent` is who
    spoke, "" for the session's own; `ts` is UTC RFC 3339 with six fractional digits and "Z", "" if unknown;
    `parent` is the id of the entry that this one follows, "" for the one before it; `active` is False for an
    entry on an abandoned branch; `mark` says that no person or model wrote this text ("injected"), that it
    repeats what was said before ("summary"), that it is a failure shown as a message ("error"), or that it is an
    answer that was cut off ("partial").
    """

    message: dict[str, Json]
    format: Format
    id: str = ""
    agent: str = ""
    ts: str = ""
    parent: str = ""
    active: bool = True
    mark: Mark = ""

    @classmethod
    def user(
        cls, text: str, *, format: Format = "anthropic", id: str = "", ts: str = "", sender: str = ""
    ) -> HistoryEntry:
        """What a person said; this shape of message is the same with every provider."""
        entry = cls(message={"role": "user", "content": text}, format=format, id=id, ts=ts)
        entry.sender = sender
        return entry

    @classmethod
    def assistant(
        cls, text: str, *, format: Format = "anthropic", id: str = "", ts: str = "", agent: str = ""
    ) -> HistoryEntry:
        """What a model said; this shape of message is the same with every provider."""
        message: dict[str, Json] = {"role": "assistant", "content": text}
        return cls(message=message, format=format, id=id, ts=ts, agent=agent)

    @property
    def sender(self) -> str:
        """Who wrote a user's message, for the run that handles it; never stored."""
        return str(self.__dict__.get("sender", ""))

    @sender.setter
    def sender(self, name: str) -> None:
        self.__dict__["sender"] = name

    @property
    def auto_injected(self) -> bool:
        """Put in by the runtime for one run; never stored, and an entry that is so is not persisted."""
        return self.__dict__.get("auto_injected") is True

    @auto_injected.setter
    def auto_injected(self, value: bool) -> None:
        self.__dict__["auto_injected"] = value

    @property
    def role(self) -> str:
        """user, assistant, system, tool, or another that the message names.

        A user's message that holds nothing but tool results is a tool's.
        """
        return read_role(self.format, self.message)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The message as neutral blocks, in order."""
        return read_blocks(self.format, self.message)

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines; no thinking, no tool traffic."""
        return "\n".join([block.text for block in self.blocks if isinstance(block, Text) and block.text])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that this message makes."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The answers that this message brings."""
        return tuple(block for block in self.blocks if isinstance(block, ToolResult))

    def indexable(self) -> str:
        """The text that a search may find this entry by, or "".

        Only what users and assistants said. Tool results, tool arguments, thinking and blobs never, since
        credentials stand in them often enough; an assistant that calls tools without a word gives their
        names.
        """
        role = self.role
        if self.mark == "injected" or role not in ("user", "assistant"):
            return ""
        text = _without_blobs(without_reminders(self.text)).strip()
        if not text and role == "assistant":
            return " ".join(call.name for call in self.tool_calls if call.name)
        return text


def without_reminders(text: str) -> str:
    """`text` without the spans that a harness puts beside a person's words; an unclosed one is kept."""
    opening, closing = _REMINDER
    kept: list[str] = []
    at = 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(closing)
    return "".join((*kept, text[at:]))


def _without_blobs(text: str) -> str:
    # Most texts are too short for a bare blob: two look-ups then save the search at each of their words.
    if len(text) < _BLOB_SIZE and _BLOB_URL not in text:
        return text
    return _BLOB.sub(" ", text)
