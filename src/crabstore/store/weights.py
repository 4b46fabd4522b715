"""What ranks a session, as judgement numbers with names. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .messages import HistoryEntry

__all__ = ["Weights"]


@dataclass(frozen=True)
class Weights:
    """The judgement numbers of session search. The first eight take effect as documents are indexed; run reindex
    after changing one of them."""

    user: float = 1.5
    """A person's own words. They are few and chosen; lower it if prompts are mostly pasted text."""
    tool_call: float = 1.3
    """The names of functions that an assistant called without a word."""
    assistant: float = 1.0
    """A model's words: the measure of the others."""
    derived: float = 0.5
    """A compaction summary: it repeats what stands elsewhere, and must not outrank it."""
    title: float = 2.0
    """A session's title."""
    summary: float = 3.0
    """A session's summary: the densest text there is about it."""
    speakers: bool = True
    """Index who spoke, where a message names them, beside what was said. Switch it off where names are no words
    to ask by."""
    dates: bool = True
    """Index the month and the year, as ``march 2024``, beside what was said. Switch it off where a bare "may" or
    "2024" must find only what was said of it; days are for `since` and `until`."""
    message: float = 1.0
    """A session's best message in its score. Raise it where one sentence is looked for."""
    session: float = 2.0
    """The session as one document in its score. Raise it where the words of a query are spread over a talk."""
    before: int = 4
    """Messages shown before the best one."""
    after: int = 4
    """Messages shown after the best one."""
    window: int = 16
    """Messages shown at most, whatever a caller asks for."""
    snippet: int = 1024
    """Bytes of a message shown at most, cut on a character boundary."""
    hits: int = 20
    """Sessions returned at most, unless the caller says otherwise."""

    def of(self, entry: HistoryEntry) -> float:
        """The weight of a message."""
        if entry.mark == "summary":
            return self.derived
        if entry.role == "user":
            return self.user
        return self.assistant if entry.text.strip() else self.tool_call
