"""Makes a sound store of what is intact in a damaged one, and says what is not in it, or may be out of date.

Always a new file; the damaged one is only read. It can be put in the damaged one's place, which then keeps
another name.

What is kept: of every key the newest record that checks, also behind a damaged stretch, after which the log
goes on at the next frame of this file. What is never brought back is a value that is known to be replaced: where
the snapshot or the log says that a newer record is damaged, the key is dropped. What is suspect is every key
whose record is older than a damaged stretch, in which it may have been overwritten or deleted: such a key is
kept and listed.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from crabdb.arguments import check_path
from crabdb.backup import Progress, run_steps
from crabdb.compaction import finish_copy
from crabdb.errors import Corrupted, InvalidArgument, IOFailed, StoreFailed
from crabdb.files import OS, AnyPath, Files
from crabdb.format import LOCATION, RECORD_OVERHEAD
from crabdb.index import Change
from crabdb.log import Log
from crabdb.opening import new_file, typed_errors
from crabdb.reading import read_value
from crabdb.recovery import Recovered, recover
from crabdb.salvage import PatientFile, lost_header
from crabdb.steps import PIECE

__all__ = ["Key", "Lost", "Repaired", "repair", "repair_steps"]


@dataclass(frozen=True, slots=True)
class Lost:
    """A stretch of the damaged file that is in no store made of it. `torn` if it is only the tail of a crash,
    which any opening would cut off.
    """

    offset: int
    length: int
    problem: str
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and where in the damaged file its record is, and how long."""

    col: int
    key: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found, and what it made.

    `target` is the new file, None if none was asked for; `original` the name under which the damaged one was
    kept, if the new one was put in its place. `keys` and `size` count what is kept, in records and bytes;
    `suspect` are those among them that may be out of date, `dropped` the keys that were lost. `refused` are
    the offsets of blocks that the medium could not read.
    """

    source: Path
    target: Path | None
    original: Path | None
    keys: int
    size: int
    lost: tuple[Lost, ...]
    dropped: tuple[Key, ...]
    suspect: tuple[Key, ...]
    refused: tuple[int, ...]

    @property
    def damaged(self) -> bool:
        """Whether anything is missing but the torn tail of a crash."""
        return bool(self.dropped or any(not lost.torn for lost in self.lost))


def repair(path: AnyPath, to: AnyPath | None = None, *, swap: bool = False, files: Files = OS) -> Repaired:
    """What can be saved of the store at `path`: in the new file `to`; with `swap`, in its place, and the damaged
    file beside it as `NAME.damaged-1` and so on; with neither, nothing is written and the outcome only told.

    Raises `NotFound`, `NotCrabDB` if no trace of a store is in the file, `Unsupported`, `Exists`, `Locked` (only
    with `swap`), `AccessDenied`, `DiskFull`, `IOFailed`, `InvalidArgument`; then nothing has changed.
    """
    return run_steps(repair_steps(path, to, swap=swap, files=files))


def repair_steps(
    path: AnyPath, to: AnyPath | None = None, *, swap: bool = False, files: Files = OS
) -> Generator[Progress, None, Repaired]:
    """As `repair`, in steps, for whoever shows progress; it returns what `repair` returns."""
    if swap and to is not None:
        raise InvalidArgument("to", "must not be given if the repaired store is swapped in")
    given, wanted = check_path(path), None if to is None else check_path(to)
    with typed_errors(given):
        source = files.real(given)
    if swap:
        return (yield from _in_place(files, source))
    salvage = _Salvage.of(files, source)
    if wanted is None:
        yield from salvage.copy(None)
        return salvage.outcome(None, None)
    with typed_errors(wanted):
        target = files.real(wanted)
        if files.inode(target) is not None:
            raise FileExistsError
        name = yield from salvage.into_file_beside(files, target)
        try:
            files.publish(name, target)
        except BaseException:
            files.remove(name)
            raise
        files.sync_directory(target.parent)
        return salvage.outcome(target, None)


def _in_place(files: Files, source: Path) -> Generator[Progress, None, Repaired]:
    """Repair under the writer's lock, and let the new file and the damaged one change places."""
    with typed_errors(source):
        lock = files.lock(source)
        try:
            salvage = _Salvage.of(files, source)
            name = yield from salvage.into_file_beside(files, source)
            try:
                original = _keep(files, source)
                files.replace(name, source)
            except BaseException:
                files.remove(name)
                raise
            files.sync_directory(source.parent)
            return salvage.outcome(source, original)
        finally:
            lock.release()


def _keep(files: Files, source: Path) -> Path:
    """Give the damaged file a second name, so that at no moment it has none; that name."""
    taken = set(files.names(source.parent))
    names = (f"{source.name}.damaged-{number}" for number in count(1))
    original = source.with_name(next(name for name in names if name not in taken))
    files.link(source, original)
    files.sync_directory(source.parent)
    return original


@dataclass(slots=True)
class _Salvage:
    """The readable part of a damaged store on its way into a new one."""

    path: Path
    file: PatientFile
    recovered: Recovered
    lost: list[Lost]
    dropped: list[Key] = field(default_factory=list)
    suspect: list[Key] = field(default_factory=list)
    keys: int = 0
    size: int = 0

    @classmethod
    def of(cls, files: Files, path: Path) -> "_Salvage":
        """Read the log, or the snapshot and what follows it."""
        with typed_errors(path):
            file = PatientFile(files.open(path, write=False))
            file.beginning = lost_header(file)
            recovered = recover(file, salvage=True)
        return cls(path, file, recovered, _lost(file, recovered))

    def into_file_beside(self, files: Files, target: Path) -> Generator[Progress, None, Path]:
        """Write what can be read into a fresh file beside `target`; its temporary name. It is on the medium."""
        identity = self.recovered.identity
        file_id = identity.file_id if identity else files.random(16)
        name, new = new_file(files, target, "new", file_id)
        try:
            new.file.dress_like(self.file.inner)
            yield from self.copy(new)
            finish_copy(new)
            new.sync(new.end)
        except StoreFailed as failed:
            files.remove(name)
            raise IOFailed(target, failed.cause) from failed
        except BaseException:
            files.remove(name)
            raise
        return name

    def copy(self, new: Log | None) -> Iterator[Progress]:
        """Read every value, note the keys that are dropped or suspect, and append the rest to `new`."""
        newest_loss = max((lost.offset for lost in self.lost if not lost.torn), default=0)
        batch: list[Change] = []
        pending = 0
        for key, location in self._entries():
            try:
                value = read_value(self.file, self.path, key.key, location)
            except Corrupted:
                self.dropped.append(key)
                continue
            self._keep(key, newest_loss)
            if pending + key.length > PIECE and batch:
                yield self._write(new, batch)
                pending = 0
            batch.append((key.col, key.key, value))
            pending += key.length
        if batch:
            self._write(new, batch)
        yield Progress(self.recovered.end, self.recovered.end)

    def _entries(self) -> Iterator[tuple[Key, bytes]]:
        for col, keys in enumerate(self.recovered.maps[:-1]):
            for key in sorted(keys):
                offset, val_len, _ = LOCATION.unpack(keys[key])
                yield Key(col, key, offset, RECORD_OVERHEAD + len(key) + val_len), keys[key]

    def _keep(self, key: Key, newest_loss: int) -> None:
        self.keys += 1
        self.size += key.length
        if key.offset < newest_loss:
            self.suspect.append(key)

    def _write(self, new: Log | None, batch: list[Change]) -> Progress:
        if new is not None:
            new.append(batch)
        batch.clear()
        return Progress(self.size, self.recovered.end)

    def outcome(self, target: Path | None, original: Path | None) -> Repaired:
        """What is to be told."""
        return Repaired(
            source=self.path,
            target=target,
            original=original,
            keys=self.keys,
            size=self.size,
            lost=tuple(self.lost),
            dropped=tuple(self.dropped),
            suspect=tuple(self.suspect),
            refused=tuple(sorted(self.file.refused)),
        )


def _lost(file: PatientFile, recovered: Recovered) -> list[Lost]:
    """The stretches that the log was read without, in the order in which they stand."""
    lost = []
    if file.beginning:
        lost.append(Lost(0, len(file.beginning), "the header was damaged, and is derived from the rest"))
    for damage in recovered.damage:
        end = damage.offset if damage.end is None else damage.end
        lost.append(Lost(damage.offset, end - damage.offset, damage.problem))
    told = any(stretch.offset == recovered.end and stretch.length for stretch in lost)
    if recovered.end < recovered.size and not told:
        problem = recovered.torn.problem if recovered.torn else "the log ends before"
        lost.append(Lost(recovered.end, recovered.size - recovered.end, problem, torn=True))
    return lost
