"""One session of a file on its way into a store: found or made, filled in bounded batches, named at its end.

Everything here may be done again: entries are known by their ids, so an import that was cut off anywhere is
continued by running it once more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..store.backend import Backend
from ..store.messages import HistoryEntry
from ..store.records import Json, evolve
from ..store.session_records import Appended, SessionMeta, Source
from .events import Session

__all__ = ["SENDER", "Target"]

SENDER = "user"
"""Who speaks in an imported session: the person whose transcripts these are."""

_MAX_ANCESTORS = 64


@dataclass
class Target:
    """The session that a file calls `facts.original_id`."""

    store: Backend
    tool: str
    path: str
    facts: Session
    modified: str
    """The file's time, for sessions and entries that carry none."""
    meta: SessionMeta | None = None
    new: bool = False
    forgotten: bool = False
    _resolved: bool = False
    _registered: bool = False
    _relatives: list[str] = field(default_factory=list)
    """Sessions that may hold entries which this file only copies, the one it was forked from last."""
    _copying: bool = True
    _copied: set[str] = field(default_factory=set)
    _copied_from: str = ""

    def learn(self, facts: Session) -> None:
        """Take what the file says later about the session."""
        old = self.facts
        self.facts = Session(
            old.original_id,
            project=facts.project or old.project,
            created_at=old.created_at or facts.created_at,
            title=facts.title or old.title,
            parent=facts.parent or old.parent,
            lineage=old.lineage or facts.lineage,
        )

    async def append(self, entries: Sequence[HistoryEntry]) -> Appended:
        """Add what is new, replace what has grown. A session that has nothing of its own is not made."""
        await self._resolve()
        if self.forgotten:
            return Appended()
        own = [entry for entry in entries if not await self._is_copy(entry)]
        copies = len(entries) - len(own)
        if not own:
            return Appended(skipped=copies)
        await self._learn_parent()
        meta = self.meta = self.meta or await self._open()
        await self._register(meta)
        done = await self.store.sessions.append_messages(meta.handle, own, at=meta.created_at)
        return Appended(done.added, done.replaced, done.skipped + copies)

    async def close(self, inactive: Collection[str]) -> None:
        """Name the session, say where it comes from, and take abandoned branches off the active one."""
        if self.meta is None:
            return
        sessions, meta = self.store.sessions, self.meta
        row = await sessions.find_source(self.tool, self.facts.original_id)
        cursor = row.cursor if row else {}
        title = self._new_title(meta, cursor)
        noted: dict[str, Json] = dict(cursor)
        if title:
            # Noted before it is set: after a crash in between, both may stand in the session and be ours.
            noted |= {"title": title, "was": meta.title}
        noted |= {"branches": True} if inactive else {}
        if noted != cursor:
            await sessions.set_source(self.tool, self.facts.original_id, meta.handle, noted)
        source = self._source(meta.source)
        if title not in ("", meta.title) or source != meta.source:
            self.meta = await sessions.update(meta.handle, title=title or None, source=source)
        if noted.get("branches"):
            await sessions.set_active(meta.handle, inactive)

    def _new_title(self, meta: SessionMeta, cursor: dict[str, Json]) -> str:
        """What the file calls the session; "" if somebody gave it another title here, or this one is noted."""
        title = self.facts.title
        ours = ("", title, cursor.get("title"), cursor.get("was"))
        noted = meta.title == title == cursor.get("title")
        return title if meta.title in ours and not noted else ""

    def _source(self, old: Source) -> Source:
        facts = self.facts
        return evolve(
            old,
            tool=self.tool,
            project=facts.project or old.project,
            original_id=facts.original_id,
            path=self.path,
            parent=facts.parent or old.parent,
        )

    # -- finding, and telling copies --

    async def _resolve(self) -> None:
        if self._resolved:
            return
        sessions, original_id = self.store.sessions, self.facts.original_id
        self.forgotten = await sessions.forgotten(self.tool, original_id)
        row = await sessions.find_source(self.tool, original_id)
        self.meta = await sessions.meta(row.handle) if row else None
        self._relatives = await self._find_relatives()
        self._copying = bool(self._relatives)
        self._resolved = True

    async def _find_relatives(self) -> list[str]:
        """The handles of this session's ancestors and of all that are known to share its first entry."""
        sessions = self.store.sessions
        row = await sessions.find_source(self.tool, self._lineage()) if self.facts.lineage else None
        known = row.cursor.get("sessions") if row else []
        handles = [handle for handle in (known if isinstance(known, list) else []) if isinstance(handle, str)]
        meta = self.meta
        for _ in range(_MAX_ANCESTORS if self.facts.lineage else 0):
            row = (
                await sessions.find_source(self.tool, meta.source.parent)
                if meta and meta.source.parent
                else None
            )
            if row is None:
                break
            handles.insert(0, row.handle)
            meta = await sessions.meta(row.handle)
        own = self.meta.handle if self.meta else ""
        return [handle for handle in dict.fromkeys(handles) if handle != own]

    def _lineage(self) -> str:
        return f"lineage:{self.facts.lineage}"

    async def _is_copy(self, entry: HistoryEntry) -> bool:
        """Whether the file only repeats what an earlier session holds; it can only do so at its start."""
        if entry.id in self._copied:
            return True
        if not self._copying:
            return False
        for handle in reversed(self._relatives):
            if await self.store.sessions.entry_position(handle, entry.id) is not None:
                self._copied.add(entry.id)
                self._copied_from = handle
                return True
        self._copying = False
        return False

    async def _learn_parent(self) -> None:
        """Name the session that the last copied entry is of, unless the file named one."""
        relative = await self.store.sessions.meta(self._copied_from) if self._copied_from else None
        if relative is not None and not self.facts.parent:
            self.learn(Session(self.facts.original_id, parent=relative.source.original_id))

    async def _open(self) -> SessionMeta:
        agent = await self.store.agents.ensure(self.tool)
        self.new = True
        return await self.store.sessions.open(
            agent=agent.id,
            created_by=SENDER,
            created_at=self.facts.created_at or self.modified,
            title=self.facts.title,
            source=self._source(Source()),
        )

    async def _register(self, meta: SessionMeta) -> None:
        """Let later forks find this session by the first entry that they will share."""
        if self._registered or not self.facts.lineage:
            return
        self._registered = True
        row = await self.store.sessions.find_source(self.tool, self._lineage())
        known = row.cursor.get("sessions") if row else None
        handles = known if isinstance(known, list) else []
        if meta.handle not in handles:
            cursor: dict[str, Json] = {"sessions": [*handles, meta.handle]}
            await self.store.sessions.set_source(self.tool, self._lineage(), meta.handle, cursor)
