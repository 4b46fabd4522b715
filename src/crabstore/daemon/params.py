"""What an operation takes, as a record whose unknown members are errors."""

from __future__ import annotations

import msgspec

__all__ = ["Nothing", "Params"]


class Params(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What an operation takes: the members of its query string, or of its body."""


class Nothing(Params, frozen=True):
    """An operation takes nothing."""
