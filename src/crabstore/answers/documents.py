"""The JSON shapes of what a store holds, as ``--json`` gives them: stable and documented. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..store.agents import AgentConfig
from ..store.memory import MemoryEntry
from ..store.messages import HistoryEntry
from ..store.records import encode
from ..store.session_records import Recent, SessionMeta
from ..store.session_search import SessionHit

__all__ = [
    "Document",
    "agent_document",
    "card_document",
    "entry_document",
    "hit_document",
    "memory_document",
    "session_document",
]

Document = dict[str, object]


def session_document(meta: SessionMeta, names: Mapping[str, str]) -> Document:
    """A session."""
    source = meta.source
    return {
        "handle": meta.handle,
        "title": meta.title,
        "summary": meta.summary,
        "agent": meta.agent,
        "agent_name": names.get(meta.agent, meta.agent),
        "created_by": meta.created_by,
        "created_at": meta.created_at,
        "updated_at": meta.updated_at,
        "message_count": meta.message_count,
        "compacted_at": meta.compacted_at,
        "project": meta.project,
        "source": {
            "tool": source.tool,
            "original_id": source.original_id,
            "path": source.path,
            "parent": source.parent,
        },
    }


def card_document(row: Recent, names: Mapping[str, str]) -> Document:
    """A session in a listing."""
    card = row.card
    return {
        "handle": row.handle,
        "title": card.title,
        "agent": card.agent,
        "agent_name": names.get(card.agent, card.agent),
        "created_by": card.created_by,
        "updated_at": row.updated_at,
        "project": card.project,
        "source": card.tool,
    }


def entry_document(position: int, entry: HistoryEntry) -> Document:
    """A message, with what was recorded verbatim under `message`."""
    return {
        "position": position,
        "id": entry.id,
        "role": entry.role,
        "agent": entry.agent,
        "ts": entry.ts,
        "active": entry.active,
        "mark": entry.mark,
        "text": entry.text,
        "format": entry.format,
        "message": entry.message,
    }


def hit_document(hit: SessionHit, names: Mapping[str, str], command: str) -> Document:
    """A session that a search found; `command` opens it there."""
    return {
        "session": session_document(hit.meta, names),
        "score": hit.score,
        "position": hit.position,
        "window": [
            {
                "position": excerpt.position,
                "role": excerpt.entry.role,
                "ts": excerpt.entry.ts,
                "text": excerpt.text,
                "spans": excerpt.spans,
            }
            for excerpt in hit.window
        ],
        "open": command,
    }


def agent_document(agent: AgentConfig, default: str | None) -> Document:
    """An agent whole, and whether it is the default."""
    members: Document = msgspec.json.decode(encode(agent))
    return members | {"default": agent.id == default}


def memory_document(entry: MemoryEntry) -> Document:
    """A memory entry."""
    return {
        "name": entry.name,
        "kind": entry.kind,
        "content": entry.content,
        "aliases": entry.aliases,
        "created_at": entry.created_at,
    }
