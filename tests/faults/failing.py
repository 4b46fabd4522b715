"""A file system of which every call can fail, those that only look too: before it had its effect, or after."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.crabdb.faults import Fault, FaultyFile, FaultyFiles

from crabdb.files import File, Files, Lock

T = TypeVar("T")

NEVER = 10**9


@dataclass
class AnyFault(Fault):
    """As `Fault`; if `late`, the failing call has done what it was asked to."""

    late: bool = False

    def run(self, name: str, call: Callable[[], T]) -> T:
        """Make a call, unless it is its turn to fail."""
        try:
            self.check(name)
        except OSError:
            if self.late:
                call()
            raise
        return call()


class AnyCallFile(FaultyFile):
    """A file any of whose calls may fail."""

    def __init__(self, inner: File, fault: AnyFault) -> None:
        super().__init__(inner, fault)
        self.any = fault

    def read(self, length: int, offset: int) -> bytes:
        return self.any.run("read", lambda: self.inner.read(length, offset))

    def size(self) -> int:
        return self.any.run("size", self.inner.size)

    def truncate(self, size: int) -> None:
        self.any.run("truncate", lambda: self.inner.truncate(size))

    def sync(self) -> None:
        self.any.run("sync", self.inner.sync)

    def inode(self) -> tuple[int, int]:
        return self.any.run("inode", self.inner.inode)

    def dress_like(self, other: File) -> None:
        self.any.run("dress_like", lambda: self.inner.dress_like(other))


class AnyCallFiles(FaultyFiles):
    """A file system any of whose calls may fail."""

    def __init__(self, inner: Files, fault: AnyFault) -> None:
        super().__init__(inner, fault)
        self.any = fault

    def real(self, path: Path) -> Path:
        return self.any.run("real", lambda: self.inner.real(path))

    def open(self, path: Path, *, write: bool) -> File:
        return AnyCallFile(self.any.run("open", lambda: self.inner.open(path, write=write)), self.any)

    def create(self, path: Path) -> File:
        return AnyCallFile(self.any.run("create", lambda: self.inner.create(path)), self.any)

    def lock(self, path: Path) -> Lock:
        self.any.check("lock")
        return self.inner.lock(path)

    def replace(self, source: Path, target: Path) -> None:
        self.any.run("replace", lambda: self.inner.replace(source, target))

    def remove(self, path: Path) -> None:
        self.any.run("remove", lambda: self.inner.remove(path))

    def sync_directory(self, path: Path) -> None:
        self.any.run("sync_directory", lambda: self.inner.sync_directory(path))

    def names(self, directory: Path) -> list[str]:
        return self.any.run("names", lambda: self.inner.names(directory))

    def inode(self, path: Path) -> tuple[int, int] | None:
        return self.any.run("inode", lambda: self.inner.inode(path))
