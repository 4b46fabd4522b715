"""A damaged store as far as it can be read: what the medium refuses reads as zeros, a lost beginning is derived.

Everything in a file hangs on its first bytes, header and identity; but every frame says where it stands, and
from its sum follows the salt. Nothing here writes to the file.
"""

import errno
from collections.abc import Iterator
from typing import Final, NoReturn

from crabdb.files import File
from crabdb.format import (
    FRAME_PREFIX,
    FRAME_SIZE,
    HEADER_SIZE,
    IDENTITY_KEY,
    IDENTITY_RECORD_SIZE,
    PUT,
    RECORD,
    RESERVED,
    Identity,
    Malformed,
    Newer,
    decode_header,
    decode_identity,
    encode_bare_header,
    encode_identity,
    salt_of_frame,
)
from crabdb.recovery import BIRTH_SIZE, find_frames, is_plain

__all__ = ["PatientFile", "lost_beginning"]

BLOCK: Final = 512
"""The least that a medium loses, bytes."""

SCAN: Final = 1 << 20
"""How much is searched for a frame at once, bytes."""

IDENTITY_HEAD: Final = RECORD.pack(PUT, RESERVED, len(IDENTITY_KEY)) + IDENTITY_KEY
FILE_ID_AT: Final = HEADER_SIZE + len(IDENTITY_HEAD) + 4


class PatientFile(File):
    """A file to read. Blocks that the medium refuses read as zeros; `beginning` stands in place of what it starts
    with.
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


def lost_beginning(file: File) -> bytes:
    """What should stand at the start of a file that has lost its header or identity; empty if it has both, or if
    another writer made it.

    Raises `Newer` for a newer version, `Malformed` if no frame tells that this is a store.
    """
    head = file.read(BIRTH_SIZE, 0)
    header, problem = _header(head)
    whole = header if problem else b""
    if _has_frames(file, _salt_of(head)):
        return whole
    born_here = is_plain(decode_header(header)) or head.startswith(IDENTITY_HEAD, HEADER_SIZE)
    if problem is None and not born_here:
        return whole
    salt = _salt_of_frames(file)
    if salt is not None:
        file_id = head[FILE_ID_AT : FILE_ID_AT + 16].ljust(16, b"\0")
        return header + encode_identity(Identity(file_id, salt, 0))
    if problem is not None:
        raise problem
    return whole


def _header(head: bytes) -> tuple[bytes, Malformed | None]:
    """The header, or one that promises nothing and what is wrong with the one that is there."""
    try:
        decode_header(head)
    except Newer:
        raise
    except Malformed as problem:
        return encode_bare_header(), problem
    return head[:HEADER_SIZE], None


def _salt_of(head: bytes) -> int | None:
    """What the identity at the beginning says; None if there is none, which raises nothing but `Newer`."""
    record = head[HEADER_SIZE : HEADER_SIZE + IDENTITY_RECORD_SIZE]
    if not record.startswith(IDENTITY_HEAD) or len(record) < IDENTITY_RECORD_SIZE:
        return None
    return decode_identity(record[len(IDENTITY_HEAD) + 4 :]).salt


def _has_frames(file: File, salt: int | None) -> bool:
    return salt is not None and next(find_frames(file, HEADER_SIZE, file.size(), salt), None) is not None


def _salt_of_frames(file: File) -> int | None:
    """The salt under which something in the file is a frame, and another thing too, or the frame of the birth."""
    for at, salt in _possible_salts(file):
        others = find_frames(file, at + 1, file.size(), salt)
        if at == BIRTH_SIZE - FRAME_SIZE or next(others, None) is not None:
            return salt
    return None


def _possible_salts(file: File) -> Iterator[tuple[int, int]]:
    size = file.size()
    for start in range(HEADER_SIZE, size, SCAN):
        data = file.read(min(SCAN + FRAME_SIZE - 1, size - start), start)
        place = data.find(FRAME_PREFIX)
        while 0 <= place < SCAN:
            salt = salt_of_frame(data, place, start + place)
            if salt is not None:
                yield start + place, salt
            place = data.find(FRAME_PREFIX, place + 1)
