"""File systems that fail on command, and one that forgets what was not synced."""

import errno
from dataclasses import dataclass, field
from pathlib import Path

from crabdb.files import File, Files, Lock, MemoryFile, MemoryFiles


@dataclass
class Fault:
    """The `number`-th call that changes anything fails, once or from then on.

    `only` counts no other kind of call. A failing write has first written the share `written` of its bytes.
    """

    number: int
    errno: int = errno.EIO
    for_ever: bool = False
    written: float = 0.0
    only: str = ""
    error: BaseException | None = None
    calls: list[str] = field(default_factory=list)

    def check(self, name: str) -> None:
        """Count a call, and fail if it is its turn."""
        if self.only and name != self.only:
            return
        self.calls.append(name)
        place = len(self.calls) - 1
        if place == self.number or (self.for_ever and place > self.number):
            raise self.error or OSError(self.errno, "injected")

    def next(self) -> None:
        """Let the next call fail."""
        self.number = len(self.calls)


class FaultyFile(File):
    """A file some of whose calls fail."""

    def __init__(self, inner: File, fault: Fault) -> None:
        self.inner = inner
        self.fault = fault

    def read(self, length: int, offset: int) -> bytes:
        return self.inner.read(length, offset)

    def write(self, data: bytes, offset: int) -> None:
        try:
            self.fault.check("write")
        except BaseException:
            self.inner.write(data[: int(len(data) * self.fault.written)], offset)
            raise
        self.inner.write(data, offset)

    def size(self) -> int:
        return self.inner.size()

    def truncate(self, size: int) -> None:
        self.fault.check("truncate")
        self.inner.truncate(size)

    def sync(self) -> None:
        self.fault.check("sync")
        self.inner.sync()

    def inode(self) -> tuple[int, int]:
        return self.inner.inode()

    def dress_like(self, other: File) -> None:
        self.inner.dress_like(other)

    def close(self) -> None:
        self.inner.close()


class FaultyFiles(Files):
    """A file system some of whose calls fail."""

    def __init__(self, inner: Files, fault: Fault) -> None:
        self.inner = inner
        self.fault = fault

    def real(self, path: Path) -> Path:
        return self.inner.real(path)

    def open(self, path: Path, *, write: bool) -> File:
        return FaultyFile(self.inner.open(path, write=write), self.fault)

    def create(self, path: Path) -> File:
        self.fault.check("create")
        return FaultyFile(self.inner.create(path), self.fault)

    def lock(self, path: Path) -> Lock:
        return self.inner.lock(path)

    def replace(self, source: Path, target: Path) -> None:
        self.fault.check("replace")
        self.inner.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        self.fault.check("link")
        self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        self.inner.remove(path)

    def sync_directory(self, path: Path) -> None:
        self.fault.check("sync_directory")
        self.inner.sync_directory(path)

    def names(self, directory: Path) -> list[str]:
        return self.inner.names(directory)

    def inode(self, path: Path) -> tuple[int, int] | None:
        return self.inner.inode(path)


class ForgetfulFile(MemoryFile):
    """A file that remembers what of it is on the medium."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        super().__init__(number, data)
        self.synced = bytes(data)

    def sync(self) -> None:
        self.synced = bytes(self.data)


class ForgetfulFiles(MemoryFiles):
    """A file system that can lose power."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_names: dict[Path, MemoryFile] = {}

    def create(self, path: Path) -> File:
        super().create(path)
        self.table[path] = ForgetfulFile(self._numbers)
        return self.table[path]

    def sync_directory(self, path: Path) -> None:
        self.synced_names = dict(self.table)

    def after_power_loss(self, *, kept: float) -> MemoryFiles:
        """What is there afterwards, if of what grew since the last sync this share has reached the medium."""
        files = MemoryFiles()
        for path, file in self.synced_names.items():
            assert isinstance(file, ForgetfulFile)
            grown = bytes(file.data[len(file.synced) :])
            files.table[path] = MemoryFile(1, file.synced + grown[: int(len(grown) * kept)])
        return files
