"""What can go wrong with what was asked: exit codes, and every expected error as one line for a person.

The library's errors speak to a program's author ("open it with read_only=True"); here they speak to whoever
typed the command, or sent the request. Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import crabdb
from crabdb import errors as db

from ..store import errors as store
from ..store.skills import InvalidSkill

__all__ = ["EXPECTED", "ExitCode", "Failure", "Refusal", "explain", "failure_document"]


class ExitCode(IntEnum):
    """What a command ends with."""

    DONE = 0
    """Everything was done."""
    PARTIAL = 1
    """Not everything that was asked for was done; the report says what was left out, and why."""
    USAGE = 2
    """The command line, or a value on it, cannot be used; nothing was done."""
    MISSING = 3
    """The store, or what was named in it, is not there."""
    LOCKED = 4
    """Another process has the store open for writing."""
    DAMAGED = 5
    """What was read is not what was written."""
    VERSION = 6
    """The store was written by another version: it needs `crabstore reindex`, or a newer crabstore."""
    SYSTEM = 7
    """The operating system refused: a full disk, a missing permission, a failing medium."""
    TORN = 8
    """The store is sound, but for the torn tail of a crash, which the next writer cuts off."""
    FOREIGN = 9
    """The file is not a store; it was left untouched."""
    MODEL = 10
    """The model, or who provides it, gave no answer."""
    INTERRUPTED = 130
    """Ctrl-C."""
    PIPE = 141
    """Whoever read the output went away."""


@dataclass(frozen=True)
class Failure:
    """An error as a command reports it. `kind` is stable and documented, `message` is for people."""

    code: ExitCode
    kind: str
    message: str
    data: Mapping[str, object] = field(default_factory=dict)


def failure_document(failure: Failure) -> dict[str, object]:
    """As JSON gives it, everywhere."""
    error = {"kind": failure.kind, "exit": int(failure.code), "message": failure.message, **failure.data}
    return {"error": error}


class Refusal(Exception):
    """A failure that whoever takes the request finds, before any library does."""

    def __init__(self, code: ExitCode, kind: str, message: str, **data: object) -> None:
        super().__init__(message)
        self.failure = Failure(code, kind, message, data)


EXPECTED = (Refusal, store.StoreError, crabdb.CrabDBError, OSError)
"""What a command may end with. Anything else is a defect of this program, and keeps its traceback."""


class _Rule(NamedTuple):
    """How one kind of error is reported."""

    error: type[Exception]
    code: ExitCode
    kind: str
    words: Callable[..., str] = str


def _missing_store(error: db.NotFound) -> str:
    return f"there is no store at {error.path}: `crabstore import` makes one, --store names another"


def _locked(error: db.Locked) -> str:
    by = f" by {error.holder}" if error.holder else ""
    return (
        f"{error.path} is open for writing{by}: wait until that ends, or end it; "
        "commands that only read work beside it"
    )


def _corrupted(error: db.Corrupted) -> str:
    return (
        f"{error.path} is damaged at byte {error.offset} ({error.problem}): nothing was written; "
        "commands that only read give what is intact, `crabstore verify` tells more, "
        "`crabstore repair` makes a sound store of it"
    )


def _denied(error: db.AccessDenied) -> str:
    return f"{error.path}: the system lets this user not read it, or not write it"


def _of_the_system(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


_RULES = (
    _Rule(db.NotFound, ExitCode.MISSING, "no-store", _missing_store),
    _Rule(db.Exists, ExitCode.USAGE, "exists"),
    _Rule(db.Locked, ExitCode.LOCKED, "locked", _locked),
    _Rule(db.Unsupported, ExitCode.VERSION, "newer-store"),
    _Rule(db.NotCrabDB, ExitCode.FOREIGN, "not-a-store"),
    _Rule(db.Corrupted, ExitCode.DAMAGED, "damaged", _corrupted),
    _Rule(db.InvalidArgument, ExitCode.USAGE, "usage"),
    _Rule(db.DiskFull, ExitCode.SYSTEM, "disk-full", _of_the_system),
    _Rule(db.AccessDenied, ExitCode.SYSTEM, "denied", _denied),
    _Rule(db.ReadFailed, ExitCode.SYSTEM, "read-failed", _of_the_system),
    _Rule(crabdb.CrabDBError, ExitCode.SYSTEM, "store-failed"),
    _Rule(store.NotFound, ExitCode.MISSING, "not-found"),
    _Rule(InvalidSkill, ExitCode.USAGE, "invalid-skill"),
    _Rule(store.InvalidArgument, ExitCode.USAGE, "usage"),
    _Rule(store.NameTaken, ExitCode.USAGE, "name-taken"),
    _Rule(store.SchemaMismatch, ExitCode.VERSION, "other-version"),
    _Rule(store.BadRecord, ExitCode.DAMAGED, "damaged"),
    _Rule(store.Conflict, ExitCode.LOCKED, "busy"),
    _Rule(store.StoreError, ExitCode.SYSTEM, "store-failed"),
    _Rule(OSError, ExitCode.SYSTEM, "system", _of_the_system),
)
"""The first rule that fits an error reports it."""


def explain(error: Exception) -> Failure:
    """`error`, which is one of EXPECTED, as it is reported."""
    if isinstance(error, Refusal):
        return error.failure
    rule = next(rule for rule in _RULES if isinstance(error, rule.error))
    return Failure(rule.code, rule.kind, rule.words(error))
