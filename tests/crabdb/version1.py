"""An independent reader and writer of version-1 files, as plain as can be: no frames, no sums, no locks.

It shares no code with crabdb, so that the two agree only if both agree with the format.
"""

import struct
from pathlib import Path

Contents = dict[tuple[int, bytes], bytes]


def record(op: int, col: int, key: bytes, value: bytes = b"") -> bytes:
    """One record."""
    return struct.pack("<BBI", op, col, len(key)) + key + struct.pack("<I", len(value)) + value


class Version1:
    """A file in memory, written and read as version 1 says."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = bytearray(data or struct.pack("<6sIHIQQ", b"CRMEM\0", 1, 0, 0, 0, 0))
        self.places: dict[tuple[int, bytes], int] = {}
        if data is not None:
            self._load()

    @classmethod
    def of(cls, path: Path) -> "Version1":
        """Read a file."""
        return cls(path.read_bytes())

    def _load(self) -> None:
        magic, version, flags, _, index_at, index_len = struct.unpack_from("<6sIHIQQ", self.data)
        assert (magic, version, flags) == (b"CRMEM\0", 1, 0)
        at = 32
        if index_len:
            self._load_index(index_at)
            at = index_at + index_len
        while at < len(self.data):
            op, col, key_len = struct.unpack_from("<BBI", self.data, at)
            assert op in (0, 1), f"unknown record op {op} at {at}"
            key = bytes(self.data[at + 6 : at + 6 + key_len])
            (val_len,) = struct.unpack_from("<I", self.data, at + 6 + key_len)
            if op == 0:
                self.places[col, key] = at
            else:
                self.places.pop((col, key), None)
            at += 10 + key_len + val_len
        assert at == len(self.data)

    def _load_index(self, at: int) -> None:
        (count,) = struct.unpack_from("<I", self.data, at)
        at += 4
        for _ in range(count):
            col, key_len = struct.unpack_from("<BI", self.data, at)
            key = bytes(self.data[at + 5 : at + 5 + key_len])
            (self.places[col, key],) = struct.unpack_from("<Q", self.data, at + 5 + key_len)
            at += 13 + key_len

    def value(self, col: int, key: bytes) -> bytes:
        """The value of a live key."""
        at = self.places[col, key]
        assert self.data[at] == 0
        (val_len,) = struct.unpack_from("<I", self.data, at + 6 + len(key))
        start = at + 10 + len(key)
        return bytes(self.data[start : start + val_len])

    def contents(self) -> Contents:
        """Everything outside of column 255, which version 1 knows nothing about."""
        return {(col, key): self.value(col, key) for col, key in self.places if col != 255}

    def put(self, col: int, key: bytes, value: bytes) -> None:
        """Append a put."""
        self.places[col, key] = len(self.data)
        self.data += record(0, col, key, value)

    def delete(self, col: int, key: bytes) -> None:
        """Append a delete."""
        del self.places[col, key]
        self.data += record(1, col, key)

    def checkpoint(self, *, header: bool = True) -> None:
        """Append an index without a record around it, and point the header at it, unless the program dies
        first.
        """
        at = len(self.data)
        self.data += struct.pack("<I", len(self.places))
        for (col, key), place in sorted(self.places.items()):
            self.data += struct.pack("<BI", col, len(key)) + key + struct.pack("<Q", place)
        if header:
            struct.pack_into("<IQQ", self.data, 12, 0, at, len(self.data) - at)

    def compact(self) -> None:
        """Rewrite the live records in order of their keys, then checkpoint."""
        fresh = Version1()
        for col, key in sorted(self.places):
            fresh.put(col, key, self.value(col, key))
        fresh.checkpoint()
        self.data, self.places = fresh.data, fresh.places
