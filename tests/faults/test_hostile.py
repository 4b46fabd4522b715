"""Files whose numbers are lies, some with checksums that are right: a typed error or an ordinary store, soon, and
without an allocation that the file's size does not justify.
"""

import tracemalloc
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from tests.crabdb.crashable import CrashableFiles
from tests.crabdb.model import crash
from tests.faults.tally import FULL, REFUSED, Tally

from crabdb import CrabDB, CrabDBError
from crabdb.format import (
    FOOT,
    FOOT_SIZE,
    FOOT_TAG,
    FRAME_PREFIX,
    FRAME_SUMMED,
    HEADER,
    LENGTH,
    RECORD,
    Identity,
    encode_frame,
    encode_header,
    encode_identity,
    encode_put,
    snapshot_prefix,
)

PATH = Path("/store")
SALT = 77
NUMBERS = (0, 1, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
SMALL = tuple(number for number in NUMBERS if number < 2**32)

MOST: int = 16 << 20
"""More than any of these files may make the store allocate, bytes."""


def sound() -> bytes:
    """A store with a snapshot and a commit behind it."""
    files = CrashableFiles()
    db = CrabDB.open(PATH, files=files)
    for number in range(40):
        db.put(0, b"%d" % number, b"v" * number)
    db.checkpoint()
    db.put(1, b"k", b"v")
    crash(db)
    return bytes(files.live()[PATH].data)


def headers() -> Iterator[bytes]:
    """Headers that point anywhere, of ours and of another writer."""
    data = sound()
    for at, length in product(NUMBERS, NUMBERS):
        for total in (0, 1, crc32(HEADER.pack(b"CRMEM\0", 1, 0, 0, at, length))):
            yield HEADER.pack(b"CRMEM\0", 1, 0, total, at, length) + data[32:]


def born() -> bytes:
    """What a new store consists of, with a salt that is known."""
    identity = encode_identity(Identity(b"i" * 16, SALT, 0))
    return encode_header() + identity


def snapshots() -> Iterator[bytes]:
    """Snapshots whose sums are all right and whose numbers are not."""
    start = born() + encode_frame(encode_put(0, b"k", b"v"), 68, 0, 0, SALT)[0]
    at = len(start) + 47 + 15
    for offset, length, position in product(NUMBERS, SMALL, NUMBERS if FULL else (4,)):
        yield with_snapshot(start, at, snapshot(offset, length, position))
    value = snapshot(115, 1, 4)
    fields = [6, 12, 32, SALT, 1, crc32(value[-FOOT_SIZE - 10 : -FOOT_SIZE], SALT)]
    assert foot(fields) == value[-FOOT_SIZE:]
    for place, limit in enumerate((NUMBERS, NUMBERS, NUMBERS, SMALL, SMALL, SMALL)):
        for number in limit:
            lie = [*fields[:place], number, *fields[place + 1 :]]
            yield with_snapshot(start, at, value[:-FOOT_SIZE] + foot(lie))
    for number in SMALL:
        yield with_snapshot(start, at, LENGTH.pack(number) + value[4:])


def snapshot(offset: int, length: int, position: int) -> bytes:
    """A snapshot of one key."""
    entry = b"\0\1\0\0\0k" + pack("<Q", offset)
    row = pack("<QII", position, length, crc32(b"v"))
    tail = b"\0\1\0\0\0k" + pack("<I", crc32(row, crc32(entry, SALT)))
    return b"\1\0\0\0" + entry + row + tail + foot([6, 12, 32, SALT, 1, crc32(tail, SALT)])


def foot(fields: list[int]) -> bytes:
    """A foot whose root is right."""
    data = FOOT.pack(*fields, FOOT_TAG, 0)[:-4]
    return data + LENGTH.pack(crc32(data, fields[3]))


def with_snapshot(start: bytes, at: int, value: bytes) -> bytes:
    """A file with this snapshot, its frame, and a header whose sum is right."""
    frame, _ = encode_frame(snapshot_prefix(len(value)) + value, len(start), 0, 0, SALT)
    (root,) = LENGTH.unpack(value[-4:])
    return encode_header(at, len(value), root) + (start + frame)[32:]


def frames() -> Iterator[bytes]:
    """Frames whose sum is right and whose numbers are not."""
    start = born()
    for at, length, durable in product((68, *NUMBERS), NUMBERS, NUMBERS if FULL else NUMBERS[-3:]):
        summed = FRAME_SUMMED.pack(0, 0, at, length, durable)
        frame = FRAME_PREFIX + LENGTH.pack(crc32(summed, SALT)) + summed
        yield start + frame + b"\0\0\1\0\0\0k\1\0\0\0v"


def records() -> Iterator[bytes]:
    """Records whose lengths lie, in a file without checksums and in a commit whose sum is right."""
    for op, key_len, val_len in product((0, 1, 2, 255), SMALL, SMALL):
        record = RECORD.pack(op, 0, key_len) + b"k" + LENGTH.pack(val_len) + b"v" * 30
        yield encode_header()[:12] + bytes(20) + record
        yield born() + encode_frame(record, 68, 0, 0, SALT)[0]


def indexes() -> Iterator[bytes]:
    """Indexes of another writer whose numbers lie."""
    start = encode_header()[:12] + bytes(20) + b"\0\0\1\0\0\0k\1\0\0\0v"
    for count, key_len, offset in product(SMALL, SMALL, NUMBERS):
        index = LENGTH.pack(count) + b"\0" + LENGTH.pack(key_len) + b"k" + offset.to_bytes(8, "little")
        header = HEADER.pack(b"CRMEM\0", 1, 0, 0, len(start), len(index))
        yield header + start[32:] + index


KINDS = [headers, snapshots, frames, records, indexes]


def use(db: CrabDB) -> None:
    """Read everything, write, and look at the whole file."""
    for col in db.columns():
        for key in db.scan_keys(col):
            db.get(col, key)
    db.verify()
    if not db.read_only:
        db.put(3, b"more", b"works")
        assert db.get(3, b"more") == b"works"
        db.compact()
        db.checkpoint()


def outcome(data: bytes, *, read_only: bool) -> str:
    """Open and use a file in memory that asserts on every read that its place and length are reasonable."""
    files = CrashableFiles({PATH: data})
    try:
        db = CrabDB.open(PATH, files=files, read_only=read_only)
    except CrabDBError:
        if not read_only:
            assert bytes(files.live()[PATH].data) == data
        return REFUSED
    try:
        use(db)
    except CrabDBError:
        return "opened, then refused with a typed error"
    finally:
        crash(db)
    return "opened and used"


@pytest.mark.parametrize("kind", KINDS)
def test_lying_numbers_are_refused_or_harmless_and_allocate_nothing(
    tally: Tally, kind: "type[Iterator[bytes]]"
) -> None:
    tally.of(
        "headers, snapshots, trailers, frames, records and indexes with numbers near 2^16, 2^32, 2^64",
        "files made for it, their sums right",
    )
    tracemalloc.start()
    try:
        for number, data in enumerate(kind()):
            if FULL or number % 5 == 0:
                for read_only in (True, False):
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    tally.add(outcome(data, read_only=read_only))
                    assert tracemalloc.get_traced_memory()[1] - before < MOST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_lying_numbers_are_refused_or_harmless_in_real_files(
    tally: Tally, path: Path, kind: "type[Iterator[bytes]]"
) -> None:
    tally.of("the same, where the system checks offsets too", "real files")
    for number, data in enumerate(kind()):
        if FULL or number % 20 == 0:
            path.write_bytes(data)
            try:
                with CrabDB.open(path) as db:
                    use(db)
            except CrabDBError:
                tally.add(REFUSED)
            else:
                tally.add("opened and used")
