"""Which harnesses the daemon's agents have; each agent's declaration says which of them it is granted."""

from __future__ import annotations

from ..runtime import Harness
from ..store.backend import Backend

__all__ = ["harnesses"]


def harnesses(store: Backend) -> list[Harness]:
    """The harnesses over `store`, in the order in which they take part."""
    return []
