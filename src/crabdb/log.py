"""The end of a store's file where commits are appended: all of one or nothing, and a failure that sticks.

A `Log` is one file together with the index over it; whoever holds one can go on reading that file even
after a compaction has put another in its place. Locking is the caller's: one thread at a time in `append*`
and `write_header`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn
from zlib import crc32

from crabdb.errors import DiskFull, StoreFailed
from crabdb.files import NO_ROOM, File
from crabdb.format import (
    FRAME_SIZE,
    HEADER_SIZE,
    IDENTITY_RECORD_SIZE,
    LENGTH_LIMIT,
    LOCATION,
    SNAPSHOT_PREFIX_SIZE,
    Frame,
    Identity,
    encode_frame,
    encode_header,
    encode_put,
    encode_records,
    encode_snapshot,
    snapshot_prefix,
    snapshot_size,
)
from crabdb.index import Change, Entry, Index
from crabdb.replay import Snapshot

__all__ = ["FRAMED_TOGETHER", "Log"]

FRAMED_TOGETHER: Final = 1 << 20
"""Bytes of records that a compaction puts into one frame."""


class Log:
    """One file, the index over it, and where the next frame goes."""

    def __init__(
        self,
        path: Path,
        file: File,
        index: Index,
        identity: Identity,
        identity_at: int,
        *,
        end: int,
        prev_crc: int,
        durable: int = 0,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.path = path
        self.file = file
        self.index = index
        self.identity = identity
        self._salt = identity.salt
        self.identity_at = identity_at
        self.end = end
        self.prev_crc = prev_crc
        self.durable = durable
        self.snapshot = snapshot
        self.epoch = 0
        """What the file's end counts from, so that it grows over compactions too."""
        self.failure: BaseException | None = None
        """The first error after which nothing written here can be trusted; it stays."""
        self.halfway: BaseException | None = None
        """Why an operation that must not be left half-way has begun; None again when it is through."""
        self.journal: list[tuple[int, bytes]] | None = None
        """While the file is being compacted: the column and key of every change since."""

    # Writing

    def check(self) -> None:
        """Raise `StoreFailed` if something forbids to write."""
        cause = self.failure or self.halfway
        if cause is not None:
            raise StoreFailed(self.path, cause)

    def append(self, changes: Sequence[Change]) -> None:
        """Commit changes as one frame. Raises `DiskFull`, `StoreFailed`; after any error nothing was written."""
        self._commit(encode_records(changes), changes)

    def append_put(self, col: int, key: bytes, value: bytes) -> None:
        """As `append`, of one put. Written out: this is the call whose cost everybody feels."""
        if self.failure is not None or self.halfway is not None:
            self.check()
        at, prev_crc, index = self.end, self.prev_crc, self.index
        location = LOCATION.pack(at + FRAME_SIZE, len(value), crc32(value))
        data, head_crc = encode_frame(encode_put(col, key, value), at, prev_crc, self.durable, self._salt)
        size = len(data)
        old = index.maps[col].get(key)
        try:
            self.file.write(data, at)
            index.put(col, key, location, old, size - FRAME_SIZE)
            if self.journal is not None:
                self.journal.append((col, key))
            self.prev_crc = head_crc
            self.end = at + size
        except BaseException as error:
            self._undo(at, prev_crc, error, ((col, key, value),), (old,))
            raise

    def take_in(self, frame: Frame, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        """Note the commit that another process has appended: the entries it changes, or the snapshot it holds."""
        self.index.take_in(entries)
        self.prev_crc = frame.head_crc
        self.durable = max(self.durable, frame.durable)
        self.snapshot = snapshot or self.snapshot
        self.end = frame.at + FRAME_SIZE + frame.body_len

    def append_snapshot(self) -> tuple[bytes, Snapshot] | None:
        """Commit a snapshot of the index as it is; the header to write once it is durable, and its place.

        None, and nothing is written, if the index is too large for the value of a record.
        """
        value, root = self._encode_snapshot()
        if len(value) > LENGTH_LIMIT:
            return None
        at = self.end
        self._commit(snapshot_prefix(len(value)) + value, ())
        header = encode_header(at + FRAME_SIZE + SNAPSHOT_PREFIX_SIZE, len(value), root)
        return header, Snapshot(at, self.end - at)

    def _encode_snapshot(self) -> tuple[bytes, int]:
        index = self.index
        return encode_snapshot(
            index.entries(),
            len(index),
            live=index.live,
            identity_at=self.identity_at,
            salt=self.identity.salt,
        )

    def use_snapshot(self, header: bytes, snapshot: Snapshot) -> None:
        """Overwrite the header, 32 bytes in one sector. Raises `DiskFull`, `StoreFailed`."""
        try:
            self.file.write(header, 0)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFull(self.path, error) from error
            self.fail(error)
        self.snapshot = snapshot

    def _commit(self, body: bytes, changes: Sequence[Change]) -> None:
        self.check()
        at, prev_crc = self.end, self.prev_crc
        data, head_crc = encode_frame(body, at, prev_crc, self.durable, self._salt)
        olds: list[bytes | None] = []
        try:
            self.file.write(data, at)
            self.index.apply(changes, at + FRAME_SIZE, olds)
            if self.journal is not None:
                self.journal.extend([(col, key) for col, key, _ in changes])
            self.prev_crc = head_crc
            self.end = at + len(data)
        except BaseException as error:
            self._undo(at, prev_crc, error, changes, olds)
            raise

    def _undo(
        self,
        end: int,
        prev_crc: int,
        error: BaseException,
        changes: Sequence[Change],
        olds: Sequence[bytes | None],
    ) -> None:
        """Make the file and the index what they were. Until that has succeeded, nothing more is written."""
        self.halfway = error
        try:
            self.file.truncate(end)
        except OSError as second:
            self.failure = second
            raise StoreFailed(self.path, second) from error
        self.index.restore(changes, olds)
        self.end, self.prev_crc = end, prev_crc
        self.halfway = None
        if isinstance(error, OSError):
            if error.errno in NO_ROOM:
                raise DiskFull(self.path, error) from error
            self.fail(error)

    def sync(self, end: int) -> None:
        """Make everything before `end` durable. Raises `StoreFailed`, for good: a second fsync would lie."""
        try:
            self.file.sync()
        except OSError as error:
            self.fail(error)
        self.durable = max(self.durable, end)

    def fail(self, error: OSError) -> NoReturn:
        """Note an error after which nothing written here can be trusted, and raise it as `StoreFailed`."""
        self.failure = error
        raise StoreFailed(self.path, error) from error

    # Accounting

    @property
    def overhead(self) -> int:
        """Bytes that are neither live records nor dead: the header, the identity, the snapshot in use."""
        identity = (
            IDENTITY_RECORD_SIZE + FRAME_SIZE if self.identity_at == HEADER_SIZE else IDENTITY_RECORD_SIZE
        )
        return HEADER_SIZE + identity + (self.snapshot.size if self.snapshot else 0)

    @property
    def dead(self) -> int:
        """Bytes of overwritten and deleted records, of tombstones, old snapshots and frames."""
        return self.end - self.overhead - self.index.live

    @property
    def tail(self) -> int:
        """Bytes to replay at the next opening."""
        start = self.snapshot.at + self.snapshot.size if self.snapshot else HEADER_SIZE
        return self.end - start

    def size_compacted(self) -> int:
        """About how large this file would be after a compaction."""
        index = self.index
        frames = FRAME_SIZE * (2 + index.live // FRAMED_TOGETHER)
        start = HEADER_SIZE + IDENTITY_RECORD_SIZE + SNAPSHOT_PREFIX_SIZE
        return start + frames + index.live + snapshot_size(len(index), index.key_bytes)
