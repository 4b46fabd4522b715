"""Puts a snapshot of a log's index into the log, in steps that those who append meanwhile do not wait for.

The index is read a page at a time while it changes. So what the snapshot says of a key that was changed since
the first page may be out of date; but before the header points at it, each such key is written once more
behind it, and whoever starts from the snapshot replays that.
"""

from collections.abc import Generator, Iterable, Iterator
from threading import Lock
from zlib import crc32

from crabdb.format import (
    FRAME_SIZE,
    LENGTH_LIMIT,
    LOCATION,
    RECORD_OVERHEAD,
    SNAPSHOT_PREFIX_SIZE,
    SnapshotEncoder,
    encode_header,
    snapshot_prefix,
)
from crabdb.index import Change
from crabdb.log import Journal, Log
from crabdb.reading import read_value
from crabdb.replay import Snapshot
from crabdb.steps import PIECE, PIECE_KEYS, Step

__all__ = ["current", "snapshot_steps", "take_keys"]


def snapshot_steps(log: Log, appending: Lock) -> Generator[Step, None, tuple[bytes, Snapshot] | None]:
    """The steps that commit a snapshot; the header to write once everything is durable, and its place.

    None, and nothing was written, if the index is too large for the value of a record. Nobody else may begin a
    snapshot of this log meanwhile. Raises `Corrupted`, `ReadFailed`, `DiskFull`, `StoreFailed`; the last snapshot
    then stays in use.
    """
    journal: Journal = {}
    with appending:
        log.journals.append(journal)
    try:
        encoder = SnapshotEncoder(log.identity_at, log.identity.salt)
        for page in log.index.pages(PIECE_KEYS):
            encoder.add(page)
            yield Step.BRIEF
        parts, root = encoder.finish()
        value_len = sum(map(len, parts))
        if value_len > LENGTH_LIMIT:
            return None
        yield Step.BRIEF
        crc = crc32(snapshot_prefix(value_len), log.identity.salt)
        pieces = []
        for piece in _joined(parts):
            crc = crc32(piece, crc)
            pieces.append(piece)
            yield Step.BRIEF
        with appending:
            place = log.begin_snapshot(pieces, crc)
            _forget(log, journal)
    except BaseException:
        _forget(log, journal)
        raise
    while log.write_snapshot(appending):
        yield Step.BRIEF
    while journal:
        _write_again(log, take_keys(journal), appending)
        yield Step.BRIEF
    return encode_header(place.at + FRAME_SIZE + SNAPSHOT_PREFIX_SIZE, value_len, root), place


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about PIECE; the last one is not empty."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        if size + len(part) > PIECE and piece:
            yield b"".join(piece)
            piece, size = [], 0
        piece.append(part)
        size += len(part)
    yield b"".join(piece)


def _forget(log: Log, journal: Journal) -> None:
    # By identity: two journals may be equal.
    log.journals[:] = [other for other in log.journals if other is not journal]


def take_keys(journal: Journal) -> list[tuple[int, bytes]]:
    """Take as many keys out of a journal as fit in a step. Others may add to it meanwhile."""
    return [journal.popitem()[0] for _ in range(min(len(journal), PIECE_KEYS))]


def _write_again(log: Log, keys: list[tuple[int, bytes]], appending: Lock) -> None:
    with appending:
        for changes in current(log, keys):
            log.append(changes)


def current(log: Log, keys: Iterable[tuple[int, bytes]]) -> Iterator[list[Change]]:
    """What these keys hold now, as changes, in lists of at most PIECE bytes, unless one record is larger.

    Raises `Corrupted`, `ReadFailed`.
    """
    changes: list[Change] = []
    size = 0
    for col, key in keys:
        location = log.index.maps[col].get(key)
        length = RECORD_OVERHEAD + len(key) + (LOCATION.unpack(location)[1] if location else 0)
        if changes and size + length > PIECE:
            yield changes
            changes, size = [], 0
        value = None if location is None else read_value(log.file, log.path, key, location)
        changes.append((col, key, value))
        size += length
    if changes:
        yield changes
