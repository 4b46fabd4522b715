"""Puts a snapshot of a log's index into the log, in steps that those who append meanwhile do not wait for.

The index is read a page at a time while it changes. So what the snapshot says of a key that was changed since
the first page may be out of date; but before the header points at it, each such key is written once more
behind it, and whoever starts from the snapshot replays that. The index then lies over the new snapshot, with
nothing in memory but those keys.
"""

from collections.abc import Generator, Iterable, Iterator
from threading import Lock
from typing import Final, NamedTuple
from zlib import crc32

from crabdb.base import Base
from crabdb.format import (
    FRAME_SIZE,
    LENGTH_LIMIT,
    LOCATION,
    RECORD_OVERHEAD,
    SNAPSHOT_PREFIX_SIZE,
    Foot,
    SnapshotEncoder,
    encode_header,
    snapshot_prefix,
)
from crabdb.index import Change, Index
from crabdb.log import Journal, Log
from crabdb.reading import read_value
from crabdb.recovery import base_over
from crabdb.replay import Snapshot
from crabdb.steps import PIECE, PIECE_KEYS, Step

__all__ = ["FEW", "ROUNDS", "current", "snapshot_steps", "take_keys"]

FEW: Final = 32
"""So few changes are taken over by long work while writers wait."""

ROUNDS: Final = 8
"""How often those are taken over that were made meanwhile, before writers that are faster have to wait."""


def snapshot_steps(log: Log, appending: Lock) -> Generator[Step, None, tuple[bytes, Snapshot] | None]:
    """The steps that commit a snapshot; the header to write once everything is durable, and its place.

    None, and nothing was written, if the index is too large for the value of a record. Nobody else may begin a
    snapshot of this log meanwhile. Raises `Corrupted`, `ReadFailed`, `DiskFull`, `StoreFailed`; the last snapshot
    then stays in use.
    """
    again: Journal = {}
    changed: Journal = {}
    with appending:
        log.journals += (again, changed)
    try:
        made = yield from _encode(log)
        if made.length > LENGTH_LIMIT:
            return None
        with appending:
            place = log.begin_snapshot(made.pieces, made.crc)
            _forget(log, again)
        while log.write_snapshot(appending):
            yield Step.BRIEF
        while again:
            _write_again(log, take_keys(again), appending)
            yield Step.BRIEF
        at = place.at + FRAME_SIZE + SNAPSHOT_PREFIX_SIZE
        base = base_over(log.file, log.path, at, made.length, made.foot, fences=made.fences, sums=made.sums)
        yield from _lay_over(log, base, changed, appending)
        return encode_header(at, made.length, made.foot.root), place
    finally:
        _forget(log, again)
        _forget(log, changed)


class Encoded(NamedTuple):
    """The value of a snapshot, in pieces; how long it is; the salted sum of its record; and what whoever reads it
    in place holds of it.
    """

    pieces: list[bytes]
    length: int
    crc: int
    foot: Foot
    fences: list[bytes]
    sums: bytes


def _encode(log: Log) -> Generator[Step, None, Encoded]:
    encoder = SnapshotEncoder(log.identity_at, log.identity.salt)
    for page in log.index.pages(PIECE_KEYS):
        encoder.add(page)
        yield Step.BRIEF
    parts, foot = encoder.finish()
    length = sum(map(len, parts))
    yield Step.BRIEF
    crc = crc32(snapshot_prefix(min(length, LENGTH_LIMIT)), log.identity.salt)
    pieces: list[bytes] = []
    for piece in _joined(parts):
        crc = crc32(piece, crc)
        pieces.append(piece)
        yield Step.BRIEF
    return Encoded(pieces, length, crc, foot, encoder.fences, parts[-2])


def _lay_over(log: Log, base: Base, changed: Journal, appending: Lock) -> Iterator[Step]:
    """Give the log an index over this base and what was changed since its entries were read; others hold on to the
    old one.
    """
    index = Index(base=base)
    for _ in range(ROUNDS):
        left = len(changed)
        while left > 0 and len(changed) > FEW:
            keys = take_keys(changed)
            _take_over(log, index, keys)
            left -= len(keys)
            yield Step.BRIEF
    with appending:
        _take_over(log, index, list(changed))
        log.index = index


def _take_over(log: Log, index: Index, keys: Iterable[tuple[int, bytes]]) -> None:
    index.take_in([(col, key, log.index.find(col, key)) for col, key in keys], [])


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
        location = log.index.find(col, key)
        length = RECORD_OVERHEAD + len(key) + (LOCATION.unpack(location)[1] if location else 0)
        if changes and size + length > PIECE:
            yield changes
            changes, size = [], 0
        value = None if location is None else read_value(log.file, log.path, key, location)
        changes.append((col, key, value))
        size += length
    if changes:
        yield changes
