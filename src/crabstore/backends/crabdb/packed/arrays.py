"""Arrays and lists of bytes as values: the smallest width that holds the numbers, little-endian. Pure, no I/O."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ....store.errors import BadRecord

__all__ = [
    "Bools",
    "Floats",
    "Ints",
    "Numbers",
    "Reader",
    "distinct",
    "looked_up",
    "narrowed",
    "pack_array",
    "pack_strings",
    "run_starts",
]

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.integer]
"""Unsigned integers of whatever width they were packed in."""

N = TypeVar("N", bound=np.generic)

_DTYPES = ("<u1", "<u2", "<u4", "<u8", "<i8", "<f8")
_CODES = {np.dtype(name): code for code, name in enumerate(_DTYPES)}
_HEAD = struct.Struct("<BI")
_STRINGS = struct.Struct("<II")


def narrowed(numbers: npt.NDArray[np.integer]) -> Numbers:
    """The same numbers, none of them negative, in the narrowest unsigned type."""
    largest = int(numbers.max()) if len(numbers) else 0
    width = 0 if largest < 1 << 8 else 1 if largest < 1 << 16 else 2 if largest < 1 << 32 else 3
    return numbers.astype(_DTYPES[width])


def distinct(parts: Sequence[npt.NDArray[N]]) -> npt.NDArray[N]:
    """The distinct numbers in all of `parts`, one at least, ascending; each part ascends already."""
    if len(parts) == 1:
        return parts[0]
    merged = np.concatenate(parts)
    merged.sort(kind="stable")
    return merged[run_starts(merged)]


def run_starts(numbers: npt.NDArray[np.generic]) -> Ints:
    """Where each run of one number starts."""
    changes = np.ones(len(numbers), np.bool_)
    changes[1:] = numbers[1:] != numbers[:-1]
    return np.flatnonzero(changes)


def looked_up(known: npt.NDArray[N], wanted: npt.NDArray[N]) -> tuple[Ints, Bools]:
    """Where each of `wanted` stands in `known`, which ascends, and whether it stands there at all."""
    places = np.searchsorted(known, wanted)
    there = places < len(known)
    there[there] = known[places[there]] == wanted[there]
    return places, there


def pack_array(array: npt.NDArray[np.generic]) -> bytes:
    """``type u8 | count u32 | items``; the type is an index of u1, u2, u4, u8, i8, f8."""
    return _HEAD.pack(_CODES[array.dtype], len(array)) + array.tobytes()


def pack_strings(strings: Sequence[bytes]) -> bytes:
    """``count u32 | packed size u32 | zlib of (u32 lengths, the strings end to end)``."""
    lengths = np.fromiter(map(len, strings), dtype="<u4", count=len(strings))
    packed = zlib.compress(lengths.tobytes() + b"".join(strings), 1)
    return _STRINGS.pack(len(strings), len(packed)) + packed


class Reader:
    """Reads what was packed, one after the other. Raises BadRecord, which names `key`, for anything else."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self._key = key
        self._value = value
        self._at = 0

    def array(self) -> npt.NDArray[np.generic]:
        """The next array; it shares the value's memory and is not to be written."""
        code, count = self.struct(_HEAD)
        if code >= len(_DTYPES):
            raise BadRecord(self._key, f"an array of unknown type {code}")
        return self.raw(_DTYPES[code], count)

    def numbers(self) -> Numbers:
        """The next array, of integers."""
        found = self.array()
        if not np.issubdtype(found.dtype, np.integer):
            raise BadRecord(self._key, "whole numbers are missing")
        return found.astype(found.dtype, copy=False)

    def floats(self) -> Floats:
        """The next array, of floats."""
        found = self.array()
        if found.dtype != np.float64:
            raise BadRecord(self._key, "floating-point numbers are missing")
        return found.astype(np.float64, copy=False)

    def strings(self) -> list[bytes]:
        """The next list of bytes."""
        count, size = self.struct(_STRINGS)
        try:
            packed = zlib.decompress(self._take(size))
        except zlib.error as error:
            raise BadRecord(self._key, str(error)) from error
        if len(packed) < 4 * count:
            raise BadRecord(self._key, "a list of strings is cut short")
        lengths = np.frombuffer(packed, "<u4", count).tolist()
        ends = accumulate(lengths, initial=4 * count)
        return [packed[start:end] for start, end in pairwise(ends)]

    def struct(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next fixed fields."""
        return layout.unpack(self._take(layout.size))

    def raw(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        """The next `count` numbers of a width that the caller knows."""
        return np.frombuffer(self._take(count * np.dtype(dtype).itemsize), dtype)

    def text(self, size: int) -> bytes:
        """The next `size` bytes."""
        return self._take(size)

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._value):
            raise BadRecord(self._key, "the value is cut short")
        return self._value[start : self._at]
