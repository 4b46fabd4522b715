"""What a name may be: agents, memory entries and harness images are addressed by names that people type. Pure."""

from __future__ import annotations

import unicodedata

from .errors import InvalidArgument

__all__ = ["MAX_NAME", "require_name"]

MAX_NAME = 128
"""Characters of a name: what fits a line of a listing, and a key part of any engine."""


def require_name(kind: str, name: str) -> str:
    """`name`, if it is 1 to 128 characters of text without control characters; else InvalidArgument."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
        raise InvalidArgument(f"{kind} name", name, f"must be 1 to {MAX_NAME} characters")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        raise InvalidArgument(
            f"{kind} name", name, "must not hold control characters or half a surrogate pair"
        )
    return name
