"""`CrabDB`, the store: five operations, batches, durability points, compaction; for any thread.

Knows nothing of the bytes (`format`), of the system (`files`) or of how a file is judged (`recovery`). One
append lock serialises commits and is never held during an fsync; a reader takes one reference to the
current `Log` (a file and the index over it) and needs no lock for `get`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import Final

from crabdb.compaction import copy_changes, copy_live, finish_copy
from crabdb.errors import Closed, CrabDBError, InvalidArgument, ReadOnly, StoreFailed
from crabdb.files import OS, Files, Forkable, guard_fork
from crabdb.format import BODY_LIMIT, LENGTH_LIMIT, RESERVED
from crabdb.log import Log, Staged, stage_delete, stage_put
from crabdb.opening import Opened, new_file, open_reader, open_writer, typed_errors
from crabdb.options import Options
from crabdb.reading import read_value, read_values
from crabdb.report import Stats, Verification, verify_log

__all__ = ["Batch", "CrabDB"]

DEFAULTS: Final = Options()


class Batch:
    """Puts and deletes that are committed together when the `with` block ends, or dropped if it raises.

    Reading the store inside the block shows it without them.
    """

    def __init__(self) -> None:
        self._staged: list[Staged] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._staged)

    def put(self, col: int, key: bytes, value: bytes) -> None:
        """Stage a put. Raises `InvalidArgument`, also if the batch outgrows 64 MiB."""
        _check_key(col, key)
        _check_value(value)
        self._stage(stage_put(col, key, value))

    def delete(self, col: int, key: bytes) -> None:
        """Stage a delete; deleting a key that is not there changes nothing. Raises `InvalidArgument`."""
        _check_key(col, key)
        self._stage(stage_delete(col, key))

    def _stage(self, staged: Staged) -> None:
        size = self._size + len(staged.record)
        if size > BODY_LIMIT and self._staged:
            raise InvalidArgument("batch", f"would be {size} bytes, more than the {BODY_LIMIT} of one commit")
        self._staged.append(staged)
        self._size = size


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
        self._opened = opened
        self._lock = opened.lock
        self._log: Log | None = opened.log
        self._gone = "this handle is closed"
        self._compactions = 0
        self._compaction_error: Exception | None = None
        self._fresh_locks()
        self._set_alarm(opened.log)
        guard_fork(self)

    def _fresh_locks(self) -> None:
        # Taken in this order: maintaining, syncing, appending.
        self._maintaining = RLock()
        self._syncing = Lock()
        self._appending = Lock()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        options: Options = DEFAULTS,
        create: bool = True,
        read_only: bool = False,
        files: Files = OS,
    ) -> "CrabDB":
        """Open the store at `path`; make it if it is missing or an empty file and `create` is true.

        `read_only` takes no lock, never writes, works beside a live writer, shows the store as it is now,
        and opens damaged ones with what is intact. `files` is the system to work on, for tests and stores
        in memory.

        Raises `NotFound`, `NotCrabDB`, `Unsupported`, `Locked`, `Corrupted`, `AccessDenied`, `ReadFailed`,
        `DiskFull`.
        """
        with typed_errors(Path(path)):
            real = files.real(Path(path))
        opened = open_reader(files, real) if read_only else open_writer(files, real, options, create=create)
        return cls(files, real, opened, options)

    # Reading

    def get(self, col: int, key: bytes) -> bytes | None:
        """The value of a key, checked; None if there is none. Raises `InvalidArgument`, `Corrupted`,
        `ReadFailed`.
        """
        _check_key(col, key)
        log = self._log or self._closed()
        location = log.index.get(col, key)
        return None if location is None else read_value(log.file, log.path, col, key, location)

    def get_many(self, col: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys in their order, read together where they lie together. Raises as `get`."""
        for key in keys:
            _check_key(col, key)
        log = self._log or self._closed()
        found = [(number, log.index.get(col, key)) for number, key in enumerate(keys)]
        items = [(col, keys[number], location) for number, location in found if location is not None]
        values = iter(read_values(log.file, log.path, items))
        return [None if location is None else next(values) for _, location in found]

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
        _check_page(col, prefix, after, limit)
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
        _check_page(col, prefix, after, limit)
        log = self._log or self._closed()
        found = log.index.items(col, prefix, after, limit, reverse)
        values = read_values(log.file, log.path, [(col, key, location) for key, location in found])
        return [(key, value) for (key, _), value in zip(found, values, strict=True)]

    def __len__(self) -> int:
        return len((self._log or self._closed()).index)

    # Writing

    def put(self, col: int, key: bytes, value: bytes) -> None:
        """Store a value under a key. Raises `InvalidArgument`, `ReadOnly`, `DiskFull`, `StoreFailed`."""
        _check_key(col, key)
        _check_value(value)
        with self._appending:
            log = self._writable()
            log.append_put(col, key, value)
        self._after_commit(log)

    def delete(self, col: int, key: bytes) -> bool:
        """Remove a key; whether it was there. Raises as `put`."""
        _check_key(col, key)
        with self._appending:
            log = self._writable()
            log.check()
            if log.index.get(col, key) is None:
                return False
            log.append([stage_delete(col, key)])
        self._after_commit(log)
        return True

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Stage puts and deletes and commit them as one at the end of the block. Raises as `put`."""
        self._writable().check()
        batch = Batch()
        yield batch
        if batch._staged:
            with self._appending:
                log = self._writable()
                log.append(batch._staged)
            self._after_commit(log)

    def _writable(self) -> Log:
        log = self._log or self._closed()
        if self._lock is None:
            raise ReadOnly(self._path)
        return log

    def _closed(self) -> Log:
        raise Closed(self._path, self._gone)

    def _after_commit(self, log: Log) -> None:
        if self._options.sync:
            self.sync()
        if log.end - log.index.live > self._alarm:
            self._compact_if_due()

    # Durability

    def sync(self) -> None:
        """Return when every commit so far is on the medium. Raises `StoreFailed`, after which writes are
        refused.
        """
        with self._appending:
            log = self._writable()
            log.check()
            end = log.end
        with self._syncing:
            if self._log is log and log.durable < end:
                log.check()
                log.sync(end)

    def checkpoint(self) -> None:
        """As `sync`; and if the log has grown enough, write a snapshot, so that the next opening is quick.

        Raises `StoreFailed`, `DiskFull`.
        """
        with self._maintaining:
            self.sync()
            if not self._snapshot_is_due():
                return
            with self._appending:
                log = self._writable()
                value, root = log.encoded_snapshot()
                if len(value) > LENGTH_LIMIT:
                    return
                header = log.append_snapshot(value, root)
            self.sync()
            log.write_header(header)
            with self._syncing:
                log.sync(log.durable)

    def _snapshot_is_due(self) -> bool:
        log = self._writable()
        last = log.snapshot.size if log.snapshot else 0
        return log.tail > self._options.snapshot_at * last

    def compact(self) -> int:
        """Rewrite the file with what lives in it, and put it in the old one's place; how many bytes that freed.

        Readers and writers go on meanwhile. Raises `Corrupted` if a live record is damaged, `DiskFull`,
        `StoreFailed`; the old file then stays.
        """
        with self._maintaining:
            log = self._writable()
            log.check()
            before = log.end
            for _ in self._compaction(log):
                pass
            return before - self._writable().end

    def _compaction(self, old: Log) -> Iterator[None]:
        """The steps of a compaction; the file is swapped in the last. The maintenance lock must be held."""
        with typed_errors(self._path):
            name, new = new_file(self._files, self._path, "compact", old.identity.file_id)
            try:
                new.file.dress_like(old.file)
                with self._appending:
                    old.journal = []
                    entries = list(old.index.entries())
                yield from copy_live(old, entries, new)
                finish_copy(new)
                new.sync(new.end)
                yield
                self._swap(old, new, name)
            except BaseException:
                if self._log is old and self._files.inode(name) is not None:
                    self._files.remove(name)
                raise
            finally:
                old.journal = None
        self._compactions += 1

    def _swap(self, old: Log, new: Log, name: Path) -> None:
        """Copy what changed meanwhile, and let the new file take the old one's name and place."""
        with self._syncing:
            while copy_changes(old, new):
                # From here on no commit can become durable in the old file only.
                new.sync(new.end)
                break
            with self._appending:
                old.check()
                copy_changes(old, new)
                if self._files.inode(self._path) != old.file.inode():
                    raise StoreFailed(
                        self._path, FileNotFoundError("the file was replaced or removed meanwhile")
                    )
                # Should anything come between the two, the old file must never be written to again.
                old.failure = InterruptedError("a compaction was interrupted while it renamed the file")
                self._files.replace(name, self._path)
                self._log = new
            try:
                self._files.sync_directory(self._path.parent)
            except OSError as error:
                new.fail(error)
        new.commits += old.commits
        self._set_alarm(new)

    def _set_alarm(self, log: Log) -> None:
        """Bytes not alive from which it is worth to look whether a compaction is due; cheap to compare with."""
        self._alarm = max(
            log.overhead + max(self._options.compact_min, self._options.compact_at * log.end), 0
        )

    def _compact_if_due(self) -> None:
        """Compact if the rule says so. A failure is noted, not raised: the write that led here has succeeded."""
        if not self._maintaining.acquire(blocking=False):
            return
        try:
            log = self._writable()
            if self.compaction_due:
                self._try_compaction(log)
            else:
                self._set_alarm(log)
        finally:
            self._maintaining.release()

    def _try_compaction(self, log: Log) -> None:
        try:
            self.compact()
            self._compaction_error = None
        except CrabDBError as error:
            self._compaction_error = error
            # Not again before as much as the file holds now has been written once more.
            self._alarm = 2 * log.end

    @property
    def compaction_due(self) -> bool:
        """Whether enough of the file is dead (`Options.compact_at`, `Options.compact_min`) to compact it."""
        log = self._writable()
        freed = log.end - log.size_compacted()
        return log.dead >= self._options.compact_at * log.end and freed >= max(self._options.compact_min, 1)

    # Looking at it

    @property
    def path(self) -> Path:
        """Where the file is, symbolic links followed."""
        return self._path

    @property
    def read_only(self) -> bool:
        """Whether this handle may only read."""
        return self._lock is None

    @property
    def generation(self) -> int:
        """Grows with every commit of this handle; equal numbers mean equal contents."""
        return (self._log or self._closed()).commits

    def stats(self) -> Stats:
        """Sizes and what happened to the store; costs next to nothing."""
        log = self._log or self._closed()
        return Stats.of(log, self._opened, self.read_only, self._compactions, self._compaction_error)

    def columns(self) -> dict[int, tuple[int, int]]:
        """Per column that has keys: how many, and the bytes of their records. Walks all keys."""
        return (self._log or self._closed()).index.sizes()

    def verify(self) -> Verification:
        """Read the whole file and check every byte of it, and the index in memory against it. Changes nothing.

        Raises `ReadFailed`.
        """
        log = self._log or self._closed()
        with self._appending:
            end, entries = log.end, list(log.index.entries())
        with typed_errors(self._path):
            return verify_log(log, end, entries)

    # The end

    def close(self) -> None:
        """Checkpoint, unless read-only or failed, and let go of the file and the lock. Closing twice is fine.

        Raises `StoreFailed`, `DiskFull` if the checkpoint did; the store is closed all the same.
        """
        with self._maintaining:
            log = self._log
            if log is None:
                return
            try:
                if not self.read_only and log.failure is None:
                    self.checkpoint()
            finally:
                with self._syncing, self._appending:
                    self._log = None
                if self._lock is not None:
                    self._lock.release()

    def forked(self) -> None:
        """Called in a forked child: this handle is the parent's."""
        self._fresh_locks()
        self._log = None
        self._gone = "this handle was opened before a fork and belongs to the parent"
        if self._lock is not None:
            self._lock.abandon()

    def __enter__(self) -> "CrabDB":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_key(col: int, key: bytes) -> None:
    if not isinstance(col, int) or not 0 <= col < RESERVED:
        raise InvalidArgument("col", f"must be a column from 0 to 254, not {col!r}")
    if not isinstance(key, bytes):
        raise InvalidArgument("key", f"must be bytes, not {type(key).__name__}")
    if not 0 < len(key) <= LENGTH_LIMIT:
        raise InvalidArgument("key", f"must have 1 to {LENGTH_LIMIT} bytes, not {len(key)}")


def _check_value(value: bytes) -> None:
    if not isinstance(value, bytes):
        raise InvalidArgument("value", f"must be bytes, not {type(value).__name__}")
    if len(value) > LENGTH_LIMIT:
        raise InvalidArgument("value", f"must have at most {LENGTH_LIMIT} bytes, not {len(value)}")


def _check_page(col: int, prefix: bytes, after: bytes | None, limit: int | None) -> None:
    if not isinstance(col, int) or not 0 <= col < RESERVED:
        raise InvalidArgument("col", f"must be a column from 0 to 254, not {col!r}")
    if not isinstance(prefix, bytes):
        raise InvalidArgument("prefix", f"must be bytes, not {type(prefix).__name__}")
    if after is not None and not isinstance(after, bytes):
        raise InvalidArgument("after", f"must be bytes or None, not {type(after).__name__}")
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidArgument("limit", f"must be None or a number from 0, not {limit!r}")
