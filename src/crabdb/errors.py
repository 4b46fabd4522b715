"""What can go wrong with a store: whose fault it is, what to do next, and the facts as attributes.

Every error that crabdb raises on purpose is a `CrabDBError`. None of them leaves the store half changed: an
operation that raises did not happen, unless the error says that its outcome is unknown.
"""

from pathlib import Path

__all__ = [
    "AccessDenied",
    "Closed",
    "Corrupted",
    "CrabDBError",
    "DiskFull",
    "Exists",
    "IOFailed",
    "InvalidArgument",
    "Locked",
    "NotCrabDB",
    "NotFound",
    "ReadFailed",
    "ReadOnly",
    "StoreFailed",
    "Unsupported",
    "forget_frames",
]


class CrabDBError(Exception):
    """The base of every error of a store."""


class InvalidArgument(CrabDBError, ValueError):
    """The caller passed something no store can take; nothing was read or written.

    `argument` names the parameter.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument} {problem}")
        self.argument = argument


class NotFound(CrabDBError, FileNotFoundError):
    """There is no store at `path`, and making one was not asked for or is not possible."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class Exists(CrabDBError, FileExistsError):
    """There is a file at `path` where a new one was to be made; it was left untouched. Choose another name."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists and was left untouched; choose another name")
        self.path = path


class AccessDenied(CrabDBError, PermissionError):
    """The system does not let this user read or write the store at `path`; `errno` is its reason."""

    def __init__(self, path: Path, cause: OSError) -> None:
        OSError.__init__(
            self, cause.errno, f"{cause.strerror}; if reading is enough, try read_only=True", str(path)
        )
        self.path = path


class NotCrabDB(CrabDBError):
    """The file at `path` is something else; it was left untouched."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} is not a crabdb store ({problem}); it was left untouched")
        self.path = path
        self.problem = problem


class Unsupported(NotCrabDB):
    """The file was written by a newer version of the format; it was left untouched. Upgrade to open it."""


class Locked(CrabDBError):
    """Another handle, here or in another process, has the store open for writing.

    `holder` is what that process wrote about itself, or "" when it is not known. Close it, or open with
    `read_only=True`, which needs no lock.
    """

    def __init__(self, path: Path, holder: str, problem: str = "is open for writing elsewhere") -> None:
        by = f" ({holder})" if holder else ""
        super().__init__(f"{path} {problem}{by}; close it there, or open it with read_only=True")
        self.path = path
        self.holder = holder


class Corrupted(CrabDBError):
    """Bytes that were once safely stored are damaged at `offset` of the file at `path`.

    Writing is refused. `read_only=True` still opens the store with all that is intact, and `repair` makes a
    new one of it.
    """

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {offset}: {problem}; restore a copy, repair it, "
            "or open it with read_only=True to read what is intact"
        )
        self.path = path
        self.offset = offset
        self.problem = problem


class StoreFailed(CrabDBError):
    """The medium failed in a way after which nothing written through this handle can be trusted.

    Reads go on, writes raise this until the store is opened anew. `cause` is the first error.
    """

    def __init__(self, path: Path, cause: BaseException) -> None:
        super().__init__(
            f"{path} no longer takes writes after: {cause!r}; close it, check the disk, open it again"
        )
        self.path = path
        self.cause = cause


class DiskFull(CrabDBError, OSError):
    """There was no room (ENOSPC, EDQUOT, EFBIG); nothing was written, the store stays usable. `errno` says
    which.
    """

    def __init__(self, path: Path, cause: OSError) -> None:
        OSError.__init__(
            self, cause.errno, f"{cause.strerror}; nothing was written, make room and try again", str(path)
        )
        self.path = path


class IOFailed(CrabDBError, OSError):
    """The medium failed and the operation did not happen; the store is as it was. `errno` is the reason."""

    def __init__(self, path: Path, cause: BaseException, doing: str = "the system reports") -> None:
        number, reason = (cause.errno, cause.strerror) if isinstance(cause, OSError) else (None, str(cause))
        OSError.__init__(self, number, f"{doing}: {reason}; check the disk", str(path))
        self.path = path


class ReadFailed(IOFailed):
    """The store could not be read at `offset`."""

    def __init__(self, path: Path, offset: int, cause: OSError) -> None:
        super().__init__(path, cause, f"reading at byte {offset}")
        self.offset = offset


class ReadOnly(CrabDBError):
    """The store was opened with `read_only=True` and was asked to write."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was opened read-only; open it without read_only to write")
        self.path = path


class Closed(CrabDBError):
    """The handle was closed, or was opened before a fork in which this process is the child."""

    def __init__(self, path: Path, problem: str = "this handle is closed") -> None:
        super().__init__(f"{path}: {problem}; open the store again")
        self.path = path


def forget_frames(*errors: BaseException | None) -> None:
    """Drop the frames that noted errors came through, which would keep files open that nobody uses any more."""
    left = [error for error in errors if error is not None]
    while left:
        error = left.pop()
        error.__traceback__ = None
        left += [cause for cause in (error.__cause__, error.__context__) if cause is not None]
