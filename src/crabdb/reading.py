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
from crabdb.format import LENGTH, LOCATION, RECORD, RECORD_OVERHEAD

__all__ = ["read_value", "read_values"]

SPAN: Final = 1 << 20
"""The most that is read at once, bytes, unless one record is larger."""

SPARSE: Final = 1000
"""Records that are further apart than this on average, bytes beyond their values, are read one by one."""


Place = tuple[int, int, int]
"""An unpacked location: offset of the record, length of the value, its crc."""


def read_value(file: File, path: Path, key: bytes, location: bytes) -> bytes:
    """The value of a key's record at a packed location. Raises `Corrupted`, `ReadFailed`."""
    offset, val_len, val_crc = LOCATION.unpack(location)
    start = RECORD_OVERHEAD + len(key)
    try:
        record = file.read(start + val_len, offset)
    except OSError as error:
        raise ReadFailed(path, offset, error) from error
    value = record[start:]
    if crc32(value) != val_crc or not record.startswith(key, RECORD.size) or len(value) != val_len:
        raise _damaged(path, key, offset)
    return value


def read_values(file: File, path: Path, keys: Sequence[bytes], locations: Sequence[bytes]) -> list[bytes]:
    """The values of many keys, in the order given. Raises `Corrupted`, `ReadFailed`."""
    order = sorted(range(len(keys)), key=locations.__getitem__)
    places = list(LOCATION.iter_unpack(b"".join(locations)))
    if len(keys) < 2 or _are_sparse([places[number] for number in order]):
        return [read_value(file, path, key, where) for key, where in zip(keys, locations, strict=True)]
    try:
        return _read_together(file, path, keys, places, order)
    except OSError as error:
        raise ReadFailed(path, places[order[0]][0], error) from error


def _are_sparse(places: Sequence[Place]) -> bool:
    return places[-1][0] - places[0][0] > SPARSE * len(places) + sum([val_len for _, val_len, _ in places])


def _read_together(
    file: File, path: Path, keys: Sequence[bytes], places: Sequence[Place], order: Sequence[int]
) -> list[bytes]:
    """The values, read in the order of their places, as much at a time as a span."""
    values = [b""] * len(keys)
    limit = places[order[-1]][0]
    data, start, length = b"", 0, 0
    for number in order:
        offset, val_len, val_crc = places[number]
        key = keys[number]
        key_at = offset + RECORD.size - start
        value_at = key_at + len(key) + LENGTH.size
        if value_at + val_len > length:
            key_at, value_at = RECORD.size, RECORD_OVERHEAD + len(key)
            data = file.read(max(value_at + val_len, min(SPAN, limit - offset)), offset)
            start, length = offset, len(data)
        value = data[value_at : value_at + val_len]
        if crc32(value) != val_crc or not data.startswith(key, key_at) or len(value) != val_len:
            raise _damaged(path, key, offset)
        values[number] = value
    return values


def _damaged(path: Path, key: bytes, offset: int) -> Corrupted:
    return Corrupted(path, offset, f"the record of {key!r} is not what was written")
