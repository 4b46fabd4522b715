"""The only module that calls the operating system: files, their names and the lock, behind a small seam.

`OS` is the real thing, `MemoryFiles` the same in memory; tests put a layer over either that fails on
command. Nothing here knows the format or retries an fsync, and nothing is memory-mapped: a shrunken file
must be an error, not a signal.
"""

import errno
import fcntl
import os
import secrets
import socket
import stat
import sys
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Final

from crabdb.errors import Locked

__all__ = ["NO_ROOM", "OS", "AnyPath", "File", "Files", "Forkable", "Lock", "MemoryFiles", "guard_fork"]

AnyPath = str | os.PathLike[str]
"""What a caller may give as a path."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""After these a write can be undone and tried again later."""

NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})

NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS})
"""What `Files.link` fails with where a file can have one name only."""


class Forkable(ABC):
    """What has to know when its process turns out to be a forked child."""

    @abstractmethod
    def forked(self) -> None:
        """Called in the child, before anything else there; must take no lock that another thread may have held."""


_forkables: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def guard_fork(thing: Forkable) -> None:
    """Have `thing.forked()` called in every child that this process forks."""
    _forkables.add(thing)


def _tell_forkables() -> None:
    for thing in list(_forkables):
        thing.forked()


os.register_at_fork(after_in_child=_tell_forkables)


class File(ABC):
    """An open file, addressed by offset. Every method raises `OSError`."""

    @abstractmethod
    def read(self, length: int, offset: int) -> bytes:
        """`length` bytes from `offset`; fewer only where the file ends."""

    @abstractmethod
    def write(self, data: bytes, offset: int) -> None:
        """All of `data` at `offset`. After an error any part of it may have been written."""

    @abstractmethod
    def size(self) -> int:
        """The file's length in bytes."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    @abstractmethod
    def sync(self) -> None:
        """Return when everything written is on the medium."""

    @abstractmethod
    def inode(self) -> tuple[int, int]:
        """Which file this is, whatever its name."""

    @abstractmethod
    def dress_like(self, other: "File") -> None:
        """Take over the mode and, where permitted, the owner of another file."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file. Happens by itself when the last reference goes."""


class Lock(ABC):
    """The right to write to a store, held until `release` or the end of the process."""

    @abstractmethod
    def release(self) -> None:
        """Give the right up; the lock file stays, for a removed one could be held twice."""

    @abstractmethod
    def abandon(self) -> None:
        """Forget the lock in a forked child, without releasing the parent's."""


class Files(ABC):
    """Names of files. Every method raises `OSError`."""

    @abstractmethod
    def real(self, path: Path) -> Path:
        """The absolute path with every symbolic link followed."""

    @abstractmethod
    def open(self, path: Path, *, write: bool) -> File:
        """An existing file."""

    @abstractmethod
    def create(self, path: Path) -> File:
        """A new file that only its owner may use; raises `FileExistsError` if the name is taken."""

    @abstractmethod
    def lock(self, path: Path) -> Lock:
        """The writer's lock of the store at `path`; raises `Locked` at once if it is held."""

    @abstractmethod
    def replace(self, source: Path, target: Path) -> None:
        """Rename, over an existing file if there is one."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; raises `FileExistsError` if that is taken, one of NO_LINKS if files have
        only one.
        """
        raise OSError(errno.ENOTSUP, "No second names here", str(target))

    def publish(self, source: Path, target: Path) -> None:
        """Rename, but never over an existing file: raises `FileExistsError`."""
        try:
            self.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._claim(source, target)
        else:
            self.remove(source)

    def _claim(self, source: Path, target: Path) -> None:
        """As `publish`, where files have one name only: take the name with an empty file, then replace that."""
        self.create(target)
        try:
            self.replace(source, target)
        except BaseException:
            self.remove(target)
            raise

    @abstractmethod
    def remove(self, path: Path) -> None:
        """Remove a name."""

    def discard(self, path: Path) -> None:
        """Remove a temporary name unless it is gone: a rename that reported an error may have happened."""
        with suppress(FileNotFoundError):
            self.remove(path)

    @abstractmethod
    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the medium."""

    @abstractmethod
    def names(self, directory: Path) -> list[str]:
        """The names in a directory."""

    @abstractmethod
    def inode(self, path: Path) -> tuple[int, int] | None:
        """Which file has this name; None if none has."""

    def room(self, directory: Path) -> int:
        """How many bytes can still be written in a directory."""
        return sys.maxsize

    def random(self, length: int) -> bytes:
        """Bytes that nobody can guess."""
        return secrets.token_bytes(length)

    def temporary(self, path: Path, purpose: str) -> tuple[Path, File]:
        """A fresh file beside `path`, with a name that `crabdb` will know for a leftover of its own."""
        name = path.with_name(f"{path.name}.{purpose}-{os.getpid()}-{secrets.token_hex(8)}")
        return name, self.create(name)


class OSFile(File):
    """A file descriptor. It is closed when the last reader has let go of it, never under one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._closer = weakref.finalize(self, os.close, fd)

    def read(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        return data if len(data) == length or not data else self._read_on(data, length, offset)

    def _read_on(self, data: bytes, length: int, offset: int) -> bytes:
        parts = [data]
        got = len(data)
        while got < length and (part := os.pread(self._fd, length - got, offset + got)):
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def write(self, data: bytes, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written != len(data):
            self._write_on(memoryview(data), written, offset)

    def _write_on(self, data: memoryview, done: int, offset: int) -> None:
        while done < len(data):
            written = os.pwrite(self._fd, data[done:], offset + done)
            if not written:
                raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
            done += written

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        _full_sync(self._fd)

    def inode(self) -> tuple[int, int]:
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def dress_like(self, other: File) -> None:
        assert isinstance(other, OSFile)
        wanted, own = os.fstat(other._fd), os.fstat(self._fd)
        if (wanted.st_uid, wanted.st_gid) != (own.st_uid, own.st_gid):
            _chown_if_permitted(self._fd, wanted.st_uid, wanted.st_gid)
        os.fchmod(self._fd, stat.S_IMODE(wanted.st_mode))

    def close(self) -> None:
        self._closer()


def _full_sync(fd: int) -> None:
    """fsync; on macOS, where that leaves the data in the drive's cache, the call that does not."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
        return
    try:
        fcntl.fcntl(fd, full)
    except OSError as error:
        if error.errno not in NO_LOCKS | {errno.EINVAL, errno.ENOTTY}:
            raise
        os.fsync(fd)


def _chown_if_permitted(fd: int, uid: int, gid: int) -> None:
    try:
        os.fchown(fd, uid, gid)
    except PermissionError:
        # Only root may give files away; the new file then belongs to whoever compacted, with the same mode.
        return


class OSLock(Lock):
    """An flock on a file of its own, which renames of the data file do not touch and nobody ever unlinks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._closer = weakref.finalize(self, os.close, fd)

    def release(self) -> None:
        if self._closer.alive:
            # A child that was forked a moment ago may hold a copy still, so closing ours would not do.
            try:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            finally:
                self._closer()

    def abandon(self) -> None:
        # Closing a child's copy leaves the lock with the parent; unlocking it would not.
        self._closer()


class OSFiles(Files):
    """The file system of this machine."""

    def real(self, path: Path) -> Path:
        return Path(os.path.realpath(path))

    def open(self, path: Path, *, write: bool) -> File:
        # Without O_NONBLOCK a named pipe at that path would keep the caller waiting for ever.
        fd = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK)
        file = OSFile(fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, "Not a regular file", str(path))
        return file

    def create(self, path: Path) -> File:
        return OSFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def lock(self, path: Path) -> Lock:
        name = path.with_name(path.name + ".lock")
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lock = OSLock(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
            lock.release()
            raise Locked(path, holder) from None
        except OSError as error:
            lock.release()
            if error.errno in NO_LOCKS:
                raise Locked(
                    path, "", f"cannot be locked, its file system refuses ({error.strerror})"
                ) from error
            raise
        self._sign(fd)
        return lock

    def _sign(self, fd: int) -> None:
        """Leave word of who holds the lock. It is only for the message: the kernel alone decides."""
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _full_sync(fd)
        finally:
            os.close(fd)

    def names(self, directory: Path) -> list[str]:
        return [entry.name for entry in directory.iterdir()]

    def room(self, directory: Path) -> int:
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def inode(self, path: Path) -> tuple[int, int] | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


OS: Final = OSFiles()


class MemoryFile(File):
    """Bytes in memory that behave as a file. A name and any number of handles may share it."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self._number = number

    def read(self, length: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, data: bytes, offset: int) -> None:
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def size(self) -> int:
        return len(self.data)

    def truncate(self, size: int) -> None:
        del self.data[size:]

    def sync(self) -> None:
        """Memory has no medium."""

    def inode(self) -> tuple[int, int]:
        return 0, self._number

    def dress_like(self, other: File) -> None:
        """Memory has no owner."""

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryLock(Lock):
    """A name in the set of locked names."""

    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)

    def abandon(self) -> None:
        self.release()


class MemoryFiles(Files):
    """A file system in memory: one flat table of names, every directory taken to exist."""

    def __init__(self) -> None:
        self.table: dict[Path, MemoryFile] = {}
        self._locked: set[Path] = set()
        self._numbers = 0

    def real(self, path: Path) -> Path:
        return Path("/") / path

    def open(self, path: Path, *, write: bool) -> File:
        if path not in self.table:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return self.table[path]

    def create(self, path: Path) -> File:
        if path in self.table:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        self._numbers += 1
        self.table[path] = MemoryFile(self._numbers)
        return self.table[path]

    def lock(self, path: Path) -> Lock:
        if path in self._locked:
            raise Locked(path, "this process")
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    def replace(self, source: Path, target: Path) -> None:
        self.table[target] = self.table.pop(source)

    def link(self, source: Path, target: Path) -> None:
        if target in self.table:
            raise FileExistsError(errno.EEXIST, "File exists", str(target))
        self.table[target] = self.table[source]

    def remove(self, path: Path) -> None:
        if self.table.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))

    def sync_directory(self, path: Path) -> None:
        """Memory has no medium."""

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in self.table if path.parent == directory]

    def inode(self, path: Path) -> tuple[int, int] | None:
        file = self.table.get(path)
        return file.inode() if file else None
