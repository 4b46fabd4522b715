"""What runs harness images: the seam between a harness that is bytes and whatever is trusted to contain it. Pure.

The runtime knows images only through this; the one implementation that is shipped runs WebAssembly (see `wasm`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...store.records import Json
from ..tools import Tool, ToolOutput

__all__ = ["BadImage", "Grant", "Offer", "Program", "Sandbox"]


class BadImage(Exception):
    """An image that cannot be run, or that failed: its author's or its declarer's to mend. `str` says why."""


@dataclass(frozen=True)
class Grant:
    """What an agent's declaration lets an image reach; nothing else is there for it."""

    hosts: frozenset[str] = frozenset()
    """The host functions, such as `crab.log`."""
    root: str = ""
    """The folder that those of them are bounded by which read files, "" for none."""


@dataclass(frozen=True)
class Offer:
    """What an image says of itself."""

    tools: list[Tool] = field(default_factory=list)
    usage: str = ""
    """What the system message says of it."""


class Program(Protocol):
    """A loaded image. It may be called for several agents at once; no call sees anything of another."""

    async def offer(self, grant: Grant) -> Offer:
        """What it offers to an agent with this grant. Raises BadImage, also if it needs more."""

    async def call(self, grant: Grant, name: str, arguments: Json) -> ToolOutput:
        """The answer to one call. Raises BadImage if it fails, takes too long or too much."""


class Sandbox(Protocol):
    """Loads images."""

    async def load(self, image: bytes) -> Program:
        """The program in an image; what it holds goes with the last reference. Raises BadImage."""

    async def close(self) -> None:
        """End every call that goes on."""
