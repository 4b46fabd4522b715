"""The harnesses that come with the runtime, wired to a store. What an agent has of them its declaration says."""

from __future__ import annotations

from collections.abc import Collection

from ...store.backend import Backend
from ..clock import Clock
from .base import Harness
from .images import ImagesHarness
from .mcp import McpHarness
from .memory import MemoryHarness
from .osfiles import OsHarness
from .sandbox import Sandbox
from .sessions import SessionsHarness
from .skills import SkillsHarness
from .wasm import WasmSandbox

__all__ = ["standard_harnesses"]


def standard_harnesses(
    store: Backend,
    *,
    clock: Clock | None = None,
    sandbox: Sandbox | None = None,
    others: Collection[str] = (),
) -> list[Harness]:
    """Every harness, in the order in which they take part: of two tools with one name, the first one's counts.

    `others` are the names of a host's own harnesses, which an agent may declare and no image is looked for.
    """
    harnesses: list[Harness] = [
        MemoryHarness(store),
        SkillsHarness(store),
        SessionsHarness(store),
        OsHarness(),
        McpHarness(clock=clock),
    ]
    names = [*others, *(harness.name for harness in harnesses)]
    return [*harnesses, ImagesHarness(store, sandbox or WasmSandbox(), others=names)]
