"""Backend: what an engine's author subclasses. Five methods, and it is everything.

Each interface is an attribute, made on first use from the store itself; nothing is constructed or wired. An
engine that does one of them better overrides that property.
"""

from __future__ import annotations

from functools import cached_property

from .agents import Agents
from .bm25 import Analysis, Bm25
from .harnesses import Harnesses
from .keyed_text import KeyedText
from .kv import KVStorage
from .memory import Memory
from .session_index import Redact
from .sessions import Sessions
from .skills import Skills
from .text import TextSearch
from .weights import Weights

__all__ = ["Backend"]


class Backend(KVStorage):
    """A store with every interface.

    Required: `get`, `put`, `delete`, `scan_keys`, `scan` (see KVStorage). Provided: `text`, `agents`,
    `sessions`, `memory`, `skills`, `harnesses`. The judgement numbers below are what the interfaces ask for;
    set them before the first use.
    """

    bm25: Bm25 = Bm25()
    """The scorer's numbers."""
    analysis: Analysis = Analysis()
    """How queries read."""
    weights: Weights = Weights()
    """What ranks a session."""
    redact: Redact | None = None
    """What runs over every text of a session before it is indexed or exported."""

    @cached_property
    def text(self) -> TextSearch:
        """Ranked full-text search; the override point for an engine that ranks text itself."""
        return KeyedText(self, self.bm25, self.analysis)

    @cached_property
    def agents(self) -> Agents:
        """Agents and the default agent."""
        return Agents(self)

    @cached_property
    def memory(self) -> Memory:
        """What agents remember."""
        return Memory(self, self.text)

    @cached_property
    def sessions(self) -> Sessions:
        """Conversations."""
        return Sessions(self, self.text, self.memory, self.weights, self.redact)

    @cached_property
    def skills(self) -> Skills:
        """SKILL.md files."""
        return Skills(self)

    @cached_property
    def harnesses(self) -> Harnesses:
        """Harness images."""
        return Harnesses(self)
