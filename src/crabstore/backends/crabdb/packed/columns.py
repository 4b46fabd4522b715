"""What the documents of a segment may be filtered by: one column for each attribute, packed. Pure, no I/O.

A column keeps text exactly. Where all of its values are times in the one form that the store writes, it keeps
them as numbers of microseconds, which order as the text does; otherwise as the distinct values, ascending, and
for each document which of them it has. So equality and ranges are comparisons of arrays of numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from ....store.errors import BadRecord
from ....store.text import Between
from .arrays import Bools, Ints, Numbers, Reader, narrowed, pack_array, pack_strings

__all__ = ["Column", "merged_column", "pack_column", "read_column"]

_WORDS, _TIMES = 0, 1
_ABSENT = np.iinfo(np.int64).min
_EPOCH = datetime(1970, 1, 1)
_LOWEST = np.datetime64("0001-01-01", "us").astype(np.int64).item()
_HIGHEST = np.datetime64("9999-12-31T23:59:59.999999", "us").astype(np.int64).item()


class Column(ABC):
    """The values of one attribute, by ordinal."""

    @abstractmethod
    def values(self) -> list[str | None]:
        """What each document has."""

    @abstractmethod
    def matches(self, condition: str | Between) -> Bools:
        """Which documents meet the condition."""

    @abstractmethod
    def pack(self) -> bytes:
        """The column as a value."""


class _Words(Column):
    def __init__(self, words: list[str], codes: Numbers) -> None:
        self.words = words
        self.codes = codes  # 0: absent, otherwise a place in words and one

    def values(self) -> list[str | None]:
        table = [None, *self.words]
        return [table[code] for code in self.codes.tolist()]

    def matches(self, condition: str | Between) -> Bools:
        if isinstance(condition, Between):
            first = 0 if condition.since is None else bisect_left(self.words, condition.since)
            last = len(self.words) if condition.until is None else bisect_left(self.words, condition.until)
            return (self.codes > first) & (self.codes <= last)
        at = bisect_left(self.words, condition)
        if at == len(self.words) or self.words[at] != condition:
            return np.zeros(len(self.codes), np.bool_)
        return np.asarray(self.codes == at + 1)

    def pack(self) -> bytes:
        words = [word.encode(errors="surrogatepass") for word in self.words]
        return bytes([_WORDS]) + pack_strings(words) + pack_array(self.codes)


class _Times(Column):
    def __init__(self, times: Ints) -> None:
        self.times = times

    def values(self) -> list[str | None]:
        return [None if time == _ABSENT else _text(time) for time in self.times.tolist()]

    def matches(self, condition: str | Between) -> Bools:
        if isinstance(condition, Between):
            since = _LOWEST if condition.since is None else _first_from(condition.since)
            until = _HIGHEST + 1 if condition.until is None else _first_from(condition.until)
            return (self.times >= since) & (self.times < until)
        at = _first_from(condition)
        if at > _HIGHEST or _text(at) != condition:
            return np.zeros(len(self.times), np.bool_)
        return np.asarray(self.times == at)

    def pack(self) -> bytes:
        return bytes([_TIMES]) + pack_array(self.times)


def pack_column(values: Sequence[str | None]) -> bytes:
    """The column of these values, by ordinal."""
    return _column(values).pack()


def read_column(key: bytes, value: bytes) -> Column:
    """The column that was packed. Raises BadRecord."""
    reader = Reader(key, value[1:])
    if value[:1] == bytes([_TIMES]):
        return _Times(reader.numbers().astype(np.int64, copy=False))
    if value[:1] != bytes([_WORDS]):
        raise BadRecord(key, "a column of an unknown kind")
    words = [word.decode(errors="surrogatepass") for word in reader.strings()]
    codes = reader.numbers()
    if int(codes.max(initial=0)) > len(words):
        raise BadRecord(key, "a column has codes without words")
    return _Words(words, codes)


def merged_column(parts: Sequence[tuple[Column | None, npt.NDArray[np.int64], Ints]], count: int) -> bytes:
    """The column of `count` documents of which each part gives some: where they stood in it, where they stand now.

    A part without the column is None.
    """
    columns = [column for column, _, _ in parts if column is not None]
    if all(isinstance(column, _Times) for column in columns):
        times = np.full(count, _ABSENT)
        for column, old, new in parts:
            if isinstance(column, _Times):
                times[new] = column.times[old]
        return _Times(times).pack()
    if all(isinstance(column, _Words) for column in columns):
        return _merged_words(parts, count).pack()
    values: list[str | None] = [None] * count
    for column, old, new in parts:
        known = column.values() if column is not None else []
        for was, now in zip(old.tolist(), new.tolist(), strict=True):
            values[now] = known[was] if known else None
    return pack_column(values)


def _merged_words(parts: Sequence[tuple[Column | None, Ints, Ints]], count: int) -> _Words:
    found = [
        (column.words, column.codes[old], new) for column, old, new in parts if isinstance(column, _Words)
    ]
    # Words that only documents which are gone had are left out: nothing of them stays.
    used = [(words, np.unique(codes), codes, new) for words, codes, new in found]
    kept = sorted({words[code - 1] for words, codes, _, _ in used for code in codes.tolist() if code})
    place = {word: code for code, word in enumerate(kept, 1)}
    merged = np.zeros(count, np.int64)
    for words, distinct, codes, new in used:
        renamed = np.zeros(len(words) + 1, np.int64)
        renamed[distinct] = [place[words[code - 1]] if code else 0 for code in distinct.tolist()]
        merged[new] = renamed[codes]
    return _Words(kept, narrowed(merged))


def _column(values: Sequence[str | None]) -> Column:
    present = [value for value in values if value is not None]
    times = _times(present)
    if times is None:
        words = sorted(set(present))
        place: dict[str | None, int] = {word: code for code, word in enumerate(words, 1)}
        place[None] = 0
        return _Words(words, narrowed(np.array([place[value] for value in values], np.int64)))
    found = np.full(len(values), _ABSENT)
    found[[at for at, value in enumerate(values) if value is not None]] = times
    return _Times(found)


def _times(values: list[str]) -> Ints | None:
    """The values as microseconds, if each is in the one form that is written back from them."""
    if not all(len(value) == 27 and value.endswith("Z") for value in values) or not values:
        return None
    try:
        times = np.array([value[:-1] for value in values], "datetime64[us]")
    except ValueError:
        return None
    # A year beyond what has four digits, or another way to write a time, does not come back as it was.
    if [text + "Z" for text in np.datetime_as_string(times).tolist()] != values:
        return None
    return times.astype(np.int64)


def _text(time: int) -> str:
    return (_EPOCH + timedelta(microseconds=time)).isoformat(timespec="microseconds") + "Z"


def _first_from(bound: str) -> int:
    """The first time whose text is not before `bound`, which is any text; beyond all times if there is none."""
    low, high = _LOWEST, _HIGHEST + 1
    while low < high:
        middle = (low + high) // 2
        if _text(middle) < bound:
            low = middle + 1
        else:
            high = middle
    return low
