"""The end of a store's file where commits are appended: all of one or nothing, and a failure that sticks.

A `Log` is one file together with the index over it; whoever holds one can go on reading that file even
after a compaction has put another in its place. Locking is the caller's: one thread at a time in `append*`
and `write_header`.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import NoReturn
from zlib import crc32

from crabdb.errors import DiskFull, StoreFailed
from crabdb.files import NO_ROOM, File
from crabdb.format import (
    FRAME_SIZE,
    HEADER_SIZE,
    IDENTITY_RECORD_SIZE,
    LOCATION,
    SNAPSHOT_PREFIX_SIZE,
    Frame,
    Identity,
    encode_attestation,
    encode_frame,
    encode_put,
    encode_records,
    snapshot_prefix,
    snapshot_size,
)
from crabdb.index import Change, Entry, Index
from crabdb.replay import Snapshot
from crabdb.steps import PIECE, PIECE_KEYS

__all__ = ["Journal", "Log"]

Journal = dict[tuple[int, bytes], None]
"""Columns and keys, each once, in the order of their first change."""


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
        self.journals: list[Journal] = []
        """Where the column and key of every change are noted, for long work that reads what others change."""
        self._unwritten: deque[tuple[int, bytes]] = deque()
        self._begun: tuple[Snapshot, int] | None = None

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
        if old is None and index.base is not None:
            old = index.lift(col, key)
        try:
            self.file.write(data, at)
            index.put(col, key, location, old, size - FRAME_SIZE)
            if self.journals:
                self._note(((col, key, value),))
            self.prev_crc = head_crc
            self.end = at + size
        except BaseException as error:
            self._undo(at, prev_crc, error, ((col, key, value),), (old,))
            raise

    def _note(self, changes: Sequence[Change]) -> None:
        for journal in self.journals:
            journal.update([((col, key), None) for col, key, _ in changes])

    def take_in(self, frame: Frame, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        """Note the commit that another process has appended: the entries it changes, or the snapshot it holds."""
        olds: list[bytes | None] = []
        try:
            self.index.take_in(entries, olds)
        except BaseException:
            self.index.restore(entries, olds)
            raise
        self._note(entries)
        self.prev_crc = frame.head_crc
        self.durable = max(self.durable, frame.durable)
        self.snapshot = snapshot or self.snapshot
        self.end = frame.at + FRAME_SIZE + frame.body_len

    def begin_snapshot(self, pieces: Sequence[bytes], crc: int) -> Snapshot:
        """Commit a snapshot whose value is made of these pieces, and whose record has this sum, without writing
        more than its two ends yet: `write_snapshot` does the rest, piece by piece, while others append behind it.

        A snapshot of which a crash left only the frame is stepped over: it is derived from what precedes it.
        Raises as `append`.
        """
        self.check()
        at, prev_crc, value_len = self.end, self.prev_crc, sum(map(len, pieces))
        prefix = snapshot_prefix(value_len)
        # The frame that vouches for so many bytes with this sum, whether they stand before it or behind.
        frame, head_crc = encode_attestation(
            len(prefix) + value_len, crc, at=at, prev_crc=prev_crc, durable=self.durable, salt=self._salt
        )
        start = at + len(frame) + len(prefix)
        try:
            self.file.write(frame + prefix, at)
            self.file.write(pieces[-1], start + value_len - len(pieces[-1]))
            self.prev_crc = head_crc
            self.end = start + value_len
        except BaseException as error:
            self._undo(at, prev_crc, error, (), ())
            raise
        offsets = accumulate(map(len, pieces[:-1]), initial=start)
        self._unwritten = deque(zip(offsets, pieces[:-1], strict=False))
        self._begun = Snapshot(at, self.end - at), prev_crc
        return self._begun[0]

    def write_snapshot(self, appending: Lock) -> bool:
        """Write the next piece of a snapshot that was begun; False if all of it is there.

        Needs no lock of the caller's; `appending` is taken if it has to be given up. Raises `DiskFull`,
        `StoreFailed`.
        """
        if not self._unwritten:
            self._begun = None
            return False
        self.check()
        at, piece = self._unwritten[0]
        try:
            self.file.write(piece, at)
        except OSError as error:
            self._unwritten.clear()
            with appending:
                self._give_up_snapshot(error)
            raise
        self._unwritten.popleft()
        return True

    def _give_up_snapshot(self, error: OSError) -> None:
        """Cut a snapshot off that cannot be finished, unless something was appended behind it: then it stays,
        dead, for a compaction to drop. Raises `DiskFull`, `StoreFailed`.
        """
        begun, self._begun = self._begun, None
        if begun is not None and self.end == begun[0].at + begun[0].size:
            self._undo(begun[0].at, begun[1], error, (), ())
        if error.errno in NO_ROOM:
            raise DiskFull(self.path, error) from error
        self.fail(error)

    @property
    def unwritten(self) -> list[tuple[int, bytes]]:
        """Where pieces of a snapshot that was begun are still to be written, and what they are."""
        return list(self._unwritten)

    @property
    def whole_end(self) -> int:
        """Where the log ends without a snapshot that is being written at its very end."""
        begun = self._begun[0] if self._begun is not None and self._unwritten else None
        return begun.at if begun is not None and begun.at + begun.size == self.end else self.end

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
        self.index.lift_all(changes)
        try:
            self.file.write(data, at)
            self.index.apply(changes, at + FRAME_SIZE, olds)
            if self.journals:
                self._note(changes)
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
        # Long work may have seen what is gone now.
        self._note(changes)
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
        frames = FRAME_SIZE * (2 + max(index.live // PIECE, len(index) // PIECE_KEYS))
        start = HEADER_SIZE + IDENTITY_RECORD_SIZE + SNAPSHOT_PREFIX_SIZE
        return start + frames + index.live + snapshot_size(len(index), index.key_bytes)
