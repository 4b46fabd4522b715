"""A damaged store as far as it can be read: what the medium refuses reads as zeros, and a lost header is replaced.

Nothing here writes to the file.
"""

import errno
from collections.abc import Iterator
from typing import Final, NoReturn

from crabdb.files import File
from crabdb.format import HEADER_SIZE, Malformed, Newer, decode_header, encode_bare_header
from crabdb.recovery import salt_of_frames

__all__ = ["PatientFile", "lost_header"]

BLOCK: Final = 512
"""The least that a medium loses, bytes."""


class PatientFile(File):
    """A file to read. Blocks that the medium refuses read as zeros; `beginning` stands in place of its first
    bytes.
    """

    def __init__(self, inner: File) -> None:
        self.inner = inner
        self.beginning = b""
        self.refused: set[int] = set()
        """Offsets of the blocks that could not be read."""

    def read(self, length: int, offset: int) -> bytes:
        data = self._read(length, offset)
        return self.beginning[offset : offset + length] + data[max(len(self.beginning) - offset, 0) :]

    def _read(self, length: int, offset: int) -> bytes:
        try:
            return self.inner.read(length, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b"".join(self._blocks(offset, min(offset + length, self.size())))

    def _blocks(self, at: int, stop: int) -> Iterator[bytes]:
        while at < stop:
            length = min(BLOCK - at % BLOCK, stop - at)
            try:
                yield self.inner.read(length, at)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self.refused.add(at - at % BLOCK)
                yield bytes(length)
            at += length

    def size(self) -> int:
        return self.inner.size()

    def inode(self) -> tuple[int, int]:
        return self.inner.inode()

    def close(self) -> None:
        self.inner.close()

    def write(self, data: bytes, offset: int) -> None:
        _refuse()

    def truncate(self, size: int) -> None:
        _refuse()

    def sync(self) -> None:
        _refuse()

    def dress_like(self, other: File) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise OSError(errno.EROFS, "A file that is being salvaged is never written")


def lost_header(file: File) -> bytes:
    """What should stand at the start of a store whose first bytes are no header: one that promises nothing. Empty
    if they are one.

    Raises `Newer` for a newer version, `Malformed` if no frame tells that this is a store.
    """
    try:
        decode_header(file.read(HEADER_SIZE, 0))
    except Newer:
        raise
    except Malformed:
        if salt_of_frames(file, file.size()) is None:
            raise
        return encode_bare_header()
    return b""
