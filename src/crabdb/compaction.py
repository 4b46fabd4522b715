"""Copies what lives in one log into a fresh file, each record checked on the way, for `CrabDB` to swap in.

The old file is only read. What is written to it meanwhile is noted in a journal and copied in rounds, the last of
which the caller runs while nobody writes. A record that does not check stops the copy: nothing is dropped
silently.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Final

from crabdb.errors import DiskFull
from crabdb.files import Files
from crabdb.format import BODY_LIMIT, LOCATION, RECORD_OVERHEAD
from crabdb.index import Change
from crabdb.log import Journal, Log
from crabdb.reading import read_values
from crabdb.snapshot import FEW, ROUNDS, current, snapshot_steps, take_keys
from crabdb.steps import PIECE, PIECE_KEYS, Step

__all__ = [
    "catch_up",
    "check_room",
    "copy_live",
    "copy_rest",
    "copy_snapshot",
    "draw_level",
    "finish_copy",
    "settle",
]

SYNC_EVERY: Final = 1 << 20
"""Bytes after which the copy is synced, so that nobody ever waits for much more than these."""

MARGIN: Final = 1 << 20
"""Bytes that must stay free beside the copy."""

Entry = tuple[int, bytes, bytes]


def check_room(files: Files, old: Log) -> None:
    """Refuse to begin a copy that would fill the disk. Raises `DiskFull`."""
    if files.room(old.path.parent) < old.size_compacted() + MARGIN:
        raise DiskFull(
            old.path, OSError(errno.ENOSPC, "not enough room for the copy that a compaction makes")
        )


def copy_live(old: Log, new: Log) -> Iterator[Step]:
    """Copy what the old log holds; what changes meanwhile is copied as it was, as it is, or not at all."""
    synced = new.end
    for batch in _batches(old.index.pages(PIECE_KEYS)):
        if batch:
            _copy(old, new, batch)
        yield Step.BRIEF
        if new.end - synced >= SYNC_EVERY:
            yield Step.WAITING
            new.sync(new.end)
            synced = new.end
            yield Step.BRIEF


def _batches(pages: Iterable[list[Entry]]) -> Iterator[list[Entry]]:
    """The same entries in as few batches as can be, each a step's work; or an empty one where more is to come."""
    batch: list[Entry] = []
    size = 0
    for page in pages:
        for entry in page:
            length = RECORD_OVERHEAD + len(entry[1]) + LOCATION.unpack(entry[2])[1]
            if batch and (size + length > PIECE or len(batch) >= PIECE_KEYS):
                yield batch
                batch, size = [], 0
            batch.append(entry)
            size += length
        yield []
    yield batch


def _copy(old: Log, new: Log, entries: list[Entry]) -> None:
    values = read_values(old.file, old.path, [entry[1] for entry in entries], [entry[2] for entry in entries])
    new.append([(col, key, value) for (col, key, _), value in zip(entries, values, strict=True)])


def catch_up(old: Log, new: Log, journal: Journal) -> Iterator[Step]:
    """Copy what has changed until little is left, or until it is clear that writers are faster."""
    for _ in range(ROUNDS):
        left = len(journal)
        while left > 0 and len(journal) > FEW:
            left -= copy_changes(old, new, journal)
            yield Step.BRIEF


def settle(old: Log, new: Log, journal: Journal) -> Iterator[Step]:
    """Sync the new log, and copy and sync what was written meanwhile, until a sync takes no longer than one must:
    what is left for the moment in which writers have to wait is then as little as it can be.
    """
    for _ in range(ROUNDS):
        yield Step.WAITING
        new.sync(new.end)
        yield Step.BRIEF
        if len(journal) <= FEW:
            return
        yield from catch_up(old, new, journal)


def copy_changes(old: Log, new: Log, journal: Journal) -> int:
    """Take some keys out of the journal, and let them hold in the new log what they hold in the old; how many."""
    keys = take_keys(journal)
    for changes in current(old, keys):
        if known := _known(new, changes):
            new.append(known)
    return len(keys)


def draw_level(old: Log, new: Log, journal: Journal, appending: Lock) -> None:
    """Sync the new log as of a moment between two commits of the old one, until few have been made since."""
    for _ in range(ROUNDS):
        with appending:
            copy_rest(old, new, journal)
        new.sync(new.end)
        if len(journal) <= FEW:
            return


def copy_rest(old: Log, new: Log, journal: Journal) -> None:
    """While nobody writes, let the new log hold what the old one does. If it was level with a moment between two
    commits and was synced then, so it is after a loss of power, or has all of this.
    """
    changes = [change for piece in current(old, journal) for change in piece]
    journal.clear()
    if known := _known(new, changes):
        if sum(RECORD_OVERHEAD + len(key) + len(value or b"") for _, key, value in known) <= BODY_LIMIT:
            new.append(known)
            return
        for change in known:
            new.append([change])
        new.sync(new.end)


def _known(new: Log, changes: Sequence[Change]) -> list[Change]:
    """Without the deletes of what was never copied."""
    return [change for change in changes if change[2] is not None or new.index.find(*change[:2]) is not None]


def copy_snapshot(new: Log) -> Iterator[Step]:
    """Give the new file, which nobody else has yet, a snapshot and a header that points at it."""
    taken = yield from snapshot_steps(new, Lock())
    if taken is not None:
        new.use_snapshot(*taken)


def finish_copy(new: Log) -> None:
    """As `copy_snapshot`, all at once."""
    for _ in copy_snapshot(new):
        pass
