"""Walks the log record by record and keeps what it says: one pass, streaming, trusting nothing it has not summed.

Knows frames, records without frames, and snapshots of either kind in between. Decides nothing about damage:
it raises `Damage` where the log stops making sense, and can be set to go on at a frame beyond.
"""

from dataclasses import dataclass
from struct import error as StructError
from typing import Final, NamedTuple
from zlib import crc32

from crabdb.files import File
from crabdb.format import (
    BODY_LIMIT,
    DELETE,
    ENTRY,
    FRAME_KEY,
    FRAME_SIZE,
    HEADER_SIZE,
    IDENTITY_KEY,
    LENGTH,
    LOCATION,
    OFFSET,
    PUT,
    RECORD,
    RECORD_OVERHEAD,
    RESERVED,
    SNAPSHOT_PREFIX_SIZE,
    Frame,
    Identity,
    Malformed,
    Newer,
    decode_frame,
    decode_identity,
    is_damaged_frame,
    salt_of_frame,
    snapshot_prefix,
)

__all__ = ["Damage", "Maps", "Replay", "Snapshot", "Unframed", "checksum"]

WINDOW: Final = 1 << 20
"""How much of the file is read at once, bytes."""

Maps = list[dict[bytes, bytes]]
"""Per column, keys and packed locations; the last is column 255 as a version-1 reader sees it."""


class Damage(Exception):
    """Bytes at `offset` that are no part of a good log, up to `end` if that is known. Internal: the opener adds
    the path and decides.
    """

    def __init__(self, offset: int, problem: str, end: int | None = None) -> None:
        super().__init__(offset, problem)
        self.offset = offset
        self.problem = problem
        self.end = end


class Unframed(Exception):
    """Something without a frame, which only a replay that knows all keys can judge. Internal, as `Damage`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a snapshot stands: the offset of its frame, and the bytes from there to its end."""

    at: int
    size: int


class Head(NamedTuple):
    """A record without its value, and where in the file that begins and ends."""

    op: int
    col: int
    key: bytes
    at: int
    value_at: int
    end: int


class Window:
    """A part of the file in memory that moves forward."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._start = 0
        self._view = memoryview(b"")

    def cover(self, at: int, length: int) -> tuple[memoryview, int]:
        """A buffer, and the place in it of the `length` bytes at `at`, which must lie within the file."""
        place = at - self._start
        if place < 0 or place + length > len(self._view):
            self._view = memoryview(self._file.read(min(max(length, WINDOW), self._size - at), at))
            self._start, place = at, 0
            if len(self._view) < length:
                raise Damage(at, "the file became shorter while it was read")
        return self._view, place

    def bytes(self, at: int, length: int) -> bytes:
        """A copy of these bytes of the file."""
        view, place = self.cover(at, length)
        return bytes(view[place : place + length])


def checksum(file: File, start: int, end: int, salt: int) -> int:
    """The sum of a stretch of the file, in pieces."""
    for at in range(start, end, WINDOW):
        salt = crc32(file.read(min(WINDOW, end - at), at), salt)
    return salt


class Replay:
    """One walk over the first `size` bytes of a file. `at` is the boundary reached so far."""

    def __init__(self, file: File, size: int, maps: Maps | None = None, *, over_base: bool = False) -> None:
        self._file = file
        self._size = size
        self._window = Window(file, size)
        self.maps: Maps = maps or [{} for _ in range(RESERVED + 1)]
        self._over_base = over_base
        """Whether the keys so far are elsewhere: then a deleted one is noted with an empty location."""
        self.at = HEADER_SIZE
        self.identity: Identity | None = None
        self.identity_at = 0
        self.salt: int | None = None
        self.prev_crc: int | None = 0
        self.durable = 0
        self.loose_at: int | None = None
        self.vouched: Snapshot | None = None
        """A snapshot of ours that the header vouches for, though something about it is damaged."""
        self.pointed: tuple[int, int] | None = None
        """Where the header says that another writer's snapshot is, and how long; good once it was met there."""
        self.pointed_is_good = False
        self.unfinished: tuple[Snapshot, int | None] | None = None
        """The last damaged snapshot that nobody vouches for, and the head_crc of the frame before it."""
        self.frames = self.records = self.spoiled = self.abandoned = 0
        self.last_frame: int | None = None
        self._undo: list[tuple[int, bytes, bytes | None]] = []
        self._seen: int | None = None
        """How many keys live outside of column 255, counted when there was a reason to."""

    def run(self, length: int) -> None:
        """Go on for so many bytes and to the end of a commit, or to the end of the file. Raises `Damage`; what was
        committed before it stays taken in.
        """
        stop = min(self._size, self.at + length)
        while self.at < stop:
            frame = self._frame_at(self.at)
            if frame is None:
                self._step_without_frame()
            elif self.loose_at is not None:
                self._attest(frame)
            else:
                self._commit(frame)

    def identify(self, identity: Identity, at: int) -> None:
        """From here on, frames carry this identity's salt."""
        self.identity, self.identity_at, self.salt = identity, at, identity.salt

    def follow(self, frame: Frame, end: int) -> None:
        """Step over a frame and what it commits, up to `end`."""
        self.prev_crc = frame.head_crc
        if frame.durable > self.durable:
            self.durable = min(frame.durable, frame.at)
        self.last_frame = frame.at
        self._seen = None
        self.frames += 1
        self.at = end

    def resume(self, frame: Frame, salt: int | None) -> None:
        """Go on at a frame beyond damage, whatever it follows."""
        self.at, self.salt = frame.at, salt
        self.prev_crc = self.loose_at = self._seen = None
        self._undo.clear()

    def forget_unfinished(self, end: int, durable: int) -> Damage | None:
        """If a log that ends at `end` ends with a damaged snapshot that was never durable: go back before it."""
        if self.unfinished is None:
            return None
        snapshot, prev_crc = self.unfinished
        if snapshot.at + snapshot.size != end or snapshot.at < durable:
            return None
        self.at, self.prev_crc = snapshot.at, prev_crc
        self.spoiled -= 1
        self.abandoned -= 1
        return Damage(snapshot.at, "a snapshot was not finished")

    def forget_loose(self) -> int:
        """Undo the records since the last boundary that no frame vouches for; where that boundary is."""
        for col, key, location in reversed(self._undo):
            if location is None:
                self.maps[col].pop(key, None)
            else:
                self.maps[col][key] = location
        self._undo.clear()
        boundary = self.at if self.loose_at is None else self.loose_at
        self.loose_at = self._seen = None
        return boundary

    # Frames

    def _frame_at(self, at: int) -> Frame | None:
        """The frame at a place. One that was moved there from elsewhere is a dead record, not a frame."""
        if self.salt is None or self._size - at < FRAME_SIZE:
            return None
        view, place = self._window.cover(at, FRAME_SIZE)
        frame = decode_frame(view, place, self.salt)
        return frame if frame is not None and frame.at == at else None

    def _check_chain(self, frame: Frame, start: int) -> None:
        if self.prev_crc is not None and frame.prev_crc != self.prev_crc:
            raise Damage(start, "this commit does not follow the one before it")

    def _attest(self, frame: Frame) -> None:
        start = self.at if self.loose_at is None else self.loose_at
        self._check_chain(frame, start)
        if frame.body_len != frame.at - start or self._sum(start, frame.at) != frame.body_crc:
            raise Damage(start, "these records do not match the frame that vouches for them")
        self.loose_at = None
        self._undo.clear()
        self.follow(frame, frame.at + FRAME_SIZE)

    def _sum(self, start: int, end: int) -> int:
        return checksum(self._file, start, end, self.salt or 0)

    def _commit(self, frame: Frame) -> None:
        self._check_chain(frame, frame.at)
        start = frame.at + FRAME_SIZE
        end = start + frame.body_len
        if end > self._size:
            raise Damage(frame.at, "the end of this commit is missing")
        if frame.body_len > BODY_LIMIT:
            self._commit_large(frame, start, end)
        else:
            view, place = self._window.cover(start, frame.body_len)
            body = view[place : place + frame.body_len]
            if crc32(body, self.salt or 0) == frame.body_crc:
                self._records(body, start)
            else:
                self._step_over_spoiled(frame, start)
        self.follow(frame, end)

    def _commit_large(self, frame: Frame, start: int, end: int) -> None:
        """A commit too large to hold in memory, which is one record."""
        if self._sum(start, end) != frame.body_crc:
            self._step_over_spoiled(frame, start)
            return
        head = self._head(start, end)
        if head.end != end:
            raise Damage(frame.at, "a commit of this size must be one record")
        self._take(head)

    def _step_over_spoiled(self, frame: Frame, start: int) -> None:
        """A snapshot is derived, so a damaged one costs nothing; any other damage does."""
        value_len = frame.body_len - SNAPSHOT_PREFIX_SIZE
        plain = value_len >= 0 and self._window.bytes(start, SNAPSHOT_PREFIX_SIZE) == snapshot_prefix(
            value_len
        )
        if not plain and not self._vouched_here():
            raise Damage(frame.at, "this commit does not match its checksum")
        if not self._vouched_here():
            self.abandoned += 1
            self.unfinished = Snapshot(frame.at, FRAME_SIZE + frame.body_len), self.prev_crc
        self.spoiled += 1

    def _records(self, body: memoryview, start: int) -> None:
        """Take in the records of a body whose sum is good and whose first byte is byte `start` of the file."""
        maps, record, length, pack = self.maps, RECORD.unpack_from, LENGTH.unpack_from, LOCATION.pack
        place, stop = 0, len(body)
        while place < stop:
            try:
                op, col, key_len = record(body, place)
                value_at = place + RECORD_OVERHEAD + key_len
                end = value_at + length(body, value_at - 4)[0]
            except StructError:
                end = stop + 1
            if end > stop or op > DELETE:
                raise Damage(start + place, "a record does not fit in its commit")
            key = bytes(body[place + 6 : value_at - 4])
            if op == PUT:
                maps[col][key] = pack(start + place, end - value_at, crc32(body[value_at:end]))
            else:
                self._forget(col, key)
            self.records += 1
            place = end

    # What stands outside of frames

    def _step_without_frame(self) -> None:
        if self.loose_at is None and self.vouched is not None and self._vouched_here():
            # The frame is damaged, but the header, whose sum is good, says that a snapshot stands here.
            self.spoiled += 1
            self.prev_crc = None
            self.at += self.vouched.size
            return
        self._refuse_damaged_frame()
        if self._over_base:
            raise Unframed
        end = self._bare_snapshot_end()
        if end is None:
            end = self._loose_record()
        if self.loose_at is None:
            self.loose_at = self.at
        self.at = end

    def _refuse_damaged_frame(self) -> None:
        """Keep a commit from being taken for records of another writer, because its frame or the identity is
        damaged.
        """
        if self._size - self.at < FRAME_SIZE:
            return
        view, place = self._window.cover(self.at, FRAME_SIZE)
        if self.salt is None:
            if salt_of_frame(view, place, self.at) is not None:
                raise Damage(self.at, "a commit stands here, but the identity of the store is lost")
        elif is_damaged_frame(view, place, self.at, self.salt):
            raise Damage(self.at, "the frame of a commit is damaged")

    def _vouched_here(self) -> bool:
        return self.vouched is not None and self.vouched.at == self.at

    def _loose_record(self) -> int:
        """Take in a record without a frame; where it ends."""
        at = self.at
        if self._size - at >= RECORD_OVERHEAD and not any(self._window.bytes(at, RECORD_OVERHEAD)):
            raise Damage(at, "zeros instead of a record")
        head = self._head(at, self._size)
        old = self.maps[head.col].get(head.key)
        self._undo.append((head.col, head.key, old))
        self._take(head)
        if self._seen is not None and head.col != RESERVED:
            self._seen += (head.op == PUT) - (old is not None)
        if head.col == RESERVED and head.key == IDENTITY_KEY and head.op == PUT:
            self.identify(self._identity(head), at)
        return head.end

    def _identity(self, head: Head) -> Identity:
        try:
            return decode_identity(self._window.bytes(head.value_at, min(head.end - head.value_at, 64)))
        except Newer:
            raise
        except Malformed as error:
            raise Damage(head.at, str(error)) from None

    def _head(self, at: int, limit: int) -> Head:
        """The record at `at`, which must end before `limit`."""
        if limit - at < RECORD_OVERHEAD:
            raise Damage(at, "the end of this record is missing")
        op, col, key_len = RECORD.unpack(self._window.bytes(at, RECORD.size))
        value_at = at + RECORD_OVERHEAD + key_len
        if op > DELETE:
            raise Damage(at, f"{op} is no operation")
        if value_at > limit:
            raise Damage(at, "the end of this record is missing")
        tail = self._window.bytes(at + RECORD.size, key_len + LENGTH.size)
        end = value_at + LENGTH.unpack_from(tail, key_len)[0]
        if end > limit:
            raise Damage(at, "the end of this record is missing")
        return Head(op, col, tail[:key_len], at, value_at, end)

    def _forget(self, col: int, key: bytes) -> None:
        if self._over_base:
            self.maps[col][key] = b""
        else:
            self.maps[col].pop(key, None)

    def _take(self, head: Head) -> None:
        self.records += 1
        if head.op == PUT:
            val_crc = checksum(self._file, head.value_at, head.end, 0)
            self.maps[head.col][head.key] = LOCATION.pack(head.at, head.end - head.value_at, val_crc)
        else:
            self._forget(head.col, head.key)

    # Snapshots of another writer, which stand in the log without a record around them

    def _bare_snapshot_end(self) -> int | None:
        """Where such a snapshot ends, if one begins here.

        It names exactly the keys that live at this point, with the places of their records, which no record
        can look like. Of column 255 it may lack any: its writer saw only what came after the snapshot it had
        loaded itself.
        """
        if self._seen is None:
            self._seen = sum(map(len, self.maps[:RESERVED]))
            if self.last_frame is not None:
                self.maps[RESERVED][FRAME_KEY] = LOCATION.pack(self.last_frame, 0, 0)
        if self._size - self.at < LENGTH.size:
            return None
        (count,) = LENGTH.unpack(self._window.bytes(self.at, LENGTH.size))
        if not 0 <= count - self._seen <= len(self.maps[RESERVED]):
            return None
        end = self._bare_entries_end(count) if count else self._bare_nothing_end()
        if end is not None and self.pointed == (self.at, end - self.at):
            self.pointed_is_good = True
        return end

    def _bare_nothing_end(self) -> int | None:
        """Where a run of empty snapshots ends, four zero bytes each, that stands here while nothing lives.

        A crash may leave zeros too, and behind them a piece of somebody's value that looks like a record. So
        they count only if the header points at one, or a frame of this file or something as good follows.
        """
        at, zeros_end = self.at, self._zeros_end()
        if self.pointed and self.pointed[1] == LENGTH.size:
            end = self.pointed[0] + LENGTH.size
            if at < end <= zeros_end and not (end - at) % LENGTH.size:
                self.pointed_is_good = True
                return end
        # What follows may begin with zeros itself, but with no more than five.
        all_but_two = max(zeros_end - at - 2 * LENGTH.size, 0) // LENGTH.size * LENGTH.size
        ends = range(at + all_but_two + LENGTH.size, zeros_end + 1, LENGTH.size)
        return next((end for end in ends if self._follows_nothing(end)), None)

    def _zeros_end(self) -> int:
        """Where the zeros end that begin here."""
        at = self.at
        while at < self._size:
            piece = self._window.bytes(at, min(WINDOW, self._size - at))
            rest = len(piece.lstrip(b"\0"))
            at += len(piece) - rest
            if rest:
                break
        return at

    def _follows_nothing(self, at: int) -> bool:
        """Whether what stands at `at` shows that another writer, not a crash, left the zeros before it."""
        theirs = self.salt is None or (self.pointed is not None and at <= self.pointed[0] < self._size)
        return bool(theirs and self._key_at(at)) or self._frame_at(at) is not None

    def _key_at(self, at: int) -> bytes:
        try:
            return self._head(at, self._size).key
        except Damage:
            return b""

    def _bare_entries_end(self, count: int) -> int | None:
        at, users = self.at + LENGTH.size, 0
        for _ in range(count):
            if self._size - at < ENTRY.size:
                return None
            col, key_len = ENTRY.unpack(self._window.bytes(at, ENTRY.size))
            if self._size - at < ENTRY.size + key_len + OFFSET.size:
                return None
            rest = self._window.bytes(at + ENTRY.size, key_len + OFFSET.size)
            location = self.maps[col].get(rest[:key_len])
            if location is None or location[:8] != rest[:-9:-1]:
                return None
            users += col != RESERVED
            at += ENTRY.size + key_len + OFFSET.size
        return at if users == self._seen else None
