"""The bytes of a crabdb file: header, records, frames, the snapshot of the index. Pure: no I/O, no clock,
no chance.

All integers are little-endian, without padding. The layout is CRMEM version 1, which other programs read
and write:

    header    32 bytes: "CRMEM\\0" | version u32 | flags u16 | sum u32 | index_at u64 | index_len u64
    record    op u8 (0 put, 1 delete) | col u8 | key_len u32 | key | val_len u32 | value
    index     count u32 | count x { col u8 | key_len u32 | key | offset u64 of the record }

What is added lives inside that layout as puts in column 255, which no caller can reach:

    identity  key "id", value: file_id 16 bytes | salt u32 | features u32
    frame     key "f", value: head_crc u32 | body_crc u32 | prev_crc u32 | at u64 | body_len u64 | durable u64
    snapshot  key "index", value: an index (above) followed by a trailer

    trailer   table   count x { position u64 of the entry in the index | val_len u32 | val_crc u32 }
              fences  for every 32nd entry { col u8 | key_len u32 | key }
              blocks  for every 32 entries crc u32 over their bytes, then over their rows of the table
              foot    fences_len u64 | live u64 | identity_at u64 | salt u32 | count u32 | sum u32 |
                      "CRIX" | root u32

A frame commits the `body_len` bytes of records after it. When records without a frame stand between it and
the last boundary, it attests these instead: `body_len` and `body_crc` are theirs, and no body follows.
Checksums are CRC-32 that starts from the file's salt, so that no user's value can pass for a frame, and
zeros never check; only `val_crc` is a plain CRC-32. `docs/format.md` works an example of each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import lt
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

__all__ = [
    "BLOCK",
    "BODY_LIMIT",
    "DELETE",
    "ENTRY",
    "FOOT_SIZE",
    "FRAME_KEY",
    "FRAME_PREFIX",
    "FRAME_SIZE",
    "HEADER_SIZE",
    "IDENTITY_KEY",
    "IDENTITY_RECORD_SIZE",
    "LENGTH",
    "LENGTH_LIMIT",
    "LOCATION",
    "OFFSET",
    "PUT",
    "RECORD",
    "RECORD_OVERHEAD",
    "RESERVED",
    "ROW",
    "SNAPSHOT_KEY",
    "SNAPSHOT_PREFIX_SIZE",
    "BareEntry",
    "Foot",
    "Frame",
    "Header",
    "Identity",
    "Layout",
    "Malformed",
    "Newer",
    "SnapshotEncoder",
    "SnapshotEntry",
    "decode_fences",
    "decode_foot",
    "decode_frame",
    "decode_header",
    "decode_identity",
    "decode_index",
    "decode_snapshot",
    "encode_attestation",
    "encode_bare_header",
    "encode_frame",
    "encode_header",
    "encode_identity",
    "encode_put",
    "encode_records",
    "is_damaged_frame",
    "salt_of_frame",
    "snapshot_layout",
    "snapshot_prefix",
    "snapshot_size",
]

MAGIC: Final = b"CRMEM\0"
VERSION: Final = 1
FLAGS: Final = 0
HEADER: Final = Struct("<6sIHIQQ")
HEADER_SIZE: Final = 32

PUT: Final = 0
DELETE: Final = 1
RECORD: Final = Struct("<BBI")
LENGTH: Final = Struct("<I")
NO_LENGTH: Final = LENGTH.pack(0)
RECORD_OVERHEAD: Final = RECORD.size + LENGTH.size
LENGTH_LIMIT: Final = 0xFFFF_FFFF
RESERVED: Final = 255

IDENTITY_KEY: Final = b"id"
IDENTITY: Final = Struct("<16sII")
IDENTITY_RECORD_SIZE: Final = RECORD_OVERHEAD + len(IDENTITY_KEY) + IDENTITY.size
KNOWN_FEATURES: Final = 0

FRAME_KEY: Final = b"f"
FRAME_PREFIX: Final = RECORD.pack(PUT, RESERVED, 1) + FRAME_KEY + LENGTH.pack(36)
FRAME_FIELDS: Final = Struct("<IIIQQQ")
FRAME_SUMMED: Final = Struct("<IIQQQ")
FRAME_SIZE: Final = 47
BODY_LIMIT: Final = 64 << 20
"""The most a frame of several records may hold, bytes: what a reader has to hold in memory to check it."""

SNAPSHOT_KEY: Final = b"index"
SNAPSHOT_PREFIX_SIZE: Final = RECORD_OVERHEAD + len(SNAPSHOT_KEY)
BLOCK: Final = 32
ENTRY: Final = Struct("<BI")
OFFSET: Final = Struct("<Q")
LOCATION: Final = Struct(">QII")
"""Where a record is (u64), how long its value is (u32), the value's crc (u32): one entry of the index in
memory.
"""
ROW: Final = Struct("<QII")
FOOT: Final = Struct("<QQQIII4sI")
FOOT_TAG: Final = b"CRIX"
CRC_POLYNOMIAL: Final = 0xEDB8_8320
FOOT_SIZE: Final = 44

assert HEADER.size == HEADER_SIZE
assert RECORD_OVERHEAD == 10
assert len(FRAME_PREFIX) + FRAME_FIELDS.size == len(FRAME_PREFIX) + 4 + FRAME_SUMMED.size == FRAME_SIZE
assert FOOT.size == FOOT_SIZE


class Malformed(ValueError):
    """Bytes that are not what they should be. Internal: the opener turns it into an error with a path and
    offset.
    """


class Newer(Malformed):
    """Made by a version of the format that this one does not know."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first 32 bytes. `sum` 0 means that another writer made it; `index_len` 0 that there is no snapshot."""

    sum: int
    index_at: int
    index_len: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Which file this is, and the salt from which its checksums start."""

    file_id: bytes
    salt: int
    features: int


class Frame(NamedTuple):
    """The head of a commit. `head_crc` covers the rest, `prev_crc` is the previous frame's head_crc, `at` its own
    offset, `durable` how many bytes of the file were known to be on the medium when it was written."""

    head_crc: int
    body_crc: int
    prev_crc: int
    at: int
    body_len: int
    durable: int


@dataclass(frozen=True, slots=True)
class Foot:
    """The last 44 bytes of a snapshot. `sum` covers fences and blocks, `root` the foot, so that each part can
    be checked by itself; the header's sum binds the root.
    """

    fences_len: int
    live: int
    identity_at: int
    salt: int
    count: int
    sum: int
    root: int


class BareEntry(NamedTuple):
    """One key of an index as version 1 has it."""

    col: int
    key: bytes
    offset: int


SnapshotEntry = tuple[int, bytes, bytes]
"""Column, key and packed location of one key in an index."""


def encode_header(index_at: int = 0, index_len: int = 0, root: int = 0) -> bytes:
    """Header that points at a snapshot whose trailer has this root; without arguments, that of a new store."""
    return HEADER.pack(MAGIC, VERSION, FLAGS, header_sum(index_at, index_len, root), index_at, index_len)


def encode_bare_header() -> bytes:
    """Header that points at nothing and promises nothing."""
    return HEADER.pack(MAGIC, VERSION, FLAGS, 0, 0, 0)


def header_sum(index_at: int, index_len: int, root: int) -> int:
    """The sum a header of ours must carry; never 0, which means "another writer"."""
    return crc32(HEADER.pack(MAGIC, VERSION, FLAGS, root, index_at, index_len)) or 1


def decode_header(data: bytes) -> Header:
    """Parse a header. Raises `Malformed` when these are not the first bytes of a version-1 file."""
    if not data.startswith(MAGIC):
        raise Malformed("it does not begin with CRMEM")
    if len(data) < HEADER_SIZE:
        raise Malformed(f"it has only {len(data)} bytes")
    _, version, flags, total, index_at, index_len = HEADER.unpack_from(data)
    if version != VERSION:
        raise Newer(f"format version {version}, this program knows version {VERSION}")
    if flags != FLAGS:
        raise Newer(f"unknown flags {flags:#x}")
    return Header(total, index_at, index_len)


def encode_put(col: int, key: bytes, value: bytes) -> bytes:
    """One put record. Lengths must be in range already."""
    return RECORD.pack(PUT, col, len(key)) + key + LENGTH.pack(len(value)) + value


def encode_records(changes: Iterable[tuple[int, bytes, bytes | None]]) -> bytes:
    """One record after another: a put, or a delete where the value is None."""
    parts: list[bytes] = []
    head, length = RECORD.pack, LENGTH.pack
    for col, key, value in changes:
        if value is None:
            parts += (head(DELETE, col, len(key)), key, NO_LENGTH)
        else:
            parts += (head(PUT, col, len(key)), key, length(len(value)), value)
    return b"".join(parts)


def encode_identity(identity: Identity) -> bytes:
    """The identity record."""
    return encode_put(
        RESERVED, IDENTITY_KEY, IDENTITY.pack(identity.file_id, identity.salt, identity.features)
    )


def decode_identity(value: bytes) -> Identity:
    """Parse an identity's value, of which newer versions may make a longer one.

    Raises `Newer` for a feature bit that this version does not know, `Malformed` if there are too few bytes.
    """
    if len(value) < IDENTITY.size:
        raise Malformed("its identity is too short")
    identity = Identity(*IDENTITY.unpack_from(value))
    if identity.features & ~KNOWN_FEATURES:
        raise Newer(f"unknown features {identity.features & ~KNOWN_FEATURES:#x}")
    return identity


def encode_frame(body: bytes, at: int, prev_crc: int, durable: int, salt: int) -> tuple[bytes, int]:
    """A frame followed by its body, and the frame's head_crc."""
    summed = FRAME_SUMMED.pack(crc32(body, salt), prev_crc, at, len(body), durable)
    head_crc = crc32(summed, salt)
    return b"".join((FRAME_PREFIX, LENGTH.pack(head_crc), summed, body)), head_crc


def encode_attestation(
    extent: int, crc: int, *, at: int, prev_crc: int, durable: int, salt: int
) -> tuple[bytes, int]:
    """A frame that vouches for the `extent` bytes before it, whose salted sum is `crc`, and its head_crc."""
    summed = FRAME_SUMMED.pack(crc, prev_crc, at, extent, durable)
    head_crc = crc32(summed, salt)
    return FRAME_PREFIX + LENGTH.pack(head_crc) + summed, head_crc


def decode_frame(data: bytes | memoryview, start: int, salt: int) -> Frame | None:
    """The frame of this file at `start` of `data`, wherever it was meant to stand; None if there is none."""
    if data[start : start + 11] != FRAME_PREFIX or len(data) - start < FRAME_SIZE:
        return None
    frame = Frame._make(FRAME_FIELDS.unpack_from(data, start + 11))
    return frame if crc32(data[start + 15 : start + FRAME_SIZE], salt) == frame.head_crc else None


def is_damaged_frame(data: bytes | memoryview, start: int, at: int, salt: int) -> bool:
    """Whether what stands at `start` of `data`, byte `at` of the file, is all but a frame, and no other record."""
    if data[start : start + len(FRAME_PREFIX)] == FRAME_PREFIX:
        return decode_frame(data, start, salt) is None
    head_crc, _, _, own, _, _ = FRAME_FIELDS.unpack_from(data, start + len(FRAME_PREFIX))
    return bool(own == at and crc32(data[start + 15 : start + FRAME_SIZE], salt) == head_crc)


def salt_of_frame(data: bytes | memoryview, start: int, at: int) -> int | None:
    """The salt of the file in which what stands at `start` of `data`, byte `at` of the file, is a frame; None if
    it is one in no file.
    """
    if data[start : start + len(FRAME_PREFIX)] != FRAME_PREFIX or len(data) - start < FRAME_SIZE:
        return None
    head_crc, _, _, own, _, _ = FRAME_FIELDS.unpack_from(data, start + len(FRAME_PREFIX))
    return _sum_backwards(data[start + 15 : start + FRAME_SIZE], head_crc) if own == at else None


def _sum_backwards(data: bytes | memoryview, crc: int) -> int:
    """What a CRC-32 of `data` that comes out as `crc` started from."""
    state = crc ^ 0xFFFF_FFFF
    for byte in reversed(data):
        for _ in range(8):
            state = (state ^ CRC_POLYNOMIAL) << 1 | 1 if state >> 31 else state << 1
        state ^= byte
    return state ^ 0xFFFF_FFFF


def snapshot_prefix(value_len: int) -> bytes:
    """What stands before the value of a snapshot in its record."""
    return RECORD.pack(PUT, RESERVED, len(SNAPSHOT_KEY)) + SNAPSHOT_KEY + LENGTH.pack(value_len)


def snapshot_size(count: int, key_bytes: int) -> int:
    """About how many bytes a snapshot of so many keys takes, its fences taken as average keys."""
    if not count:
        return LENGTH.size + FOOT_SIZE
    blocks = -(-count // BLOCK)
    fences = blocks * (ENTRY.size + key_bytes // count)
    return LENGTH.size + count * (13 + ROW.size) + key_bytes + fences + blocks * LENGTH.size + FOOT_SIZE


class SnapshotEncoder:
    """Makes a snapshot's value of entries that are added in order of column and key, some at a time."""

    def __init__(self, identity_at: int, salt: int) -> None:
        self._identity_at = identity_at
        self._salt = salt
        self._index: list[bytes] = []
        self._table: list[bytes] = []
        self._fences = bytearray()
        self._sums = bytearray()
        self._block = bytearray()
        self._rows = bytearray()
        self._index_len = LENGTH.size
        self._live = 0
        self.fences: list[bytes] = []
        """For every 32nd entry its column, a byte, and behind it its key."""
        self.count = 0

    def add(self, entries: Iterable[SnapshotEntry]) -> None:
        """Go on with these entries."""
        head, row, unpack, offset_bytes = ENTRY.pack, ROW.pack, LOCATION.unpack, OFFSET.pack
        for col, key, location in entries:
            offset, val_len, val_crc = unpack(location)
            fence = head(col, len(key)) + key
            if not self.count % BLOCK:
                self._end_block()
                self._fences += fence
                self.fences.append(fence[:1] + key)
            self._rows += row(self._index_len, val_len, val_crc)
            self._block += fence + offset_bytes(offset)
            self._index_len += len(fence) + OFFSET.size
            self._live += RECORD_OVERHEAD + len(key) + val_len
            self.count += 1

    def _end_block(self) -> None:
        if self._rows:
            self._sums += LENGTH.pack(crc32(self._rows, crc32(self._block, self._salt)))
            self._index.append(bytes(self._block))
            self._table.append(bytes(self._rows))
            self._block.clear()
            self._rows.clear()

    def finish(self) -> tuple[list[bytes], Foot]:
        """The value, in parts, the last three being the fences, the blocks' sums and the foot; and the foot."""
        self._end_block()
        total = crc32(self._sums, crc32(self._fences, self._salt))
        fields = len(self._fences), self._live, self._identity_at, self._salt, self.count, total
        data = FOOT.pack(*fields, FOOT_TAG, 0)[: -LENGTH.size]
        root = crc32(data, self._salt)
        ends = [bytes(self._fences), bytes(self._sums), data + LENGTH.pack(root)]
        return [LENGTH.pack(self.count), *self._index, *self._table, *ends], Foot(*fields, root)


def _block_sums(index: memoryview, table: memoryview, starts: Sequence[int], salt: int) -> bytes:
    ends = [*starts[1:], len(index)][: len(starts)]
    rows = BLOCK * ROW.size
    return b"".join(
        LENGTH.pack(crc32(table[i * rows : (i + 1) * rows], crc32(index[start:end], salt)))
        for i, (start, end) in enumerate(zip(starts, ends, strict=True))
    )


def decode_foot(data: bytes) -> Foot | None:
    """The foot of a snapshot from its last 44 bytes; None if another writer made it, or its root does not
    match.
    """
    if len(data) != FOOT_SIZE:
        return None
    fences_len, live, identity_at, salt, count, total, tag, root = FOOT.unpack(data)
    foot = Foot(fences_len, live, identity_at, salt, count, total, root)
    return foot if tag == FOOT_TAG and crc32(data[:-4], foot.salt) == root else None


class Layout(NamedTuple):
    """Where the parts of a snapshot's value begin in it, behind the index, and how many blocks it has."""

    table_at: int
    fences_at: int
    sums_at: int
    blocks: int


def snapshot_layout(foot: Foot, length: int) -> Layout:
    """The parts of a snapshot's value of so many bytes. Raises `Malformed` if they do not fit in it."""
    blocks = -(-foot.count // BLOCK)
    sums_at = length - FOOT_SIZE - blocks * LENGTH.size
    fences_at = sums_at - foot.fences_len
    table_at = fences_at - foot.count * ROW.size
    if table_at < LENGTH.size + foot.count * (ENTRY.size + OFFSET.size):
        raise Malformed("the snapshot's parts do not fit in it")
    return Layout(table_at, fences_at, sums_at, blocks)


def decode_fences(data: bytes, count: int) -> list[bytes]:
    """The first keys of so many blocks, each behind its column, a byte, so that they sort as entries do.

    Raises `Malformed` if they are not in order.
    """
    fences: list[bytes] = []
    at, last = 0, len(data) - ENTRY.size
    fields = ENTRY.unpack_from
    while at <= last:
        end = at + ENTRY.size + fields(data, at)[1]
        fences.append(data[at : at + 1] + data[at + ENTRY.size : end])
        at = end
    if at != len(data) or len(fences) != count or not all(map(lt, fences, islice(fences, 1, None))):
        raise Malformed("the snapshot's fences are not in order")
    return fences


def decode_snapshot(data: bytes, foot: Foot, limit: int) -> Iterator[SnapshotEntry]:
    """Every entry of a snapshot's value, in order, after all its sums were checked.

    Raises `Malformed` if one does not match, or, later, if a record does not lie before byte `limit` of the file.
    """
    table_at, fences_at, sums_at, _ = snapshot_layout(foot, len(data))
    if LENGTH.unpack_from(data)[0] != foot.count:
        raise Malformed("the snapshot does not say itself how many keys it has")
    view = memoryview(data)
    if crc32(view[fences_at:-FOOT_SIZE], foot.salt) != foot.sum:
        raise Malformed("the snapshot's fences or sums do not match")
    starts = [OFFSET.unpack_from(data, at)[0] for at in range(table_at, fences_at, BLOCK * ROW.size)]
    if _block_sums(view[:table_at], view[table_at:fences_at], starts, foot.salt) != view[sums_at:-FOOT_SIZE]:
        raise Malformed("a block of the snapshot does not match its sum")
    return _entries(data, table_at, fences_at, limit)


def _entries(data: bytes, table_at: int, fences_at: int, limit: int) -> Iterator[SnapshotEntry]:
    pack, fields, offset_of = LOCATION.pack, ENTRY.unpack_from, OFFSET.unpack_from
    table = memoryview(data)[table_at:fences_at]
    ends = chain((row[0] for row in ROW.iter_unpack(table[ROW.size :])), (table_at,))
    for (start, val_len, val_crc), stop in zip(ROW.iter_unpack(table), ends, strict=False):
        if not start + ENTRY.size + OFFSET.size <= stop <= table_at:
            raise Malformed("an entry of the snapshot lies outside of the index")
        col, key_len = fields(data, start)
        key_end = stop - OFFSET.size
        (offset,) = offset_of(data, key_end)
        if start + ENTRY.size + key_len != key_end or offset + RECORD_OVERHEAD + key_len + val_len > limit:
            raise Malformed("an entry of the snapshot does not fit its place")
        yield col, data[start + ENTRY.size : key_end], pack(offset, val_len, val_crc)


def decode_index(data: bytes) -> Iterator[BareEntry]:
    """The entries of an index as version 1 has it, whatever follows them. Raises `Malformed`, at the latest at
    the end.
    """
    if len(data) < LENGTH.size:
        raise Malformed("the index is too short")
    at = LENGTH.size
    for _ in range(LENGTH.unpack_from(data)[0]):
        if len(data) - at < ENTRY.size:
            raise Malformed("the index ends within an entry")
        col, key_len = ENTRY.unpack_from(data, at)
        end = at + ENTRY.size + key_len + OFFSET.size
        if end > len(data):
            raise Malformed("the index ends within an entry")
        yield BareEntry(col, data[at + ENTRY.size : end - 8], OFFSET.unpack_from(data, end - 8)[0])
        at = end
