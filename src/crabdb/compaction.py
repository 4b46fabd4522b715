"""Copies what lives in one log into a fresh file, each record checked on the way, for `CrabDB` to swap in.

The old file is only read. What is written to it meanwhile is noted in its journal and copied in rounds, the
last of which the caller runs while nobody writes. A record that does not check stops the copy: nothing is
dropped silently.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from crabdb.format import RECORD_OVERHEAD
from crabdb.index import Change
from crabdb.log import FRAMED_TOGETHER, Log
from crabdb.reading import read_value, read_values

__all__ = ["copy_changes", "copy_live", "finish_copy"]

READ_TOGETHER = 1000
"""Keys whose values are looked up in one call, so that neighbours in the file are read together."""


def copy_live(old: Log, entries: Iterable[tuple[int, bytes, bytes]], new: Log) -> Iterator[None]:
    """Copy these entries of the old log; a generator that yields after each piece of work."""
    batch: list[Change] = []
    size = 0
    rest = iter(entries)
    while piece := list(islice(rest, READ_TOGETHER)):
        values = read_values(old.file, old.path, [entry[1] for entry in piece], [entry[2] for entry in piece])
        for (col, key, _), value in zip(piece, values, strict=True):
            length = RECORD_OVERHEAD + len(key) + len(value)
            if batch and size + length > FRAMED_TOGETHER:
                new.append(batch)
                batch, size = [], 0
            batch.append((col, key, value))
            size += length
        yield
    if batch:
        new.append(batch)


def copy_changes(old: Log, new: Log) -> int:
    """Bring the new log up to the journal of the old one; how many keys that were."""
    journal = old.journal or []
    touched = journal[:]
    del journal[: len(touched)]
    for col, key in dict.fromkeys(touched):
        location = old.index.maps[col].get(key)
        if location is not None:
            new.append_put(col, key, read_value(old.file, old.path, key, location))
        elif key in new.index.maps[col]:
            new.append([(col, key, None)])
    return len(touched)


def finish_copy(new: Log) -> None:
    """Give the new file a snapshot and a header that points at it."""
    if snapshot := new.append_snapshot():
        new.use_snapshot(*snapshot)
