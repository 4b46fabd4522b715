"""Every error that the library raises is one line with an exit code; a defect keeps its traceback."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import crabdb
from crabdb import errors as db_errors
from crabstore.answers.failures import EXPECTED, ExitCode, explain
from crabstore.cli import maintenance
from crabstore.store import errors as store_errors
from crabstore.store.skills import InvalidSkill

from .conftest import Run

PATH = Path("/data/store.crmem")
FULL = OSError(errno.ENOSPC, "No space left on device", "/data/store.crmem")

ERRORS: list[tuple[Exception, ExitCode, str]] = [
    (db_errors.NotFound(PATH, "there is none"), ExitCode.MISSING, "no-store"),
    (db_errors.Locked(PATH, "pid 7"), ExitCode.LOCKED, "locked"),
    (db_errors.NotCrabDB(PATH, "bad magic"), ExitCode.FOREIGN, "not-a-store"),
    (db_errors.Exists(PATH), ExitCode.USAGE, "exists"),
    (db_errors.Unsupported(PATH, "version 9"), ExitCode.VERSION, "newer-store"),
    (db_errors.Corrupted(PATH, 99, "bad sum"), ExitCode.DAMAGED, "damaged"),
    (db_errors.StoreFailed(PATH, FULL), ExitCode.SYSTEM, "store-failed"),
    (db_errors.DiskFull(PATH, FULL), ExitCode.SYSTEM, "disk-full"),
    (db_errors.ReadFailed(PATH, 5, FULL), ExitCode.SYSTEM, "read-failed"),
    (
        db_errors.AccessDenied(PATH, PermissionError(errno.EACCES, "Permission denied")),
        ExitCode.SYSTEM,
        "denied",
    ),
    (db_errors.InvalidArgument("key", "is empty"), ExitCode.USAGE, "usage"),
    (store_errors.NotFound("agent", "x"), ExitCode.MISSING, "not-found"),
    (store_errors.NameTaken("agent", "x", "y"), ExitCode.USAGE, "name-taken"),
    (store_errors.InvalidArgument("limit", 0, "must be more"), ExitCode.USAGE, "usage"),
    (store_errors.SchemaMismatch("tokeniser", 1, 2, "run reindex"), ExitCode.VERSION, "other-version"),
    (store_errors.BadRecord(b"key", "no JSON"), ExitCode.DAMAGED, "damaged"),
    (store_errors.Conflict(1, b"key", None, b""), ExitCode.LOCKED, "busy"),
    (InvalidSkill("x", "no name"), ExitCode.USAGE, "invalid-skill"),
    (PermissionError(errno.EACCES, "Permission denied", "/data"), ExitCode.SYSTEM, "system"),
]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: type(case[0]).__name__)
def test_an_error_is_reported_in_one_line_with_its_code(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[Exception, ExitCode, str]
) -> None:
    error, code, kind = case
    assert isinstance(error, EXPECTED)
    failure = explain(error)
    assert (failure.code, failure.kind) == (code, kind)
    assert "read_only" not in failure.message

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(maintenance, "measure", fail)
    done = run("stats", "--store", filled)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert run("stats", "--json", "--store", filled).error["kind"] == kind


def test_every_error_of_the_library_has_a_rule() -> None:
    tried = {type(error) for error, _, _ in ERRORS}
    public = [getattr(module, name) for module in (db_errors, store_errors) for name in module.__all__]
    for error in {thing for thing in public if isinstance(thing, type)} - tried:
        assert issubclass(error, (crabdb.CrabDBError, store_errors.StoreError))


def test_a_lock_names_its_holder_and_what_to_do() -> None:
    message = explain(db_errors.Locked(PATH, "pid 7")).message
    assert "pid 7" in message and "wait" in message


def test_a_defect_of_this_program_is_not_swallowed(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(maintenance, "measure", fail)
    with pytest.raises(ZeroDivisionError):
        run("stats", "--store", filled)


def test_an_interrupt_ends_a_command_quietly(run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(maintenance, "measure", interrupt)
    done = run("stats", "--store", filled)
    assert (done.code, done.out, done.err) == (ExitCode.INTERRUPTED, "", "crabstore: interrupted\n")
