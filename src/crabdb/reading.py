"""Values from the file, each checked before anybody sees it: the key in its record, and the checksum of its value.

A record that does not check raises `Corrupted`; no read returns a byte that was not written under that key.
Values of one call that lie near each other are read together.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from crabdb.errors import Corrupted, ReadFailed
from crabdb.files import File
from crabdb.format import LOCATION, PUT, RECORD, RECORD_OVERHEAD

__all__ = ["Item", "read_value", "read_values"]

Item = tuple[int, bytes, bytes]
"""Column, key, and packed location of a record."""

SPAN: Final = 1 << 20
"""The most that is read at once, bytes, unless one record is larger."""

SPARSE: Final = 8
"""Records whose stretch of the file is more than so many times their length are read one by one."""


def read_value(file: File, path: Path, col: int, key: bytes, location: bytes) -> bytes:
    """The value of the record at a packed location. Raises `Corrupted`, `ReadFailed`."""
    offset, val_len, val_crc = LOCATION.unpack(location)
    head = RECORD.pack(PUT, col, len(key)) + key
    start = len(head) + 4
    try:
        record = file.read(start + val_len, offset)
    except OSError as error:
        raise ReadFailed(path, offset, error) from error
    value = record[start:]
    if crc32(value) != val_crc or len(value) != val_len or not record.startswith(head):
        raise _damaged(path, offset, col, key)
    return value


def read_values(file: File, path: Path, items: Sequence[Item]) -> list[bytes]:
    """The values of many records, in the order given. Raises `Corrupted`, `ReadFailed`."""
    if len(items) < 2 or _are_sparse(items):
        return [read_value(file, path, *item) for item in items]
    try:
        return _read_together(file, path, items)
    except OSError as error:
        raise ReadFailed(path, 0, error) from error


def _are_sparse(items: Sequence[Item]) -> bool:
    locations = [location for _, _, location in items]
    first, last = LOCATION.unpack(min(locations)), LOCATION.unpack(max(locations))
    length = sum([int.from_bytes(location[8:12]) for location in locations]) + len(items) * RECORD_OVERHEAD
    return bool(last[0] - first[0] > SPARSE * length)


def _read_together(file: File, path: Path, items: Sequence[Item]) -> list[bytes]:
    values = [b""] * len(items)
    unpack, pack = LOCATION.unpack, RECORD.pack
    locations = [location for _, _, location in items]
    order = sorted(range(len(items)), key=locations.__getitem__)
    limit = unpack(locations[order[-1]])[0] + SPAN
    data, start, end = b"", 0, 0
    for number in order:
        col, key, location = items[number]
        offset, val_len, val_crc = unpack(location)
        value_at = offset + RECORD_OVERHEAD + len(key)
        if value_at + val_len > end:
            length = value_at + val_len - offset
            data = file.read(max(length, min(SPAN, limit - offset)), offset)
            start, end = offset, offset + len(data)
        value = data[value_at - start : value_at - start + val_len]
        head = pack(PUT, col, len(key)) + key
        if crc32(value) != val_crc or len(value) != val_len or not data.startswith(head, offset - start):
            raise _damaged(path, offset, col, key)
        values[number] = value
    return values


def _damaged(path: Path, offset: int, col: int, key: bytes) -> Corrupted:
    return Corrupted(path, offset, f"the record of {key!r} in column {col} is not what was written")
