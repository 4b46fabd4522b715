"""What a tool is to a model, and what it answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..store.records import Json

__all__ = ["Tool", "ToolOutput"]


def _no_parameters() -> dict[str, Json]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Tool:
    """A tool as a model is told of it."""

    name: str
    """1 to 64 letters, digits, `_` or `-`: what every provider accepts."""
    description: str = ""
    parameters: dict[str, Json] = field(default_factory=_no_parameters)
    """The JSON schema of its arguments, an object's."""


@dataclass(frozen=True)
class ToolOutput:
    """What a tool answered to one call."""

    text: str
    is_error: bool = False
