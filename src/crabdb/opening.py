"""From a path to a store that can be used: refuse what is not ours, make what is missing, mend what a crash left.

Nothing is written before the first bytes of an existing file have been recognised, and nothing at all to a
file that is opened read-only. What is mended is a torn tail, which is saved beside the file and cut off,
and records that another writer appended without a frame, which are vouched for.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from crabdb.errors import (
    AccessDenied,
    Corrupted,
    CrabDBError,
    DiskFull,
    Exists,
    IOFailed,
    NotCrabDB,
    NotFound,
    Unsupported,
)
from crabdb.files import NO_ROOM, File, Files, Lock
from crabdb.format import (
    HEADER_SIZE,
    Identity,
    Malformed,
    Newer,
    decode_header,
    encode_attestation,
    encode_bare_header,
    encode_header,
    encode_identity,
)
from crabdb.index import Index
from crabdb.log import Log
from crabdb.options import Options
from crabdb.recovery import Recovered, recover_in_place
from crabdb.replay import Damage, checksum

__all__ = ["Found", "Opened", "new_file", "open_reader", "open_writer", "typed_errors"]

TORN_FILES: Final = 8
"""So many saved tails are kept beside a store; after that the last one is written over."""


@dataclass(frozen=True, slots=True)
class Found:
    """What an opening found: the bytes of a torn tail, where they were saved, the offsets of damage that was
    stepped over, how many damaged snapshots there were, and where the last commit begins.
    """

    torn: int = 0
    torn_saved: Path | None = None
    damage: tuple[int, ...] = ()
    spoiled_snapshots: int = 0
    last_frame: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened store: its log, the lock if it may write, and what there was to say about the file."""

    log: Log
    lock: Lock | None
    found: Found


def _found(recovered: Recovered, torn_saved: Path | None = None) -> Found:
    damage = tuple(damage.offset for damage in recovered.damage)
    torn = recovered.size - recovered.end
    whole = recovered.last_frame is not None and recovered.last_frame < recovered.end
    last_frame = recovered.last_frame if whole else None
    return Found(torn, torn_saved, damage, recovered.spoiled, last_frame)


@contextmanager
def typed_errors(path: Path) -> Iterator[None]:
    """Errors of the system and of the format as errors about the store at `path`."""
    try:
        yield
    except CrabDBError:
        raise
    except Damage as damage:
        raise Corrupted(path, damage.offset, damage.problem) from None
    except Newer as newer:
        raise Unsupported(path, str(newer)) from None
    except Malformed as malformed:
        raise NotCrabDB(path, str(malformed)) from None
    except FileNotFoundError as missing:
        raise NotFound(path, "there is no such file, or its directory is missing") from missing
    except FileExistsError:
        raise Exists(path) from None
    except IsADirectoryError:
        raise NotCrabDB(path, "it is no regular file") from None
    except PermissionError as denied:
        raise AccessDenied(path, denied) from denied
    except OSError as error:
        if error.errno == errno.EROFS:
            raise AccessDenied(path, error) from error
        if error.errno in NO_ROOM:
            raise DiskFull(path, error) from error
        raise IOFailed(path, error) from error


def open_reader(files: Files, path: Path) -> Opened:
    """The store at `path` as far as it is intact, without a lock and without ever writing to it."""
    with typed_errors(path):
        file = files.open(path, write=False)
        recovered = recover_in_place(file, path, salvage=True)
        return Opened(_log(path, file, recovered, _identity_of(recovered, files)), None, _found(recovered))


def open_writer(files: Files, path: Path, options: Options, *, create: bool) -> Opened:
    """The store at `path`, locked and mended. Makes a new one in place of nothing, or of an empty file."""
    with typed_errors(path):
        if not _is_store(files, path) and not create:
            raise NotFound(path, "there is no store, and create=False")
        lock = files.lock(path)
        try:
            _remove_leftovers(files, path)
            if not _is_store(files, path):
                _make(files, path)
            return _open_locked(files, path, options, lock)
        except BaseException:
            lock.release()
            raise


def _is_store(files: Files, path: Path) -> bool:
    """Whether a store is there; False for nothing and for an empty file. Raises `Malformed` for anything else."""
    try:
        file = files.open(path, write=False)
    except FileNotFoundError:
        return False
    if not file.size():
        return False
    decode_header(file.read(HEADER_SIZE, 0))
    return True


def _remove_leftovers(files: Files, path: Path) -> None:
    """What a creation or compaction that was killed left beside the store. Nobody else can be at it: we have
    the lock.
    """
    ours = re.compile(re.escape(path.name) + r"\.(new|compact)-\d+-[0-9a-f]{16}")
    for name in files.names(path.parent):
        if ours.fullmatch(name):
            files.remove(path.with_name(name))


def new_file(files: Files, path: Path, purpose: str, file_id: bytes) -> tuple[Path, Log]:
    """A fresh file beside `path` that holds no keys yet, under a temporary name, and its log."""
    name, file = files.temporary(path, purpose)
    try:
        identity = Identity(file_id, int.from_bytes(files.random(4), "little"), 0)
        record = encode_identity(identity)
        end = HEADER_SIZE + len(record)
        vouching, prev_crc = encode_attestation(
            len(record), crc32(record, identity.salt), at=end, prev_crc=0, durable=0, salt=identity.salt
        )
        data = encode_header() + record + vouching
        file.write(data, 0)
    except BaseException:
        files.discard(name)
        raise
    return name, Log(path, file, Index(), identity, HEADER_SIZE, end=len(data), prev_crc=prev_crc)


def _make(files: Files, path: Path) -> None:
    name, log = new_file(files, path, "new", files.random(16))
    try:
        if files.inode(path) is not None:
            log.file.dress_like(files.open(path, write=False))
        log.file.sync()
        files.replace(name, path)
    except BaseException:
        files.discard(name)
        raise
    files.sync_directory(path.parent)


def _open_locked(files: Files, path: Path, options: Options, lock: Lock) -> Opened:
    file = files.open(path, write=True)
    recovered = recover_in_place(file, path, salvage=False)
    saved = _cut_tail(files, path, file, recovered, options)
    log = _log(path, file, recovered, _identity_of(recovered, files))
    if recovered.identity is None or recovered.loose_at is not None:
        _vouch(log, recovered)
    if not recovered.pointer_is_good:
        # Another reader would take whatever comes to stand there for an index.
        file.write(encode_bare_header(), 0)
    # What was read may be in the system's cache only, left there by a writer whose fsync failed.
    log.file.sync()
    files.sync_directory(path.parent)
    log.durable = log.end
    return Opened(log, lock, _found(recovered, saved))


def _identity_of(recovered: Recovered, files: Files) -> Identity:
    fresh = Identity(files.random(16), int.from_bytes(files.random(4), "little"), 0)
    return recovered.identity or fresh


def _log(path: Path, file: File, recovered: Recovered, identity: Identity) -> Log:
    return Log(
        path,
        file,
        Index(recovered.maps[:-1]) if recovered.index is None else recovered.index,
        identity,
        recovered.identity_at if recovered.identity else recovered.end,
        end=recovered.end,
        prev_crc=recovered.prev_crc,
        durable=recovered.durable,
        snapshot=recovered.snapshot,
    )


def _vouch(log: Log, recovered: Recovered) -> None:
    """Append a frame for the records of another writer, with an identity before it if the file has none.

    They are synced before, so that damage to them will never look like the tail of a crash.
    """
    log.file.sync()
    log.durable = log.end
    record = b"" if recovered.identity else encode_identity(log.identity)
    start = log.end if recovered.loose_at is None else recovered.loose_at
    at, salt = log.end + len(record), log.identity.salt
    crc = crc32(record, checksum(log.file, start, log.end, salt))
    frame, prev_crc = encode_attestation(
        at - start, crc, at=at, prev_crc=log.prev_crc, durable=log.durable, salt=salt
    )
    try:
        log.file.write(record + frame, log.end)
    except BaseException:
        log.file.truncate(log.end)
        raise
    log.end = at + len(frame)
    log.prev_crc = prev_crc


def _cut_tail(files: Files, path: Path, file: File, recovered: Recovered, options: Options) -> Path | None:
    """Cut off what is not part of the log, after saving it; where it was saved."""
    if recovered.end == recovered.size:
        return None
    length = min(recovered.size - recovered.end, options.torn_limit)
    tail = file.read(length, recovered.end)
    saved = _save_tail(files, path, tail) if any(tail) else None
    file.truncate(recovered.end)
    return saved


def _save_tail(files: Files, path: Path, tail: bytes) -> Path | None:
    """Write a torn tail into a file beside the store; None if there is no room, which must not keep it from
    opening.
    """
    taken = set(files.names(path.parent))
    names = [f"{path.name}.torn-{number}" for number in range(1, TORN_FILES + 1)]
    target = path.with_name(next((name for name in names if name not in taken), names[-1]))
    temporary, file = files.temporary(path, "new")
    try:
        file.write(tail, 0)
        file.sync()
        files.replace(temporary, target)
    except OSError as error:
        files.discard(temporary)
        if error.errno not in NO_ROOM:
            raise
        return None
    return target
