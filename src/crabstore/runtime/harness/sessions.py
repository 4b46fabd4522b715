"""sessions: an agent searches its own past conversations and reads a window of one.

Declared. The host sets the scope of every search and every reading, the model only says what it looks for: the
sessions of this agent, and if the host says so, only those with the person who speaks now. What is shown is what
people and assistants said; arguments and results of tools stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from ...store.agents import AgentConfig
from ...store.backend import Backend
from ...store.messages import HistoryEntry, ToolCall
from ...store.session_records import SessionMeta
from ...store.session_search import SessionFilter, SessionHit
from ..tools import Tool, ToolOutput
from .base import Context, Harness
from .toolbox import Arguments, Function, Refused, Toolbox, cut

__all__ = ["SessionsHarness"]

_SNIPPET = 500
"""Characters of a message in a search's answer."""
_MESSAGE = 4000
"""Characters of a message in a window that was asked for."""

_USAGE = (
    "You can look into your earlier conversations: `search_sessions` finds them, `read_session` reads on."
)

Time = Annotated[str, Meta(description="UTC, RFC 3339 or the beginning of it: 2026-03-01.")]


class _Search(Arguments):
    query: Annotated[str, Meta(description="Words that were said.")]
    role: Annotated[Literal["user", "assistant", ""], Meta(description="Who said them.")] = ""
    since: Time = ""
    until: Time = ""
    limit: Annotated[int, Meta(ge=1, le=20, description="How many conversations at most.")] = 5


class _Read(Arguments):
    session: Annotated[str, Meta(description="As a search named it.")]
    start: Annotated[int, Meta(ge=0, description="The position of the first message.")] = 0
    count: Annotated[int, Meta(ge=1, le=50, description="How many messages.")] = 20


class SessionsHarness(Harness):
    """The agent's own past. With `same_person`, only what was said with whom it speaks now. Holds no state."""

    name = "sessions"

    def __init__(self, store: Backend, *, same_person: bool = False) -> None:
        self._sessions = store.sessions
        self._same_person = same_person
        self._toolbox = Toolbox(
            Function("search_sessions", "Search your earlier conversations.", _Search, self._search),
            Function("read_session", "Read messages of one of them, by position.", _Read, self._read),
        )

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return self._toolbox.tools

    def usage(self, agent: AgentConfig) -> str:
        return _USAGE

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        return await self._toolbox.answer(context, call)

    async def _search(self, context: Context, asked: _Search) -> str:
        person = context.session.created_by if self._same_person else ""
        where = SessionFilter(
            agent=context.agent.id, sender=person, role=asked.role, since=asked.since, until=asked.until
        )
        answer = await self._sessions.search(asked.query, asked.limit, where)
        found = [_hit(hit) for hit in answer.hits if self._may_read(context, hit.meta)]
        more = [] if answer.complete else ["There are more: name rarer words, or a time."]
        return "\n\n".join(found + more) or "nothing of that was said"

    async def _read(self, context: Context, asked: _Read) -> str:
        meta = await self._sessions.meta(asked.session)
        if meta is None or not self._may_read(context, meta):
            raise Refused(f"you have no session {asked.session!r}; search for the one you mean")
        entries = await self._sessions.messages(asked.session, asked.start, asked.start + asked.count)
        said = [
            _line(position, entry, text, _MESSAGE)
            for position, entry in enumerate(entries, asked.start)
            if (text := entry.indexable())
        ]
        return "\n".join([f"{_title(meta)}, {meta.message_count} messages", *said])

    def _may_read(self, context: Context, meta: SessionMeta) -> bool:
        same_person = not self._same_person or meta.created_by == context.session.created_by
        return meta.agent == context.agent.id and same_person


def _hit(hit: SessionHit) -> str:
    shown = [
        _line(excerpt.position, excerpt.entry, excerpt.text or excerpt.entry.indexable(), _SNIPPET)
        for excerpt in hit.window
        if excerpt.entry.indexable()
    ]
    return "\n".join([_title(hit.meta), *shown])


def _title(meta: SessionMeta) -> str:
    return f"## {meta.handle}: {cut(meta.title, _SNIPPET) or 'untitled'} ({meta.updated_at[:10]})"


def _line(position: int, entry: HistoryEntry, text: str, most: int) -> str:
    return f"[{position}] {entry.role}: {cut(text, most)}"
