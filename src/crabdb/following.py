"""Keeps a read-only handle up with a file that another process writes.

Commits that were appended are taken in one by one, each whole or not at all. Whatever else has happened to the
file (a compaction renamed another one over it, a tail was cut off, another writer left records without a
frame) leads to opening it anew. Never writes, takes no lock, and waits for nobody.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import error as StructError
from typing import Final, NamedTuple
from zlib import crc32

from crabdb.files import Files
from crabdb.format import (
    BODY_LIMIT,
    DELETE,
    FRAME_PREFIX,
    FRAME_SIZE,
    LENGTH,
    LOCATION,
    PUT,
    RECORD,
    RECORD_OVERHEAD,
    RESERVED,
    SNAPSHOT_PREFIX_SIZE,
    Frame,
    decode_frame,
    snapshot_prefix,
)
from crabdb.index import Entry
from crabdb.log import Log
from crabdb.opening import Opened, open_reader, typed_errors
from crabdb.replay import Damage, Snapshot, Window

__all__ = ["follow", "torn_tail"]

ATTEMPTS: Final = 5
"""How often a file is opened whose name passes to another one meanwhile. The last one is as good as any, only
not the newest.
"""


class Commit(NamedTuple):
    """A frame, and what it commits: entries of the index, or a snapshot of it."""

    frame: Frame
    entries: list[Entry]
    snapshot: Snapshot | None


def follow(files: Files, path: Path, opened: Opened) -> Opened | None:
    """What a reader is to show from now on; None if nothing has changed.

    Raises `NotFound` if the store is gone, and as `open_reader`.
    """
    with typed_errors(path):
        inode = files.inode(path)
        if inode is None:
            raise FileNotFoundError
        size = opened.log.file.size()
        if inode != opened.log.file.inode() or not _is_there_still(opened, size):
            return _reopened(files, path, opened.log)
        return _caught_up(files, path, opened, size)


def torn_tail(log: Log) -> int:
    """How many bytes lie behind a log that do not begin with a commit, even by now."""
    size = log.file.size()
    try:
        return 0 if size < log.end or next(_commits(log, size), None) else size - log.end
    except Damage:
        return 0


def _is_there_still(opened: Opened, size: int) -> bool:
    """Whether the file still holds the last commit that we have, where we have it."""
    log, at = opened.log, opened.found.last_frame
    if size < log.end or at is None:
        return size >= log.end
    frame = decode_frame(log.file.read(FRAME_SIZE, at), 0, log.identity.salt)
    return frame is not None and frame.head_crc == log.prev_crc


def _reopened(files: Files, path: Path, old: Log) -> Opened:
    opened = open_reader(files, path)
    for _ in range(ATTEMPTS - 1):
        if opened.log.file.inode() == files.inode(path):
            break
        opened = open_reader(files, path)
    opened.log.epoch = old.epoch + old.end + 1 - opened.log.end
    return opened


def _caught_up(files: Files, path: Path, opened: Opened, size: int) -> Opened | None:
    """Take in what was appended; open anew if what follows is nothing that this writer is about to finish."""
    log, last_frame = opened.log, opened.found.last_frame
    start = log.end
    try:
        for commit in _commits(log, size):
            log.take_in(*commit)
            last_frame = commit.frame.at
    except Damage:
        # The file was cut while it was read, which the next look at it will notice.
        size = log.end
    rest = size - log.end
    if rest and (log.end, rest) != (start, opened.found.torn) and not _is_begun(log, size):
        return _reopened(files, path, log)
    if log.end == start:
        return None
    return replace(opened, found=replace(opened.found, torn=rest, last_frame=last_frame))


def _is_begun(log: Log, size: int) -> bool:
    """Whether the bytes behind the log may be the beginning of a commit that is being written."""
    data = log.file.read(min(FRAME_SIZE, size - log.end), log.end)
    if len(data) < FRAME_SIZE:
        return data[: len(FRAME_PREFIX)] == FRAME_PREFIX[: len(data)]
    frame = _next_frame(log, data, 0, log.end, log.prev_crc)
    return frame is not None and log.end + FRAME_SIZE + frame.body_len > size


def _next_frame(log: Log, data: bytes | memoryview, place: int, at: int, prev_crc: int) -> Frame | None:
    frame = decode_frame(data, place, log.identity.salt)
    return frame if frame is not None and (frame.at, frame.prev_crc) == (at, prev_crc) else None


def _commits(log: Log, size: int) -> Iterator[Commit]:
    """The whole commits between the end of a log and byte `size`. Raises `Damage` if the file becomes shorter."""
    window = Window(log.file, size)
    at, prev_crc = log.end, log.prev_crc
    while size - at >= FRAME_SIZE:
        frame = _next_frame(log, *window.cover(at, FRAME_SIZE), at, prev_crc)
        if frame is None or frame.body_len > size - at - FRAME_SIZE:
            return
        commit = _commit(log, window, frame)
        if commit is None:
            return
        yield commit
        at, prev_crc = at + FRAME_SIZE + frame.body_len, frame.head_crc


def _commit(log: Log, window: Window, frame: Frame) -> Commit | None:
    """What a frame commits; None if that does not check, or is too large to look at in one piece."""
    start = frame.at + FRAME_SIZE
    value_len = frame.body_len - SNAPSHOT_PREFIX_SIZE
    if value_len >= 0 and window.bytes(start, SNAPSHOT_PREFIX_SIZE) == snapshot_prefix(value_len):
        # Whatever it says, this index is newer.
        return Commit(frame, [], Snapshot(frame.at, FRAME_SIZE + frame.body_len))
    if frame.body_len > BODY_LIMIT:
        return None
    view, place = window.cover(start, frame.body_len)
    body = view[place : place + frame.body_len]
    if crc32(body, log.identity.salt) != frame.body_crc:
        return None
    return Commit(frame, _entries(body, start), None)


def _entries(body: memoryview, start: int) -> list[Entry]:
    """The records of a body that begins at byte `start` of the file. Raises `Damage` if they do not fit in it."""
    entries: list[Entry] = []
    at = 0
    while at < len(body):
        try:
            op, col, key_len = RECORD.unpack_from(body, at)
            value_at = at + RECORD_OVERHEAD + key_len
            end = value_at + LENGTH.unpack_from(body, value_at - LENGTH.size)[0]
        except StructError:
            end = len(body) + 1
        if end > len(body) or op > DELETE:
            raise Damage(start + at, "a record does not fit in its commit")
        if col != RESERVED:
            key = bytes(body[at + RECORD.size : value_at - LENGTH.size])
            where = LOCATION.pack(start + at, end - value_at, crc32(body[value_at:end]))
            entries.append((col, key, where if op == PUT else None))
        at = end
    return entries
