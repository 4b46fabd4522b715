"""Bytes to JSON objects, line by line: streaming, bounded, and never stopped by a bad line.

Transcripts are written by programs that crash, by several at once, over network drives and through shells, and
are read while they are being written. So a line may be cut, glued to the next, padded with NULs, UTF-16, or hold
half an emoji; whatever is wrong with one, it is reported with its place and the others are read.

Holds one line at a time, of at most `MAX_RECORD` bytes. Opens nothing: callers bring binary streams.
"""

from __future__ import annotations

import codecs
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from ..store.records import Json

__all__ = ["MAX_RECORD", "BadLine", "JsonLine", "clean", "parse", "read_lines"]

MAX_RECORD = 64 << 20
"""Bytes of the longest line that is read; the longest seen in the wild has 17 MB. A longer one is skipped, and
reported. It bounds memory, so raise it only where lines of that size are real."""

_MAX_DEPTH = 200
"""Nesting beyond this is no transcript, and would meet the interpreter's recursion limit somewhere later."""

_MAX_STARTS = 16
_GROWING = "the last line is not complete: it may still be being written"
_SURROGATES = re.compile("[\ud800-\udfff]")
_NULS = re.compile(rb"\0+")
_FIRST_KEY = re.compile(rb'\{\s*"(?:[^"\\]|\\.){1,64}"\s*:')


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One JSON object of a file."""

    number: int
    """Of its line, from 1."""
    offset: int
    """Of its line's first byte."""
    part: int
    """0, or which of several objects that are glued together in one line."""
    value: dict[str, Json]
    size: int
    """Bytes of its line."""

    @property
    def key(self) -> str:
        """Names the object by its place, which an append to the file does not change."""
        return f"line-{self.number}.{self.part}" if self.part else f"line-{self.number}"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line, or a piece of one, that could not be read. `note` where nothing is lost by it."""

    number: int
    offset: int
    reason: str
    note: bool = False


def read_lines(
    stream: io.BufferedReader, skip: Callable[[bytes], bool] | None = None
) -> Iterator[JsonLine | BadLine]:
    """Every JSON object of a JSON Lines stream, in order, and what could not be read.

    `skip` sees each raw line before it is parsed, for kinds that are many and large and not wanted.
    """
    reader = _Reader()
    for number, (offset, raw) in enumerate(_raw_lines(stream), 1):
        if isinstance(raw, str):
            yield BadLine(number, offset, raw)
        elif (line := raw.strip(b" \t\r\n\0")) and not (skip and skip(line)):
            yield from reader.read(number, offset, line, last=not raw.endswith(b"\n"))


def parse(data: bytes) -> Json:
    """Any JSON text, as tolerantly as it can be read; the value can always be encoded again.

    Accepts a byte order mark, raw control characters, NaN (as null) and lone surrogates (as U+FFFD). Raises
    ValueError with the reason.
    """
    try:
        value: Json = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = _parse_tolerantly(data)
    if data.count(b"[") + data.count(b"{") > _MAX_DEPTH:
        _check_depth(value)
    return value


def clean(value: Json) -> Json:
    """`value` with lone surrogates replaced and numbers that JSON does not have turned to null."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): clean(item) for key, item in value.items()}
    return value


# -- lines as bytes --


def _raw_lines(stream: io.BufferedReader) -> Iterator[tuple[int, bytes | str]]:
    """Offset and bytes of each line, or why it is not read.

    Only a newline ends a line: U+2028 and its like are legal inside JSON strings.
    """
    head = stream.peek(4)[:4]
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        yield from _utf16_lines(stream)
        return
    offset = len(stream.read(3)) if head.startswith(codecs.BOM_UTF8) else 0
    while raw := stream.readline(MAX_RECORD + 1):
        size = len(raw)
        if size > MAX_RECORD and not raw.endswith(b"\n"):
            size += _skip_line(stream)
            yield offset, f"{size} bytes: lines over {MAX_RECORD} are skipped"
        else:
            yield offset, raw
        offset += size


def _skip_line(stream: io.BufferedReader) -> int:
    size = 0
    while piece := stream.readline(1 << 20):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def _utf16_lines(stream: io.BufferedReader) -> Iterator[tuple[int, bytes | str]]:
    """Lines of a UTF-16 file, as shells that redirect write it, in UTF-8; offsets are the file's own."""
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    offset, rest, dropping = 2, "", False
    while chunk := stream.read(1 << 16):
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in lines:
            if not dropping:
                yield offset, f"{line}\n".encode(errors="replace")
            offset += _utf16_size(line) + 2
            dropping = False
        if len(rest) > MAX_RECORD:
            if not dropping:
                yield offset, f"lines over {MAX_RECORD} characters are skipped"
            offset, rest, dropping = offset + _utf16_size(rest), "", True
    if rest and not dropping:
        yield offset, rest.encode(errors="replace")


def _utf16_size(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass"))


# -- a line as objects --


class _Reader:
    """Reads the lines of one file, and remembers how they start."""

    def __init__(self) -> None:
        self._starts: dict[bytes, None] = {}

    def read(self, number: int, offset: int, line: bytes, *, last: bool) -> Iterator[JsonLine | BadLine]:
        try:
            value = parse(line)
        except ValueError as error:
            yield from self._pieces(number, offset, line, str(error), last=last)
            return
        if not isinstance(value, dict):
            yield BadLine(number, offset, f"{_kind(value)} where an object was expected")
            return
        self._remember(line)
        if not (line.isascii() or _is_utf8(line)):
            yield BadLine(number, offset, "bytes that are no UTF-8 were replaced by U+FFFD", note=True)
        yield JsonLine(number, offset, 0, value, len(line))

    def _remember(self, line: bytes) -> None:
        if line.startswith(tuple(self._starts)):
            return
        start = _FIRST_KEY.match(line[:80])
        if start and len(self._starts) < _MAX_STARTS:
            self._starts[start[0]] = None

    def _pieces(
        self, number: int, offset: int, line: bytes, reason: str, *, last: bool
    ) -> Iterator[JsonLine | BadLine]:
        """The whole objects in a line that is none: several glued together, or one behind a fragment."""
        part = 0
        lost = False
        for piece in _NULS.split(line):
            values, whole = self._objects(piece.decode(errors="replace").strip(), growing=last)
            lost = lost or not whole
            for value in values:
                yield JsonLine(number, offset, part, value, len(piece))
                part += 1
        if lost:
            growing = last and not part
            yield BadLine(number, offset, _GROWING if growing else reason, note=growing)

    def _objects(self, text: str, *, growing: bool) -> tuple[list[dict[str, Json]], bool]:
        """The objects in `text`, and whether that is all of it."""
        values, failed_at = _glued(text)
        if failed_at is None or growing or _is_cut(text, failed_at):
            return values, failed_at is None
        return values + self._behind_fragment(text, failed_at), False

    def _behind_fragment(self, text: str, at: int) -> list[dict[str, Json]]:
        """Whole objects that fill the end of `text`, the first of which starts like other lines of this file.

        A writer that went on after a crash fuses its line onto the torn one; an object inside a torn line is no
        line, and does not reach the end.
        """
        starts = sorted(
            match.start()
            for start in self._starts
            for match in re.finditer(re.escape(start.decode(errors="replace")), text[at:])
        )
        for start in starts[:_MAX_STARTS]:
            values, failed_at = _glued(text[at + start :])
            if failed_at is None:
                return values
        return []


def _glued(text: str) -> tuple[list[dict[str, Json]], int | None]:
    """The objects that `text` starts with, and where it stops being objects; None if it is nothing else."""
    values: list[dict[str, Json]] = []
    at = 0
    while at < len(text):
        try:
            value, end = _decoder.raw_decode(text, at)
            _check_depth(value)
            cleaned = clean(value)
        except (ValueError, RecursionError):
            return values, at
        if not isinstance(cleaned, dict):
            return values, at
        values.append(cleaned)
        at = end
        while at < len(text) and text[at].isspace():
            at += 1
    return values, None


def _is_cut(text: str, at: int) -> bool:
    """Whether what starts at `at` would be an object if only it went on: nothing else is fused onto it."""
    try:
        _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return True
    return False


def _parse_tolerantly(data: bytes) -> Json:
    try:
        value: Json = _decoder.decode(data.decode("utf-8-sig", "replace"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    _check_depth(value)
    return clean(value)


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return
        level = inner
    raise ValueError(f"nested more than {_MAX_DEPTH} deep")


def _whole(text: str) -> str:
    """`text` with pairs of surrogates joined, and U+FFFD for each that is alone."""
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kind(value: Json) -> str:
    names = {str: "a string", list: "a list", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


_decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
