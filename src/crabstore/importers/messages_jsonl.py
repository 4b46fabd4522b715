"""Conversations as API messages, an object a line or one JSON array, as events. Pure: callers bring the stream.

A line is a conversation (`{"messages": [...]}` as in fine-tuning files, a batch request, a batch result, an
Anthropic request with its `system`) and becomes a session of its own; or it is a bare message (`{"role",
"content"}`), and the file is one session.

Nothing in these files has an id or a time. A conversation is known by its content, and by how many equal ones
stand before it; a file of bare messages by its path and first message; a message by its place. So the same file
again adds nothing, and a file that was appended to adds its tail.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

import msgspec

from ..store.messages import Format, HistoryEntry
from ..store.messages.wire import content_list, string
from ..store.records import Json
from .events import Closed, Event, Message, Problem, Session, title_of
from .lines import BadLine, JsonLine, parse, read_lines

__all__ = ["TOOL", "conversation", "read", "read_document"]

TOOL: Final = "messages"
"""The name of this format, and of the agent whose sessions they become."""

_ANTHROPIC_PARTS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document")

_Message = dict[str, Json]


def read(stream: io.BufferedReader, path: PurePath, modified: str) -> Iterator[Event]:
    """The events of a file with an object a line. `modified` is when sessions without a time were made."""
    reader = _Reader(path, modified)
    for line in read_lines(stream):
        if isinstance(line, BadLine):
            yield Problem.of(line)
        else:
            yield from reader.read(line)
    yield from reader.close()


def read_document(data: bytes, path: PurePath, modified: str) -> Iterator[Event]:
    """The events of a file that is one JSON value. Raises ValueError if it is none."""
    reader = _Reader(path, modified)
    for number, value in enumerate(content_list(parse(data)), 1):
        if isinstance(value, dict):
            yield from reader.read(JsonLine(number, 0, 0, value, 0))
        else:
            yield Problem(f"element {number} is no object")
    yield from reader.close()


def conversation(value: _Message) -> tuple[list[Json], Json] | None:
    """The messages in an object, and the system prompt that stands beside them; None if it is no conversation."""
    answer = _object(_object(value.get("response")).get("body"))
    for holder in (value, _object(value.get("body"))):
        messages = holder.get("messages")
        if isinstance(messages, list):
            return messages, holder.get("system")
    choices = answer.get("choices")
    if isinstance(choices, list):
        return [_object(choice).get("message") for choice in choices], None
    message = _object(value.get("result")).get("message")
    return ([message], None) if isinstance(message, dict) else None


class _Reader:
    def __init__(self, path: PurePath, modified: str) -> None:
        self._path = path
        self._modified = modified
        self._seen: Counter[bytes] = Counter()
        self._bare = self._title = ""

    def read(self, line: JsonLine) -> Iterator[Event]:
        found = conversation(line.value)
        if found is not None:
            yield from self._conversation(line, *found)
        elif "role" in line.value:
            yield from self._message(line)
        else:
            keys = ", ".join(list(line.value)[:5]) or "none"
            yield Problem(f"no messages in this object (its members: {keys})", line.number, line.offset)

    def close(self) -> Iterator[Event]:
        if self._bare:
            yield Session(self._bare, title=self._title)
            yield Closed(self._bare)

    def _conversation(self, line: JsonLine, messages: list[Json], system: Json) -> Iterator[Event]:
        original_id = self._identify(messages, system)
        if system is not None:
            messages = [{"role": "system", "content": system}, *messages]
        told: list[_Message] = [message for message in messages if isinstance(message, dict)]
        if len(told) < len(messages):
            yield Problem("a message that is no object was left out", line.number, line.offset)
        if not told:
            yield Problem("a conversation without messages", line.number, line.offset, note=True)
            return
        shape: Format = "anthropic" if system is not None or any(map(_is_anthropic, told)) else "openai-chat"
        entries = [HistoryEntry(message=m, format=shape, id=str(place)) for place, m in enumerate(told)]
        yield Session(original_id, created_at=self._modified, title=_title(entries))
        for entry in entries:
            yield Message(original_id, entry)
        yield Closed(original_id)

    def _identify(self, messages: list[Json], system: Json) -> str:
        digest = hashlib.sha256(msgspec.json.encode([system, messages], order="sorted")).digest()[:16]
        self._seen[digest] += 1
        occurrence = self._seen[digest]
        return digest.hex() if occurrence == 1 else f"{digest.hex()}-{occurrence}"

    def _message(self, line: JsonLine) -> Iterator[Event]:
        shape: Format = "anthropic" if _is_anthropic(line.value) else "openai-chat"
        entry = HistoryEntry(message=line.value, format=shape, id=line.key)
        if not self._bare:
            first = msgspec.json.encode([str(self._path), line.value], order="sorted")
            self._bare = hashlib.sha256(first).hexdigest()[:32]
            yield Session(self._bare, created_at=self._modified)
        if not self._title and entry.role == "user":
            self._title = title_of(entry.text)
        yield Message(self._bare, entry)


def _title(entries: list[HistoryEntry]) -> str:
    """What a person said first; where nobody did, what was said first."""
    people = [entry for entry in entries if entry.role == "user"]
    return next((title for entry in (*people, *entries) if (title := title_of(entry.text))), "")


def _is_anthropic(message: _Message) -> bool:
    """Whether the message has a block that only Anthropic's shape knows; plain text is the same in both."""
    for part in content_list(message.get("content")):
        if isinstance(part, dict):
            kind = string(part.get("type"))
            if kind in _ANTHROPIC_PARTS or (kind == "image" and "source" in part):
                return True
    return False


def _object(value: Json) -> _Message:
    return value if isinstance(value, dict) else {}
