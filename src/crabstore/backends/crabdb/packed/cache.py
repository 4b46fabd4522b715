"""A cache of what was read and unpacked, bounded in bytes; what was not asked for longest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

__all__ = ["Cache"]


class Cache:
    """Values by key, at most `limit` bytes of them by their own account."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._values: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def get(self, key: Hashable) -> Any | None:
        """What is kept under `key`, or None. A kind of key has one kind of value: the caller knows which."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[1]

    def put(self, key: Hashable, value: Any, *, size: int) -> None:
        """Keep a value of `size` bytes."""
        old = self._values.pop(key, None)
        self._held += size - (old[0] if old else 0)
        self._values[key] = (size, value)
        while self._held > self._limit and len(self._values) > 1:
            _, (gone, _) = self._values.popitem(last=False)
            self._held -= gone
