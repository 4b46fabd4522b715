"""What every parser yields: the neutral stream of facts that a transcript file consists of. Pure.

A parser is a generator over a binary stream. It says `Session` before the first message of that session, and
again whenever it learns more; an empty field of it means "nothing new". `Message` may repeat an entry's id with a
message that has grown, which then replaces the earlier one in its place. `Closed` ends a session. A `Problem`
never ends the stream.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from ..store.messages import HistoryEntry
from .lines import BadLine

__all__ = ["Closed", "Event", "Message", "Problem", "Session", "title_of"]

_TITLE_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Session:
    """Facts about the session `original_id`. Fields left empty are not known, or not new."""

    original_id: str
    project: str = ""
    """The working directory."""
    created_at: str = ""
    title: str = ""
    parent: str = ""
    """The original id of the session that this one was forked from, or spawned by."""
    lineage: str = ""
    """Sessions of one lineage hold copies of each other's entries, under the same ids."""


@dataclass(frozen=True, slots=True)
class Message:
    """An entry of the session `original_id`; its id is never empty."""

    original_id: str
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class Closed:
    """The session `original_id` is read to its end; `inactive` are the entries off its active branch."""

    original_id: str
    inactive: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read. `line` and `offset` are 0 for a whole file."""

    reason: str
    line: int = 0
    offset: int = 0
    note: bool = False
    """Nothing is lost by it."""

    @classmethod
    def of(cls, bad: BadLine) -> Problem:
        """The problem that a bad line is."""
        return cls(bad.reason, bad.number, bad.offset, bad.note)


Event: TypeAlias = Session | Message | Closed | Problem


def title_of(text: str) -> str:
    """`text` in one line, cut to 120 characters at a word."""
    words = " ".join(text[: 8 * _TITLE_LENGTH].split())
    if len(words) <= _TITLE_LENGTH:
        return words
    cut = words[:_TITLE_LENGTH]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut[:-1]) + "…"
