"""Values from the file, each checked before anybody sees it: the key in its record, and the checksum of its value.

A record that does not check raises `Corrupted`; no read returns a byte that was not written under that key.
Values of one call that lie near each other are read together.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from crabdb.errors import Corrupted, ReadFailed
from crabdb.files import File
from crabdb.format import LENGTH, LOCATION, PUT, RECORD, RECORD_OVERHEAD

__all__ = ["Item", "read_value", "read_values"]

Item = tuple[int, bytes, bytes]
"""Column, key, and packed location of a record."""

GAP: Final = 4096
"""Bytes between two records that are cheaper to read along than to seek over."""

SPAN: Final = 1 << 20
"""The most that is read together, bytes, unless one record is larger."""


def read_value(file: File, path: Path, col: int, key: bytes, location: bytes) -> bytes:
    """The value of the record at a packed location. Raises `Corrupted`, `ReadFailed`."""
    offset, val_len, val_crc = LOCATION.unpack(location)
    head = RECORD.pack(PUT, col, len(key)) + key + LENGTH.pack(val_len)
    try:
        record = file.read(len(head) + val_len, offset)
    except OSError as error:
        raise ReadFailed(path, offset, error) from error
    value = record[len(head) :]
    if not record.startswith(head) or crc32(value) != val_crc or len(value) != val_len:
        raise Corrupted(path, offset, f"the record of {key!r} in column {col} is not what was written")
    return value


def read_values(file: File, path: Path, items: Sequence[Item]) -> list[bytes]:
    """The values of many records, in the order given. Raises `Corrupted`, `ReadFailed`."""
    values = [b""] * len(items)
    for start, end, numbers in _spans(items):
        if len(numbers) == 1:
            values[numbers[0]] = read_value(file, path, *items[numbers[0]])
            continue
        try:
            data = file.read(end - start, start)
        except OSError as error:
            raise ReadFailed(path, start, error) from error
        for number in numbers:
            values[number] = _value_within(data, start, path, items[number])
    return values


def _value_within(data: bytes, start: int, path: Path, item: Item) -> bytes:
    """A record's value from a stretch of the file that begins at `start`."""
    col, key, location = item
    offset, val_len, val_crc = LOCATION.unpack(location)
    head = RECORD.pack(PUT, col, len(key)) + key + LENGTH.pack(val_len)
    place = offset - start + len(head)
    value = data[place : place + val_len]
    if not data.startswith(head, offset - start) or crc32(value) != val_crc or len(value) != val_len:
        raise Corrupted(path, offset, f"the record of {key!r} in column {col} is not what was written")
    return value


def _spans(items: Sequence[Item]) -> Iterator[tuple[int, int, list[int]]]:
    """Stretches of the file to read at once: from, up to, and the numbers of the items whose records lie in it."""
    unpack = LOCATION.unpack
    places = [unpack(location)[:2] for _, _, location in items]
    numbers: list[int] = []
    start = end = 0
    for number in sorted(range(len(items)), key=places.__getitem__):
        offset, val_len = places[number]
        if numbers and (offset - end > GAP or end - start > SPAN):
            yield start, end, numbers
            numbers = []
        if not numbers:
            start = offset
        numbers.append(number)
        end = offset + RECORD_OVERHEAD + len(items[number][1]) + val_len
    if numbers:
        yield start, end, numbers
