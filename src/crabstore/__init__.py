"""crabstore: the persistence layer of agent systems. One primitive of five methods; everything else over it.

``await crabstore.open(url)`` or ``crabstore.open_sync(url)`` gives a store with the attributes ``agents``,
``sessions``, ``memory``, ``skills``, ``harnesses`` and ``text``. To write an engine, subclass ``Backend``.
"""

from __future__ import annotations

from .opening import open
from .store.agents import AgentConfig, HarnessDeclaration, McpServer
from .store.backend import Backend
from .store.batch import Batch, Column
from .store.bm25 import Analysis, Bm25
from .store.errors import (
    BadRecord,
    Conflict,
    InvalidArgument,
    NameTaken,
    NotFound,
    OutsideRealm,
    SchemaMismatch,
    StoreClosed,
    StoreError,
    WrongLoop,
)
from .store.kv import KVStorage
from .store.memory import MemoryEntry, MemoryHit
from .store.messages import HistoryEntry, repair
from .store.reindex import reindex
from .store.session_records import (
    Appended,
    Done,
    Loaded,
    Recent,
    SessionMeta,
    Source,
    ToolResultEvent,
    ToolStart,
    ToolStartCall,
)
from .store.session_search import SessionAnswer, SessionFilter, SessionHit
from .store.skills import InvalidSkill, SkillSummary
from .store.text import Between, Hit, Hits, TextSearch
from .store.weights import Weights
from .sync import SyncStore, open_sync

__all__ = [
    "AgentConfig",
    "Analysis",
    "Appended",
    "Backend",
    "BadRecord",
    "Batch",
    "Between",
    "Bm25",
    "Column",
    "Conflict",
    "Done",
    "HarnessDeclaration",
    "HistoryEntry",
    "Hit",
    "Hits",
    "InvalidArgument",
    "InvalidSkill",
    "KVStorage",
    "Loaded",
    "McpServer",
    "MemoryEntry",
    "MemoryHit",
    "NameTaken",
    "NotFound",
    "OutsideRealm",
    "Recent",
    "SchemaMismatch",
    "SessionAnswer",
    "SessionFilter",
    "SessionHit",
    "SessionMeta",
    "SkillSummary",
    "Source",
    "StoreClosed",
    "StoreError",
    "SyncStore",
    "TextSearch",
    "ToolResultEvent",
    "ToolStart",
    "ToolStartCall",
    "Weights",
    "WrongLoop",
    "open",
    "open_sync",
    "reindex",
    "repair",
]
