"""The records of sessions beside their messages, and what sessions are asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from .errors import BadRecord
from .messages import HistoryEntry
from .records import Json, Record, decode

__all__ = [
    "Appended",
    "Card",
    "Done",
    "EventBase",
    "EventLine",
    "Loaded",
    "OtherEvent",
    "Recent",
    "SessionMeta",
    "Source",
    "SourceRow",
    "ToolResultEvent",
    "ToolStart",
    "ToolStartCall",
    "decode_event",
]


class Source(Record, omit_defaults=True):
    """Where an imported session comes from; all empty for one that was born here."""

    tool: str = ""
    """The program that recorded it, e.g. ``claude-code``."""
    project: str = ""
    """The working directory."""
    original_id: str = ""
    """The program's own id of the session."""
    path: str = ""
    """The file it was read from."""
    parent: str = ""
    """The original id of the session that it was forked from or spawned by."""

    def __bool__(self) -> bool:
        return bool(self.tool)


class SessionMeta(Record, omit_defaults=True):
    """What a session is, beside its messages. Times are UTC RFC 3339."""

    handle: str
    agent: str
    """The id of the agent whose session it is."""
    created_by: str
    """Who speaks to the agent."""
    created_at: str
    updated_at: str
    """Never goes back."""
    title: str = ""
    summary: str = ""
    message_count: int = 0
    """One more than the last position."""
    root: str = ""
    """The folder that the session works in."""
    compacted_at: int = 0
    """The first position that is still part of the context; what is before stands in the archive's summary."""
    source: Source = msgspec.field(default_factory=Source)

    @property
    def project(self) -> str:
        """The folder that the session is about."""
        return self.source.project or self.root


class Card(Record, omit_defaults=True):
    """What a listing shows of a session, kept in the index of recent sessions."""

    title: str = ""
    agent: str = ""
    created_by: str = ""
    tool: str = ""
    project: str = ""


@dataclass(frozen=True)
class Recent:
    """A session in a listing, read from the index alone."""

    handle: str
    updated_at: str
    card: Card


class SourceRow(Record):
    """Which session an original id became, and how far its file was read."""

    handle: str
    cursor: dict[str, Json] = {}


@dataclass(frozen=True)
class Appended:
    """What an append did with its entries."""

    added: int = 0
    replaced: int = 0
    """Entries whose id was there with another content: they grew, or were corrected, and keep their position."""
    skipped: int = 0
    """Entries that were there already, or that the runtime injected for one run only."""


@dataclass(frozen=True)
class Loaded:
    """A session as its next run needs it."""

    meta: SessionMeta
    archive: str | None
    """The name of the memory entry that holds the summary of what was compacted away."""
    entries: list[HistoryEntry] = field(default_factory=list)
    """The active path from the boundary on, valid for its provider (see `messages.repair`)."""


class ToolStartCall(Record):
    """One call of a tool_start event."""

    id: str
    name: str
    arguments: Json = None


class EventBase(Record, tag_field="event"):
    """What every line of a trace is."""

    ts: str


class ToolStart(EventBase, tag="tool_start"):
    """The model asked for tools."""

    calls: list[ToolStartCall]


class ToolResultEvent(EventBase, tag="tool_result"):
    """A tool answered."""

    call_id: str
    duration_ms: int


class Done(EventBase, tag="done"):
    """A run ended."""

    model: str
    iterations: int
    stop_reason: str
    usage: dict[str, Json] = {}


class OtherEvent(msgspec.Struct):
    """A line that this version does not know; `members` is all of it."""

    members: dict[str, Json]


EventLine = ToolStart | ToolResultEvent | Done
"""One line of a session's trace, tagged by its member `event`."""

_EVENTS: dict[str, type[EventLine]] = {"tool_start": ToolStart, "tool_result": ToolResultEvent, "done": Done}


class _Tag(msgspec.Struct):
    event: str = ""


def decode_event(data: bytes, key: bytes) -> EventLine | OtherEvent:
    """The event line in `data`; one of a newer version comes as OtherEvent. Raises BadRecord."""
    try:
        cls = _EVENTS.get(msgspec.json.decode(data, type=_Tag).event)
        return decode(cls, data, key) if cls else OtherEvent(msgspec.json.decode(data))
    except msgspec.DecodeError as error:
        raise BadRecord(key, str(error)) from error
