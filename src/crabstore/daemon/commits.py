"""A batch as it crosses from another process to the daemon. Pure."""

from __future__ import annotations

import msgspec

from ..store.batch import Batch, Column
from .params import Params

__all__ = ["Commit", "Counters", "Row"]


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A key and a value; None is its absence."""

    col: Column
    key: bytes
    value: bytes | None


class Counters(msgspec.Struct, array_like=True, frozen=True):
    """A key and by how much to raise the counters under it."""

    col: Column
    key: bytes
    deltas: dict[str, int]


class Commit(Params, frozen=True):
    """A batch: what the store must hold for it to be written, what to write in order, counters to raise."""

    expected: list[Row]
    writes: list[Row]
    added: list[Counters]

    @classmethod
    def of(cls, batch: Batch) -> Commit:
        """What is staged in `batch`."""
        return cls(
            expected=[Row(col, key, old) for (col, key), old in batch.expected.items()],
            writes=[Row(col, key, value) for (col, key), value in batch.writes.items()],
            added=[Counters(col, key, deltas) for (col, key), deltas in batch.added.items()],
        )

    def stage(self, batch: Batch) -> Batch:
        """`batch` with this in it. Raises OutsideRealm."""
        for row in self.expected:
            batch.expect(row.col, row.key, row.value)
        for row in self.writes:
            if row.value is None:
                batch.delete(row.col, row.key)
            else:
                batch.put(row.col, row.key, row.value)
        for counters in self.added:
            batch.add(counters.col, counters.key, counters.deltas)
        return batch
