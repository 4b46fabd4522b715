"""The sorted entries of a snapshot, read where they stand in the file: only one key in thirty-two is in memory.

A look-up bisects these fences, reads the block of entries behind one, and checks it against its sum before
anything in it is believed. Blocks that were read are kept, up to a bound. Never writes, and never reads a value.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar
from zlib import crc32

from crabdb.errors import Corrupted, ReadFailed
from crabdb.files import File, MemoryFile
from crabdb.format import (
    BLOCK,
    ENTRY,
    LENGTH,
    LOCATION,
    OFFSET,
    RECORD_OVERHEAD,
    ROW,
    Foot,
    Malformed,
    SnapshotEncoder,
    SnapshotEntry,
    snapshot_layout,
)
from crabdb.replay import Damage, Maps

__all__ = ["Base", "Run"]

BLOCKS_KEPT: Final = 8 << 20
"""Bytes of blocks that are kept at most, each counted as what it weighs when it is decoded."""

ROWS_KEPT: Final = 32 << 20
"""Bytes of the table that are kept at most: those of a million keys fit in one generation, and their look-ups then
read a block and a value."""

ROWS_TOGETHER: Final = 128
"""Blocks whose rows of the table are read together: 64 KiB, about as cheap to read as the rows of one."""

DECODED: Final = 4
"""How many times its bytes a decoded block weighs in memory."""

COLUMNS: Final = [bytes((col,)) for col in range(256)]

Run = tuple[list[bytes], list[bytes]]
"""Keys that follow one another in the order of a walk, and their packed locations."""

Kept = TypeVar("Kept")


class Cache(Generic[Kept]):
    """What was used lately, by number: two generations, the older of which is dropped when the younger is full.

    For any thread, without a lock: what a race loses is read again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit // 2
        self._young: dict[int, tuple[Kept, int]] = {}
        self._old: dict[int, tuple[Kept, int]] = {}
        self._size = 0

    def get(self, number: int) -> Kept | None:
        """What is kept under a number."""
        found = self._young.get(number)
        if found is None:
            found = self._old.get(number)
            if found is None:
                return None
            self.put(number, *found)
        return found[0]

    def put(self, number: int, thing: Kept, size: int) -> None:
        """Keep a thing of so many bytes."""
        if self._size + size > self._limit:
            self._old, self._young, self._size = self._young, {}, 0
        self._young[number] = thing, size
        self._size += size

    def clear(self) -> None:
        """Keep nothing."""
        self._young, self._old, self._size = {}, {}, 0


class Block:
    """Up to 32 entries whose sum was good: their bytes from byte `start` of the index on, their rows of the
    table, and the byte of the file before which their records must end.
    """

    __slots__ = ("_data", "_limit", "_parts", "_rows", "_start")

    def __init__(self, data: bytes, rows: bytes, start: int, limit: int) -> None:
        self._data = data
        self._rows = rows
        self._start = start
        self._limit = limit
        self._parts: dict[int, Run] | None = None

    def find(self, col: int, key: bytes) -> bytes | None:
        """The packed location of a key. Raises `Malformed`."""
        entry = ENTRY.pack(col, len(key)) + key
        at = self._data.find(entry)
        while at >= 0:
            row = self._row_of(at)
            if row is not None:
                return self._location(at + len(entry), len(key), row)
            # A key may hold bytes that look like another entry.
            at = self._data.find(entry, at + 1)
        return None

    def _row_of(self, at: int) -> int | None:
        """Where the row of the entry at `at` is; None if no entry begins there."""
        position = OFFSET.pack(self._start + at)
        row = self._rows.find(position)
        while row % ROW.size and row >= 0:
            row = self._rows.find(position, row + 1)
        return row if row >= 0 else None

    def _location(self, offset_at: int, key_len: int, row: int) -> bytes:
        if len(self._data) - offset_at < OFFSET.size:
            raise Malformed("an entry of the snapshot lies outside of its block")
        (offset,) = OFFSET.unpack_from(self._data, offset_at)
        _, val_len, val_crc = ROW.unpack_from(self._rows, row)
        if offset + RECORD_OVERHEAD + key_len + val_len > self._limit:
            raise Malformed("an entry of the snapshot points beyond it")
        return LOCATION.pack(offset, val_len, val_crc)

    def part(self, col: int) -> Run:
        """The entries of a column in order; not to be changed. Raises `Malformed`."""
        if self._parts is None:
            self._parts = self._decoded()
        return self._parts.get(col) or ([], [])

    def _decoded(self) -> dict[int, Run]:
        data, start, limit = self._data, self._start, self._limit
        fields, offset_of, pack = ENTRY.unpack_from, OFFSET.unpack_from, LOCATION.pack
        rows = list(ROW.iter_unpack(self._rows))
        ends = [position - start for position, _, _ in rows[1:]]
        ends.append(len(data))
        parts: dict[int, Run] = {}
        keys, locations, last = list[bytes](), list[bytes](), -1
        for (position, val_len, val_crc), end in zip(rows, ends, strict=True):
            at, key_end = position - start, end - OFFSET.size
            if at < 0 or key_end - at < ENTRY.size or end > len(data):
                raise Malformed("an entry of the snapshot lies outside of its block")
            col, key_len = fields(data, at)
            (offset,) = offset_of(data, key_end)
            key = data[at + ENTRY.size : key_end]
            if len(key) != key_len or offset + RECORD_OVERHEAD + key_len + val_len > limit:
                raise Malformed("an entry of the snapshot does not fit its place")
            if col != last:
                keys, locations = parts.setdefault(col, ([], []))
                last = col
            keys.append(key)
            locations.append(pack(offset, val_len, val_crc))
        return parts


class Base:
    """The entries of one snapshot: as many as `count`, of records of together `live` bytes, whose keys have
    `key_bytes`. For any thread.
    """

    def __init__(
        self,
        file: File,
        path: Path,
        at: int,
        length: int,
        foot: Foot,
        *,
        fences: list[bytes],
        sums: bytes,
        limit: int,
        replay: Callable[[], Maps | None],
    ) -> None:
        """The snapshot whose value of so many bytes stands at byte `at` of the file, with its fences and the sums
        of its blocks, which were checked.

        Records lie before byte `limit`. `replay` tells what the whole log says, None if it is damaged.
        Raises `Malformed`.
        """
        self._layout = layout = snapshot_layout(foot, length)
        self.count = foot.count
        self.live = foot.live
        self.key_bytes = layout.table_at - LENGTH.size - foot.count * (ENTRY.size + OFFSET.size)
        self._path = path
        self._source = file, at
        self._at = at
        self._length = length
        self._foot = foot
        self._fences = fences
        self._sums = sums
        self._limit = limit
        self._replay = replay
        self._mending = Lock()
        self._lost = False
        self._blocks: Cache[Block] = Cache(BLOCKS_KEPT)
        self._rows: Cache[bytes] = Cache(ROWS_KEPT)

    @property
    def spoiled(self) -> bool:
        """Whether a block was met that did not check."""
        return self._lost or self._is_mended()

    def find(self, col: int, key: bytes) -> bytes | None:
        """The packed location of a key. Raises `Damage`, `ReadFailed`."""
        number = bisect_right(self._fences, COLUMNS[col] + key) - 1
        if number < 0:
            return None
        try:
            return self._block(number).find(col, key)
        except Malformed as error:
            raise self._damage(error) from None

    def blocks(self, col: int, low: bytes, high: bytes | None) -> range:
        """The numbers of the blocks that may hold keys of a column from `low` up to but without `high`."""
        end = COLUMNS[col + 1] if high is None else COLUMNS[col] + high
        first = max(bisect_right(self._fences, COLUMNS[col] + low) - 1, 0)
        return range(first, bisect_left(self._fences, end))

    def part(self, number: int, col: int, low: bytes, high: bytes | None) -> Run:
        """What a block has of these, in order. Raises as `find`."""
        try:
            keys, locations = self._block(number).part(col)
        except Malformed as error:
            raise self._damage(error) from None
        part = slice(bisect_left(keys, low), None if high is None else bisect_left(keys, high))
        return keys[part], locations[part]

    def mend(self, damage: Damage, below: Callable[[Maps], Iterable[SnapshotEntry]]) -> None:
        """Go on with a copy in memory. `below` tells the entries again, given what the whole log says; they are
        believed if the snapshot they make has the same root.

        Raises `Corrupted`, also at every later call, if they do not or the log is damaged too.
        """
        with self._mending:
            if not self._lost and not self._is_mended():
                maps = self._replay()
                if maps is None or not self._take(below(maps)):
                    self._lost = True
        if self._lost:
            raise Corrupted(self._path, damage.offset, damage.problem)

    def _is_mended(self) -> bool:
        return self._source[1] != self._at

    def _take(self, entries: Iterable[SnapshotEntry]) -> bool:
        encoder = SnapshotEncoder(self._foot.identity_at, self._foot.salt)
        encoder.add(entries)
        parts, foot = encoder.finish()
        value = b"".join(parts)
        if foot != self._foot or len(value) != self._length:
            return False
        self._rows.clear()
        self._source = MemoryFile(0, value), 0
        return True

    def _damage(self, error: Malformed) -> Damage:
        return Damage(self._at, str(error))

    def _block(self, number: int) -> Block:
        block = self._blocks.get(number)
        if block is None:
            block, size = self._read(number)
            self._blocks.put(number, block, size)
        return block

    def _read(self, number: int) -> tuple[Block, int]:
        rows, end = self._rows_of(number)
        (start,) = OFFSET.unpack_from(rows)
        if not LENGTH.size <= start < end <= self._layout.table_at:
            raise Malformed("a block of the snapshot lies outside of it")
        data = self._bytes(end - start, start)
        (total,) = LENGTH.unpack_from(self._sums, number * LENGTH.size)
        if len(data) != end - start or crc32(rows, crc32(data, self._foot.salt)) != total:
            raise Malformed("a block of the snapshot does not match its sum")
        return Block(data, rows, start, self._limit), DECODED * (len(data) + len(rows))

    def _rows_of(self, number: int) -> tuple[bytes, int]:
        """The rows of a block, not checked yet, and where its entries end."""
        group, place = divmod(number, ROWS_TOGETHER)
        rows = self._rows.get(group)
        if rows is None:
            rows = self._read_rows(group)
            self._rows.put(group, rows, len(rows))
        at, size = place * BLOCK * ROW.size, BLOCK * ROW.size
        last = number == self._layout.blocks - 1
        end = self._layout.table_at if last else OFFSET.unpack_from(rows, at + size)[0]
        return rows[at : at + size], end

    def _read_rows(self, group: int) -> bytes:
        """The rows of a group of blocks, and the position behind them, where the next one begins."""
        size = ROWS_TOGETHER * BLOCK * ROW.size
        at = self._layout.table_at + group * size
        length = min(size + OFFSET.size, self._layout.fences_at - at)
        rows = self._bytes(length, at)
        if len(rows) != length:
            raise Malformed("the file became shorter")
        return rows

    def _bytes(self, length: int, at: int) -> bytes:
        file, start = self._source
        try:
            return file.read(length, start + at)
        except OSError as error:
            raise ReadFailed(self._path, start + at, error) from error
