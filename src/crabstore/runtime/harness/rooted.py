"""Files below one folder, reached in a way that no path, link or race leaves: the file layer of the `os` harness.

Nothing is checked first and opened afterwards. A path is walked from the root one name at a time, each folder
opened inside the one before it (openat) without following a link, so that what was opened is what was reached;
what a name stood for a moment earlier does not matter. Links are therefore never followed, not even those that
stay inside. A file is written beside its place and renamed onto it: a hard link to somewhere else is not written
through, and nobody sees half a file.

It blocks: call it in a thread. It cannot tell a mount point from a folder, and reads a file that has a second,
hard link outside, since that is no name of a path.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias

from .toolbox import Refused

__all__ = ["Entry", "Root", "Version"]

Version: TypeAlias = tuple[int, ...]
"""What a file was when it was read: another file, or other content, is another version."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 128
"""Names in a path: each holds a descriptor only while the next one is opened, but a walk must end."""
_PERMISSIONS = 0o777


@dataclass(frozen=True)
class Entry:
    """What a folder holds under a name."""

    name: str
    """Bytes that are no UTF-8 stand in it as lone surrogates."""
    kind: str
    """file, folder, link or other."""
    size: int
    """Bytes of a file."""


class Root:
    """A folder that the host chose; it may be reached by links itself. Holds nothing open between two calls.

    Every method raises Refused, naming the path as it was given, for what is not there, not reachable without a
    link, or of the wrong kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def reading(self, path: str) -> Iterator[BufferedReader]:
        """The regular file at `path`, open for reading."""
        with _naming(path), self._folder_of(path) as (folder, name):
            # Looked at first only so that no device is opened to find out; the second look is the one that counts.
            _require_file(path, os.stat(name, dir_fd=folder, follow_symlinks=False))
            with os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb") as file:
                _require_file(path, os.fstat(file.fileno()))
                yield file

    def whole(self, path: str, most: int) -> tuple[bytes, Version]:
        """All of a file, and which version that was. Raises Refused if it is larger than `most` bytes."""
        with self.reading(path) as file:
            version, data = _version(os.fstat(file.fileno())), file.read(most + 1)
        if len(data) > most:
            raise Refused(f"{path!r} is larger than {most} bytes")
        return data, version

    def write(self, path: str, data: bytes, *, over: Version | None = None) -> bool:
        """Let the file at `path` hold `data`, missing folders made; whether it is new. All or nothing.

        With `over`, only while the file is still that version.
        """
        with _naming(path), self._folder_of(path, create=True) as (folder, name):
            old = _status(name, folder)
            if old is not None:
                _require_file(path, old)
            if over is not None and (old is None or _version(old) != over):
                raise Refused(f"{path!r} changed since it was read: read it again")
            _replace(folder, name, data, old)
            return old is None

    def entries(self, path: str) -> list[Entry]:
        """What the folder at `path` holds, in the order of the names; a link is not looked behind."""
        with _naming(path), self._folder(_names(path)) as folder, os.scandir(folder) as found:
            return sorted((_entry(each) for each in found), key=lambda entry: entry.name)

    @contextmanager
    def _folder_of(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder in which the last name of `path` stands, and that name."""
        names = _names(path)
        if not names:
            raise Refused(f"{path!r} is the root itself: name a file in it")
        with self._folder(names[:-1], create=create) as folder:
            yield folder, names[-1]

    @contextmanager
    def _folder(self, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """The folder at the end of `names`, open."""
        folder = os.open(self.path, _FOLDER)
        try:
            for name in names:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def _names(path: str) -> list[str]:
    """The names of a relative path. Raises Refused for a path that points anywhere else."""
    if not _possible(path):
        raise Refused(f"{path!r} cannot be the name of a file")
    if path.startswith("/"):
        raise Refused(f"{path!r} is absolute: paths are relative to the root, the root itself is '.'")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise Refused(f"{path!r} holds '..': name the path from the root")
    if len(names) > _DEEPEST:
        raise Refused(f"the path is deeper than {_DEEPEST} folders")
    return names


def _possible(path: str) -> bool:
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Tells what the system refused with the path as the model gave it; never with where the root is."""
    try:
        yield
    except OSError as error:
        hint = "; links are not followed" if error.errno in (errno.ENOTDIR, errno.ELOOP) else ""
        raise Refused(f"{path!r}: {error.strerror}{hint}") from error


def _require_file(path: str, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise Refused(f"{path!r} is a folder: list it")
    kind = (
        "a link, and links are not followed" if stat.S_ISLNK(status.st_mode) else "a pipe, device or socket"
    )
    raise Refused(f"{path!r} is {kind}")


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _version(status: os.stat_result) -> Version:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _replace(folder: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    """Rename a new file with `data` onto `name`; whatever stands there by then is replaced, never written to."""
    new = f".{secrets.token_hex(8)}.new"
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & _PERMISSIONS
    try:
        with os.fdopen(os.open(new, _NEW, mode, dir_fd=folder), "wb") as file:
            file.write(data)
            if old is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        raise


def _entry(found: os.DirEntry[str]) -> Entry:
    if found.is_symlink():
        return Entry(found.name, "link", 0)
    if found.is_dir(follow_symlinks=False):
        return Entry(found.name, "folder", 0)
    if not found.is_file(follow_symlinks=False):
        return Entry(found.name, "other", 0)
    with suppress(FileNotFoundError):  # deleted since it was listed
        return Entry(found.name, "file", found.stat(follow_symlinks=False).st_size)
    return Entry(found.name, "file", 0)
