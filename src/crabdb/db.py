"""`CrabDB`, the store: five operations, batches, durability points, compaction; for any thread.

Knows nothing of the bytes (`format`), of the system (`files`) or of how a file is judged (`recovery`). One
append lock serialises commits and is never held during an fsync; a reader takes one reference to the current
`Log` (a file and the index over it) and needs no lock for `get`.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import Final, NoReturn

from crabdb.arguments import check_changes, check_key, check_page, check_path, check_put
from crabdb.backup import Progress, copy_moment, moment_of, run_steps
from crabdb.batch import Batch
from crabdb.compaction import (
    catch_up,
    check_room,
    copy_live,
    copy_rest,
    copy_snapshot,
    draw_level,
    settle,
)
from crabdb.erasure import remove_saved
from crabdb.errors import Closed, IOFailed, ReadOnly, StoreFailed, forget_frames
from crabdb.files import OS, AnyPath, Files, Forkable, guard_fork
from crabdb.following import follow, torn_tail
from crabdb.index import Change
from crabdb.log import Journal, Log
from crabdb.opening import Opened, new_file, open_reader, open_writer, typed_errors
from crabdb.options import Options
from crabdb.reading import read_value, read_values
from crabdb.recovery import BIRTH_SIZE
from crabdb.report import Stats, Verification, verify_log
from crabdb.snapshot import snapshot_steps
from crabdb.steps import Step, drive
from crabdb.upkeep import Steps, Upkeep

__all__ = ["CrabDB"]

DEFAULTS: Final = Options()


class CrabDB(Forkable):
    """An ordered key-value store in one append-only file. Make one with `CrabDB.open`; a context manager.

    Keys are non-empty bytes in columns 0 to 254, values bytes, both under 4 GiB. A call that returned
    survives the end of the process; after `sync` or `checkpoint` returned, everything before it survives
    loss of power.
    """

    def __init__(self, files: Files, path: Path, opened: Opened, options: Options) -> None:
        self._files = files
        self._path = path
        self._options = options
        self._found = opened.found
        self._lock = opened.lock
        self._log: Log | None = opened.log
        self._writing = opened.log if opened.lock else None
        self._gone = "this handle is closed"
        self._fresh_locks()
        self._upkeep = Upkeep(opened.log, options)
        guard_fork(self)

    def _fresh_locks(self) -> None:
        # Taken in this order: ending, syncing, appending. None is held from one step of long work to the next.
        self._ending = RLock()
        self._syncing = Lock()
        self._appending = Lock()

    @classmethod
    def open(
        cls,
        path: AnyPath,
        *,
        options: Options = DEFAULTS,
        create: bool = True,
        read_only: bool = False,
        files: Files = OS,
    ) -> "CrabDB":
        """Open the store at `path`; make it if it is missing or an empty file and `create` is true.

        `read_only` takes no lock, never writes, works beside a live writer, shows the store as it is now or at
        the last `refresh`, and opens damaged ones with what is intact. `files` is the system to work on, for
        tests and stores in memory.

        Raises `InvalidArgument`, `NotFound`, `NotCrabDB`, `Unsupported`, `Locked`, `Corrupted`,
        `AccessDenied`, `DiskFull`, `IOFailed`.
        """
        given = check_path(path)
        with typed_errors(given):
            real = files.real(given)
        opened = open_reader(files, real) if read_only else open_writer(files, real, options, create=create)
        return cls(files, real, opened, options)

    # Reading

    def get(self, col: int, key: bytes) -> bytes | None:
        """The value of a key, checked; None if there is none. Raises `InvalidArgument`, `Corrupted`,
        `ReadFailed`.
        """
        check_key(col, key)
        log = self._log or self._closed()
        index = log.index
        location = index.maps[col].get(key)
        if location is None and index.base is not None:
            location = index.find_below(col, key)
        return None if location is None else read_value(log.file, log.path, key, location)

    def get_many(self, col: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys in their order, read together where they lie together. Raises as `get`."""
        for key in keys:
            check_key(col, key)
        log = self._log or self._closed()
        find = log.index.find
        locations = [find(col, key) for key in keys]
        found = [(key, where) for key, where in zip(keys, locations, strict=True) if where is not None]
        values = iter(
            read_values(log.file, log.path, [key for key, _ in found], [where for _, where in found])
        )
        return [None if where is None else next(values) for where in locations]

    def scan_keys(
        self,
        col: int,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """The keys that start with `prefix`, ascending, or descending if `reverse`; reads no value.

        `after` starts beyond that key, exclusively, in the direction of the scan; `limit` is the most to return.
        Raises `InvalidArgument`.
        """
        check_page(col, prefix, after, limit)
        return (self._log or self._closed()).index.keys(col, prefix, after, limit, reverse)

    def scan(
        self,
        col: int,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """As `scan_keys`, with values, all as of one moment. Raises `InvalidArgument`, `Corrupted`,
        `ReadFailed`.
        """
        check_page(col, prefix, after, limit)
        log = self._log or self._closed()
        keys, locations = log.index.items(col, prefix, after, limit, reverse)
        return list(zip(keys, read_values(log.file, log.path, keys, locations), strict=True))

    def __len__(self) -> int:
        return len((self._log or self._closed()).index)

    # Writing

    def put(self, col: int, key: bytes, value: bytes, *, wait: bool = True) -> None:
        """Store a value under a key. With `Options.sync="always"` it is on the medium afterwards, unless `wait` is
        false: then the next `sync` sees to that.

        Raises `InvalidArgument`, `ReadOnly`, `DiskFull`, `StoreFailed`.
        """
        check_put(col, key, value)
        with self._appending:
            log = self._writing or self._refuse()
            log.append_put(col, key, value)
            end = log.end
        if end - log.index.live > self._upkeep.alarm:
            self._after_commit(log, end, wait)

    def delete(self, col: int, key: bytes, *, wait: bool = True) -> bool:
        """Remove a key; whether it was there. `wait` and errors as with `put`."""
        check_key(col, key)
        with self._appending:
            log = self._writing or self._refuse()
            log.check()
            if log.index.find(col, key) is None:
                return False
            log.append([(col, key, None)])
            end = log.end
        if end - log.index.live > self._upkeep.alarm:
            self._after_commit(log, end, wait)
        return True

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Stage puts and deletes and commit them as one at the end of the block. Raises as `put`."""
        self._writer().check()
        batch = Batch()
        yield batch
        self._commit(batch.changes, True)

    def commit(self, changes: Sequence[Change], *, wait: bool = True) -> None:
        """Commit changes as one, as a `batch` does: each a column, a key, and a value or None to delete the key.

        `wait` and errors as with `put`.
        """
        check_changes(changes)
        self._commit(changes, wait)

    def _commit(self, changes: Sequence[Change], wait: bool) -> None:
        if not changes:
            return
        with self._appending:
            log = self._writing or self._refuse()
            log.append(changes)
            end = log.end
        if end - log.index.live > self._upkeep.alarm:
            self._after_commit(log, end, wait)

    def _writer(self) -> Log:
        """The log to append to. Raises `Closed`, `ReadOnly`."""
        return self._writing or self._refuse()

    def _refuse(self) -> NoReturn:
        if self._log is not None:
            raise ReadOnly(self._path)
        self._closed()

    def _closed(self) -> NoReturn:
        raise Closed(self._path, self._gone)

    def _after_commit(self, log: Log, end: int, wait: bool) -> None:
        if wait and self._options.sync == "always":
            self._await_durable(log, end)
        if self._options.maintenance == "commits" and self._upkeep.is_due(log):
            self._upkeep.pace(log, self._compaction)

    # Durability

    def sync(self) -> None:
        """Return when every commit so far is on the medium. Raises `StoreFailed`, after which writes are
        refused.
        """
        with self._appending:
            log = self._writer()
            log.check()
            end = log.end
        self._await_durable(log, end)

    def _await_durable(self, log: Log, end: int) -> None:
        """Return when byte `end` of a log is on the medium.

        Whoever gets the lock first syncs for all who appended before; the others find it done.
        """
        with self._syncing:
            if log.durable >= end:
                return
            with self._appending:
                if log is not self._writing:
                    # A compaction has taken over everything, and synced it: see `_swap`.
                    self._writer().check()
                    return
                log.check()
                end = log.end
            log.sync(end)

    def checkpoint(self) -> None:
        """As `sync`; and if the log has grown enough, write a snapshot, so that the next opening is quick.

        While other long work is under way it is left at the sync: a compaction writes a snapshot too. Raises
        `StoreFailed`, `DiskFull`, `Corrupted`.
        """
        self.sync()
        drive(self._upkeep.if_idle(self._checkpoint()))

    def checkpoint_steps(self) -> Steps:
        """As `checkpoint`, in steps, for whoever has other things to do in between; each yield says what the next
        step will do. Every step leaves a sound store; to go no further is fine.
        """
        yield Step.WAITING
        self.sync()
        yield from self._upkeep.if_idle(self._checkpoint())

    def _checkpoint(self) -> Steps:
        log = self._writer()
        while log.write_snapshot(self._appending):
            # The rest of one that somebody began.
            yield Step.BRIEF
        if not self._snapshot_is_due():
            return
        taken = yield from snapshot_steps(log, self._appending)
        if taken is not None:
            yield Step.WAITING
            self.sync()
            with self._syncing:
                log.use_snapshot(*taken)
                log.sync(log.durable)

    def _snapshot_is_due(self) -> bool:
        log = self._writer()
        if log.snapshot is None:
            return log.end > BIRTH_SIZE
        return log.index.spoiled or log.tail > self._options.snapshot_at * log.snapshot.size

    # Compaction

    def compact(self) -> int:
        """Rewrite the file with what lives in it, in the old one's place; how many bytes that freed,
        which is negative if the snapshot it ends with outweighs what was dead.

        Readers and writers go on meanwhile. Raises `Corrupted` if a live record is damaged, `DiskFull`,
        `IOFailed`, `StoreFailed`; the old file then stays.
        """
        before = self._writer().end
        drive(self.compaction_steps())
        return before - self._writer().end

    def erase(self) -> tuple[Path, ...]:
        """Compact, and remove what was saved beside the store: torn tails that were cut off, and damaged originals
        that a repair kept; which files those were.

        When it returns, nothing that had been deleted or replaced before is in any file that crabdb has put
        here. Copies that were made elsewhere are not its business. Raises as `compact`.
        """
        with self._ending, typed_errors(self._path):
            self.compact()
            return remove_saved(self._files, self._path)

    def compaction_steps(self) -> Steps:
        """As `compact`, in steps; the last one swaps the files. Each yield says what the next step will do. Other
        long work that is under way is finished first.

        To go no further leaves the old file; after `close` a step raises `Closed`.
        """
        self._writer().check()
        return self._upkeep.alone(self._compaction())

    def maintenance(self) -> Steps:
        """The steps of a compaction that is due by `Options.compact_at` and `Options.compact_min`, or the rest of
        one that has begun; none if none is. Each yield says what the next step will do.

        A failure is not raised but noted in `stats().compaction_error`, and tried again only after as much as the
        file holds was written once more.
        """
        return self._upkeep.steps(self._writer(), self._compaction)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintenance` may have something to do. Costs next to nothing, so it can be asked after every
        commit.
        """
        log = self._writing
        return log is not None and self._upkeep.is_due(log)

    def _compaction(self) -> Steps:
        with typed_errors(self._path):
            old = self._writer()
            old.check()
            check_room(self._files, old)
            name, new = new_file(self._files, self._path, "compact", old.identity.file_id)
            journal: Journal = {}
            try:
                yield from self._copy(old, new, journal)
                self._swap(old, new, name, journal)
            except StoreFailed as failed:
                self._discard(old, name)
                if failed.cause is new.failure and self._log is old:
                    # Only the copy could not be written, the store is as it was.
                    raise IOFailed(self._path, failed.cause) from failed
                raise
            except BaseException:
                self._discard(old, name)
                raise
            finally:
                old.journals[:] = [other for other in old.journals if other is not journal]

    def _discard(self, old: Log, name: Path) -> None:
        if self._log is old:
            self._files.discard(name)

    def _copy(self, old: Log, new: Log, journal: Journal) -> Iterator[Step]:
        new.file.dress_like(old.file)
        with self._appending:
            old.journals.append(journal)
        yield from copy_live(old, new)
        yield from catch_up(old, new, journal)
        yield from copy_snapshot(new)
        yield from settle(old, new, journal)
        yield Step.WAITING

    def _swap(self, old: Log, new: Log, name: Path, journal: Journal) -> None:
        """Copy what changed meanwhile, and let the new file take the old one's name and place."""
        with self._syncing:
            # From here on no further commit becomes durable in the old file. Those that are must be so in the new
            # one before it takes the name; the rest may be synced at the end, but no commit may be lost by half.
            new.sync(new.end)
            draw_level(old, new, journal, self._appending)
            with self._appending:
                self._writer()
                old.check()
                copy_rest(old, new, journal)
                self._rename(old, new, name)
                end = new.end
            try:
                self._files.sync_directory(self._path.parent)
            except BaseException as error:
                # The file's name may not be on the medium, so no later sync may say that anything is.
                new.failure = error
                if isinstance(error, OSError):
                    raise StoreFailed(self._path, error) from error
                raise
            if new.durable < end:
                # Who waits for a commit in the old file waits for it in this one.
                new.sync(end)
        self._upkeep.compactions += 1
        self._upkeep.look_at(new)

    def _rename(self, old: Log, new: Log, name: Path) -> None:
        if self._files.inode(self._path) != old.file.inode():
            old.fail(FileNotFoundError("another file has taken the store's name"))
        new.epoch = old.epoch + old.end + 1 - new.end
        # Whatever happens from here to the swap: the old file must never be written to again.
        old.halfway = InterruptedError("a compaction was interrupted while it renamed the file")
        try:
            self._files.replace(name, self._path)
        except OSError:
            if self._files.inode(self._path) != new.file.inode():
                old.halfway = None
                raise
        self._log = self._writing = new

    # Looking at it

    @property
    def path(self) -> Path:
        """Where the file is, symbolic links followed."""
        return self._path

    @property
    def options(self) -> Options:
        """What it was opened with."""
        return self._options

    @property
    def read_only(self) -> bool:
        """Whether this handle may only read."""
        return self._lock is None

    @property
    def generation(self) -> int:
        """Grows with every commit through this handle; equal numbers mean equal contents."""
        log = self._log or self._closed()
        return log.epoch + log.end

    def stats(self) -> Stats:
        """Sizes and what happened to the store; costs next to nothing."""
        log = self._log or self._closed()
        return Stats.of(
            log,
            self._found,
            read_only=self.read_only,
            compactions=self._upkeep.compactions,
            compaction_error=self._upkeep.error,
        )

    def columns(self) -> dict[int, tuple[int, int]]:
        """Per column that has keys: how many, and the bytes of their records. Walks all keys."""
        return (self._log or self._closed()).index.sizes()

    def verify(self) -> Verification:
        """Read the whole file and check every byte of it, and the index in memory against it. Changes nothing.

        Raises `IOFailed`.
        """
        return drive(self.verify_steps())

    def verify_steps(self) -> Generator[Step, None, Verification]:
        """As `verify`, in steps; what it returns is of the moment of the first one."""
        with typed_errors(self._path):
            log = self._log or self._closed()
            return (yield from verify_log(log, self._appending, torn_tail(log) if self.read_only else 0))

    def refresh(self) -> bool:
        """Show what other processes have committed since this read-only handle was opened, or last refreshed;
        whether anything may have changed. Of a handle that writes it is False: nobody else can.

        Follows appended commits at their own cost, and opens the file anew when it was compacted or mended;
        what is being read meanwhile stays readable. Raises `NotFound` if the file is gone, `NotCrabDB`,
        `Unsupported`, `AccessDenied`, `IOFailed`; the handle then shows what it showed.
        """
        with self._ending, self._appending:
            log = self._log or self._closed()
            if not self.read_only:
                return False
            opened = follow(self._files, self._path, Opened(log, None, self._found))
            if opened is None:
                return False
            self._log, self._found = opened.log, opened.found
            return True

    # Copying it

    def backup(self, to: AnyPath) -> int:
        """Make a copy of the store as it is now in the new file `to`; its size in bytes.

        Readers and writers go on meanwhile; what they write is not in it. The copy is checked, on the medium, and
        opens like any store. Raises `Exists`, `NotFound`, `Corrupted` if the store is damaged, `ReadFailed`,
        `DiskFull`, `IOFailed`; then no copy is left.
        """
        return run_steps(self.backup_steps(to))

    def backup_steps(self, to: AnyPath) -> Generator[Progress, None, int]:
        """As `backup`, in short steps, for whoever shows progress or has other things to do in between.

        The copy is of the moment of this call, and there when the last step was taken.
        """
        given = check_path(to)
        with typed_errors(given):
            target = self._files.real(given)
        with self._appending:
            moment = moment_of(self._log or self._closed())
        return copy_moment(self._files, moment, target)

    # The end

    def close(self) -> None:
        """Checkpoint, unless read-only or failed, and let go of the file and the lock. Closing twice is fine.

        Raises `StoreFailed`, `DiskFull` if the checkpoint did, `IOFailed` if the system would not unlock; the
        store is closed all the same.
        """
        with self._ending:
            log = self._log
            if log is None:
                return
            try:
                if not self.read_only and log.failure is None and log.halfway is None:
                    self._upkeep.end(Closed(self._path, self._gone))
                    self.sync()
                    drive(self._checkpoint())
            finally:
                with self._syncing, self._appending:
                    self._log = self._writing = None
                forget_frames(log.failure, log.halfway)
                if self._lock is not None:
                    with typed_errors(self._path):
                        self._lock.release()

    def forked(self) -> None:
        """Called in a forked child: this handle is the parent's."""
        self._fresh_locks()
        self._log = self._writing = None
        self._gone = "this handle was opened before a fork and belongs to the parent"
        if self._lock is not None:
            self._lock.abandon()

    def __enter__(self) -> "CrabDB":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
