"""Transcript files on disk: opening them, and what stands beside them. Never writes, follows no path in a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..store.records import Json
from .codex import read_titles
from .lines import MAX_RECORD, parse

try:
    import zstandard
except ImportError:  # an extra: only archived Codex rollouts need it
    zstandard = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Unreadable", "open_whole", "opener", "session_titles", "sidecar"]

_SIDECAR = 1 << 20
_ZSTD_PIECE = 1 << 10


class Unreadable(Exception):
    """The file may be a transcript, but it cannot be read here and now. `reason` says what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def opener(path: Path) -> Callable[[], io.BufferedReader]:
    """What opens the file from its start, unpacked. Raises Unreadable where unpacking it takes what is missing."""
    if path.suffix != ".zst":
        return lambda: path.open("rb")
    if zstandard is None:
        raise Unreadable("a zstd file: install the extra for it, pip install 'crabstore[zstd]'")
    return lambda: io.BufferedReader(_Zstd(path))


def open_whole(path: Path) -> bytes:
    """The bytes of a file that is one JSON value. Raises Unreadable if they are too many to hold."""
    with opener(path)() as stream:
        data = stream.read(MAX_RECORD + 1)
    if len(data) > MAX_RECORD:
        raise Unreadable(f"one JSON value of more than {MAX_RECORD} bytes: convert it to an object a line")
    return data


def sidecar(path: Path) -> dict[str, Json]:
    """What the `.meta.json` beside a subagent's transcript says; nothing if none can be read."""
    beside = path.with_name(path.name.split(".", 1)[0] + ".meta.json")
    try:
        with beside.open("rb") as stream:
            value = parse(stream.read(_SIDECAR))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def session_titles(path: Path) -> dict[str, str]:
    """What the session index of the Codex home that `path` lies in calls its sessions."""
    homes = [folder.parent for folder in path.parents if folder.name in ("sessions", "archived_sessions")]
    for home in homes[:1]:
        try:
            with (home / "session_index.jsonl").open("rb") as stream:
                return read_titles(stream)
        except OSError:
            return {}
    return {}


class _Zstd(io.RawIOBase):
    """A zstd file, unpacked as it is read. Damage in it is an OSError, and so is a cut end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._unpacker = zstandard.ZstdDecompressor().decompressobj()
        self._packed = self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        while not self._rest and self._unpack():
            pass
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _unpack(self) -> bool:
        """Unpack the next piece; False at the end. Pieces are small since one may hold 30,000 times its size."""
        packed = self._packed or self._file.read(_ZSTD_PIECE)
        if not packed:
            if not self._unpacker.eof and self._file.tell():
                raise OSError("the zstd data ends too early")
            return False
        try:
            if self._unpacker.eof:
                self._unpacker = zstandard.ZstdDecompressor().decompressobj()
            self._rest = self._unpacker.decompress(packed)
        except zstandard.ZstdError as error:
            raise OSError(f"damaged zstd data: {error}") from error
        self._packed = self._unpacker.unused_data
        return True

    def close(self) -> None:
        self._file.close()
        super().close()
