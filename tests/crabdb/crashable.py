"""A file system in memory that can lose power after any call, in every way that a real one can.

What was synced is certain. Of everything since, each block may hold what any moment left in it (kept, dropped, or
zeros where the file grew), the file may have any length it had, or a block boundary between two of them, and
each name that was made, replaced or removed may be back to what it was.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from random import Random

from crabdb.files import File, MemoryFile, MemoryFiles

Table = dict[Path, "CrashableFile"]
Naming = Callable[[Table], None]


class CrashableFile(MemoryFile):
    """A file that remembers what may be on the medium: `versions[0]` certainly was, the others came since."""

    def __init__(self, number: int, data: bytes, after: Callable[[str], None]) -> None:
        super().__init__(number, data)
        self.versions = [bytes(data)]
        self._after = after

    def write(self, data: bytes, offset: int) -> None:
        super().write(data, offset)
        self._changed("write")

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._changed("truncate")

    def sync(self) -> None:
        self.versions = [bytes(self.data)]
        self._after("sync")

    def read(self, length: int, offset: int) -> bytes:
        # Nobody may allocate by a number that was not checked against the size of the file.
        assert 0 <= offset <= len(self.data) + (1 << 20), offset
        assert 0 <= length <= len(self.data) + (1 << 20), length
        return super().read(length, offset)

    def _changed(self, call: str) -> None:
        self.versions.append(bytes(self.data))
        self._after(call)

    def sizes(self, page: int) -> list[int]:
        """The lengths that the file may have after a loss of power."""
        lengths = {len(version) for version in self.versions}
        between = range(-(-min(lengths) // page) * page, max(lengths), page)
        return sorted(lengths.union(between))

    def blocks(self, page: int, size: int) -> list[list[bytes]]:
        """What may stand in each block of a file of this length."""
        return [
            sorted({version[at : at + page].ljust(page, b"\0") for version in self.versions})
            for at in range(0, size, page)
        ]

    def images(self, page: int) -> Iterator[bytes]:
        """Every content that the medium may hold."""
        for size in self.sizes(page):
            for blocks in product(*self.blocks(page, size)):
                yield b"".join(blocks)[:size]

    def some_image(self, page: int, chance: Random) -> bytes:
        """One of them."""
        size = chance.choice(self.sizes(page))
        return b"".join(chance.choice(block) for block in self.blocks(page, size))[:size]


class CrashableFiles(MemoryFiles):
    """The file system. `after` is called with the name of each call that has just changed something."""

    def __init__(self, contents: Mapping[Path, bytes] | None = None) -> None:
        super().__init__()
        self.after: Callable[[str], None] = lambda call: None
        self.named: Table = {path: self._file(data) for path, data in (contents or {}).items()}
        self.table.update(self.named)
        self._namings: list[Naming] = []

    def _file(self, data: bytes) -> CrashableFile:
        self._numbers += 1
        return CrashableFile(self._numbers, data, self._tell)

    def _tell(self, call: str) -> None:
        self.after(call)

    def create(self, path: Path) -> File:
        super().create(path)
        file = self.table[path] = self._file(b"")
        return self._renamed("create", file, lambda table: table.update({path: file}))

    def replace(self, source: Path, target: Path) -> None:
        file = self.live()[source]
        super().replace(source, target)

        def again(table: Table) -> None:
            table.pop(source, None)
            table[target] = file

        self._renamed("replace", file, again)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        file = self.live()[source]
        self._renamed("link", file, lambda table: table.update({target: file}))

    def remove(self, path: Path) -> None:
        file = self.live().get(path)
        super().remove(path)
        assert file is not None
        self._renamed("remove", file, lambda table: table.pop(path, None))

    def _renamed(self, call: str, file: CrashableFile, naming: Callable[[Table], object]) -> CrashableFile:
        self._namings.append(lambda table: (naming(table), None)[1])
        self.after(call)
        return file

    def sync_directory(self, path: Path) -> None:
        self.named = self.live()
        self._namings.clear()
        self.after("sync_directory")

    def live(self) -> Table:
        """The names as the running system shows them."""
        return {path: file for path, file in self.table.items() if isinstance(file, CrashableFile)}

    def tables(self) -> Iterator[Table]:
        """Every set of names that the medium may hold."""
        for kept in product((True, False), repeat=len(self._namings)):
            yield self._table(kept)

    def _table(self, kept: tuple[bool, ...]) -> Table:
        table = dict(self.named)
        for keep, naming in zip(kept, self._namings, strict=True):
            if keep:
                naming(table)
        return table

    def killed(self) -> "CrashableFiles":
        """What the end of the process leaves: everything, as the system still has it."""
        return CrashableFiles({path: bytes(file.data) for path, file in self.live().items()})

    def states(self, path: Path, page: int) -> Iterator[dict[Path, bytes]]:
        """Everything that a loss of power may leave; of files other than `path` the oldest and the newest."""
        for table in self.tables():
            names = sorted(table)
            contents = [
                table[name].images(page) if name == path else {table[name].versions[i] for i in (0, -1)}
                for name in names
            ]
            for images in product(*contents):
                yield dict(zip(names, images, strict=True))

    def some_state(self, page: int, chance: Random) -> dict[Path, bytes]:
        """One of the states that a loss of power may leave."""
        table = self._table(tuple(chance.random() < 0.5 for _ in self._namings))
        return {path: file.some_image(page, chance) for path, file in table.items()}
