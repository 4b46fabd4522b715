"""A consistent copy of a store as of one moment, while others go on reading and writing it.

What has been appended to a log is never changed, so a moment is a length; only the 32 bytes of the header, and
a snapshot that is still being filled in, are taken apart. The copy is read back and checked before it gets its
name; it never takes the name of a file that is there. The store is only read.
"""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from crabdb.errors import Corrupted, ReadFailed
from crabdb.files import File, Files
from crabdb.format import HEADER_SIZE, decode_header, encode_bare_header, encode_header
from crabdb.log import Log
from crabdb.opening import typed_errors
from crabdb.recovery import Recovered, replay_steps, trusted_foot
from crabdb.replay import Damage

__all__ = ["Moment", "Progress", "copy_moment", "moment_of", "run_steps"]

T = TypeVar("T")

PIECE: Final = 1 << 19
"""How much is copied in one step, bytes: less than a millisecond's work."""


class Progress(NamedTuple):
    """How far long work has come, in bytes; a copy is written and read."""

    done: int
    total: int


def run_steps(steps: Generator[Progress, None, T], tell: Callable[[Progress], object] | None = None) -> T:
    """Take all steps and return what they return; `tell` is told after each how far it has come."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if tell is not None:
            tell(step)


class Moment(NamedTuple):
    """What a store was at one moment: the first `end` bytes of its log, under this header, of which these pieces
    may not be in the file yet.
    """

    log: Log
    header: bytes
    end: int
    unwritten: list[tuple[int, bytes]]


def moment_of(log: Log) -> Moment:
    """This moment. Nobody may append to the log meanwhile. Raises `ReadFailed`."""
    try:
        end = log.whole_end
        return Moment(log, _header(log, end), end, [piece for piece in log.unwritten if piece[0] < end])
    except OSError as error:
        raise ReadFailed(log.path, 0, error) from error


def _header(log: Log, end: int) -> bytes:
    """The file's header, unless it is being overwritten or points at what is newer than this log: then one that
    points at nothing.
    """
    data = log.file.read(HEADER_SIZE, 0)
    header = decode_header(data)
    foreign = not header.sum and header.index_at + header.index_len <= end
    if foreign or trusted_foot(log.file, header, end):
        return data
    return encode_header() if log.identity_at == HEADER_SIZE else encode_bare_header()


def copy_moment(files: Files, moment: Moment, to: Path) -> Generator[Progress, None, int]:
    """Make the file `to`, step by step; it is there, whole and on the medium, when the last step was taken. It
    returns the size.

    Raises `Exists`, `NotFound`, `Corrupted` if the store is damaged, `ReadFailed`, `DiskFull`, `IOFailed`;
    then nothing is left of it.
    """
    with typed_errors(to):
        if files.inode(to) is not None:
            raise FileExistsError
        name, file = files.temporary(to, "new")
        try:
            file.dress_like(moment.log.file)
            yield from _copy(moment, file)
            yield from _check(moment, file)
            file.sync()
            files.publish(name, to)
        except BaseException:
            files.discard(name)
            raise
        files.sync_directory(to.parent)
    return moment.end


def _copy(moment: Moment, file: File) -> Iterator[Progress]:
    file.write(moment.header, 0)
    for at in range(HEADER_SIZE, moment.end, PIECE):
        length = min(PIECE, moment.end - at)
        file.write(_read(moment.log, length, at), at)
        yield Progress(at + length, 2 * moment.end)
    for at, piece in moment.unwritten:
        file.write(piece, at)
        yield Progress(moment.end, 2 * moment.end)


def _read(log: Log, length: int, at: int) -> bytes:
    try:
        data = log.file.read(length, at)
    except OSError as error:
        raise ReadFailed(log.path, at, error) from error
    if len(data) != length:
        raise Corrupted(log.path, at + len(data), "the file became shorter while it was copied")
    return data


def _check(moment: Moment, copy: File) -> Iterator[Progress]:
    """Replay the copy: a damaged one must not be taken for a backup."""
    steps = replay_steps(copy, moment.end)
    while True:
        try:
            at = next(steps)
        except StopIteration as end:
            recovered: Recovered = end.value
            break
        yield Progress(moment.end + at, 2 * moment.end)
    wrong: list[Damage] = [*recovered.damage, *([recovered.torn] if recovered.torn else [])]
    if wrong:
        raise Corrupted(moment.log.path, wrong[0].offset, wrong[0].problem)
    yield Progress(2 * moment.end, 2 * moment.end)
