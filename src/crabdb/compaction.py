"""Copies what lives in one log into a fresh file, each record checked on the way, for `CrabDB` to swap in.

The old file is only read. What is written to it meanwhile is noted in its journal and copied in rounds, the
last of which the caller runs while nobody writes. A record that does not check stops the copy: nothing is
dropped silently.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from crabdb.log import FRAMED_TOGETHER, Log, Staged, stage_delete, stage_put
from crabdb.reading import read_values

__all__ = ["copy_changes", "copy_live", "finish_copy"]

READ_TOGETHER = 1000
"""Keys whose values are looked up in one call, so that neighbours in the file are read together."""


def copy_live(old: Log, entries: Iterable[tuple[int, bytes, bytes]], new: Log) -> Iterator[None]:
    """Copy these entries of the old log; a generator that yields after each piece of work."""
    batch: list[Staged] = []
    size = 0
    rest = iter(entries)
    while piece := list(islice(rest, READ_TOGETHER)):
        for (col, key, _), value in zip(piece, read_values(old.file, old.path, piece), strict=True):
            staged = stage_put(col, key, value)
            if batch and size + len(staged[2]) > FRAMED_TOGETHER:
                new.append(batch)
                batch, size = [], 0
            batch.append(staged)
            size += len(staged[2])
        yield
    if batch:
        new.append(batch)


def copy_changes(old: Log, new: Log) -> int:
    """Bring the new log up to the journal of the old one; how many keys that were."""
    journal = old.journal or []
    touched = list(dict.fromkeys(journal[:]))
    del journal[: len(journal)]
    batch = []
    for col, key in touched:
        location = old.index.maps[col].get(key)
        if location is not None:
            batch.append(stage_put(col, key, read_values(old.file, old.path, [(col, key, location)])[0]))
        elif key in new.index.maps[col]:
            batch.append(stage_delete(col, key))
    for staged in batch:
        new.append([staged])
    return len(batch)


def finish_copy(new: Log) -> None:
    """Give the new file a snapshot and a header that points at it."""
    if snapshot := new.append_snapshot():
        new.use_snapshot(*snapshot)
