"""Batch: the one concept of atomicity. Staged writes, what they presuppose, and counters that commute.

Nothing here touches a store but to read through to it; `KVStorage.commit` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from .errors import BadRecord, InvalidArgument, OutsideRealm

if TYPE_CHECKING:
    from .kv import KVStorage

__all__ = ["Batch", "Column", "add_counters"]


class Column(IntEnum):
    """The hard partitions of the keyspace: a scan in one never sees another's keys."""

    AGENT = 0
    SESSION = 1
    MEMORY = 2
    SKILL = 3
    HARNESS = 4
    CONFIG = 5
    TEXT = 6


Slot = tuple[Column, bytes]


class Batch:
    """Writes that become visible together or not at all (on engines that can; see `KVStorage.commit`).

    Reads go through the batch to the store, so that a step of a compound operation sees the earlier ones.
    Order is kept: stage content before the index entries that point at it, and deletes the other way round,
    so that an engine without transactions leaves at worst content that nothing reaches.
    """

    def __init__(self, store: KVStorage) -> None:
        self._store = store
        self._root = store.prefix()
        self.writes: dict[Slot, bytes | None] = {}
        """What to write, in order; None deletes."""
        self.expected: dict[Slot, bytes | None] = {}
        """What the store must hold for the commit to go through; None means absent."""
        self.added: dict[Slot, dict[str, int]] = {}
        """Counters to raise in JSON objects, whatever they are at the commit."""

    def __bool__(self) -> bool:
        return bool(self.writes or self.added)

    def put(self, col: Column, key: bytes, value: bytes) -> None:
        """Stage a write."""
        if not isinstance(value, bytes):
            raise InvalidArgument("value", value, "must be bytes")
        self._stage(col, key, value)

    def delete(self, col: Column, key: bytes) -> None:
        """Stage a delete; deleting what is not there is no error."""
        self._stage(col, key, None)

    def expect(self, col: Column, key: bytes, old: bytes | None) -> None:
        """Let the commit raise Conflict, and write nothing, unless the store holds `old` (None: nothing) there.

        The first expectation of a key counts: later ones would describe this batch's own writes.
        """
        self._admit(col, key)
        self.expected.setdefault((col, key), old)

    def add(self, col: Column, key: bytes, deltas: Mapping[str, int]) -> None:
        """Raise counters of the JSON object there, which starts as ``{}``. Additions commute: none conflicts."""
        slot = (col, key)
        if slot in self.writes:
            self.writes[slot] = add_counters(key, self.writes[slot], deltas)
            return
        self._admit(col, key)
        counters = self.added.setdefault(slot, {})
        for name, delta in deltas.items():
            counters[name] = counters.get(name, 0) + delta

    async def get(self, col: Column, key: bytes) -> bytes | None:
        """The value as it will be after this batch."""
        slot = (col, key)
        if slot in self.writes:
            return self.writes[slot]
        value = await self._store.get(col, key)
        return add_counters(key, value, self.added[slot]) if slot in self.added else value

    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        """The keys under `prefix`, ascending, as they will be after this batch."""
        keys = set(await self._store.scan_keys(col, prefix))
        for (staged_col, key), value in self.writes.items():
            if staged_col == col and key.startswith(prefix):
                (keys.discard if value is None else keys.add)(key)
        keys.update(key for staged_col, key in self.added if staged_col == col and key.startswith(prefix))
        return sorted(keys)

    def resolved(self, counters: Mapping[Slot, bytes | None]) -> Mapping[Slot, bytes | None]:
        """All writes in order, the counters last, given what the store holds under the keys of `added`.

        Raises BadRecord if a value there is no object of counters.
        """
        if not self.added:
            return self.writes
        raised = {slot: add_counters(slot[1], counters[slot], deltas) for slot, deltas in self.added.items()}
        return {**self.writes, **raised}

    def _stage(self, col: Column, key: bytes, value: bytes | None) -> None:
        self._admit(col, key)
        slot = (col, key)
        self.added.pop(slot, None)
        # A key staged again moves to the end: its last write decides where it stands in the order.
        self.writes.pop(slot, None)
        self.writes[slot] = value

    def _admit(self, col: Column, key: bytes) -> None:
        if not isinstance(col, Column):
            raise InvalidArgument("column", col, "must be a crabstore.Column")
        if not isinstance(key, bytes):
            raise InvalidArgument("key", key, "must be bytes")
        if not key.startswith(self._root):
            raise OutsideRealm(key, self._store.realm())


def add_counters(key: bytes, value: bytes | None, deltas: Mapping[str, int]) -> bytes:
    """The JSON object `value` (``{}`` if None) with each counter raised by its delta.

    Raises BadRecord if `value` is no JSON object of integers; `key` is only named in the error.
    """
    try:
        counters = msgspec.json.decode(value, type=dict[str, int]) if value is not None else {}
    except msgspec.DecodeError as error:
        raise BadRecord(key, str(error)) from error
    for name, delta in deltas.items():
        counters[name] = counters.get(name, 0) + delta
    return msgspec.json.encode(counters)
