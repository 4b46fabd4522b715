"""Which harnesses the daemon's agents have; each agent's declaration says which of them it is granted."""

from __future__ import annotations

from ..runtime import Clock, Harness
from ..runtime.harness.mcp import McpHarness
from ..runtime.harness.memory import MemoryHarness
from ..runtime.harness.osfiles import OsHarness
from ..runtime.harness.sessions import SessionsHarness
from ..runtime.harness.skills import SkillsHarness
from ..store.backend import Backend

__all__ = ["harnesses"]


def harnesses(store: Backend, clock: Clock) -> list[Harness]:
    """The harnesses over `store`, in the order in which they take part."""
    return [
        MemoryHarness(store),
        McpHarness(clock=clock),
        OsHarness(),
        SkillsHarness(store),
        SessionsHarness(store),
    ]
