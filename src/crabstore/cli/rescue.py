"""`crabstore backup` and `repair`: copies of a store's file, of a sound one and of what is left of a damaged one.

They work on the file and ask nothing of what is stored in it, so that a store of another version, or a damaged
one, can be copied too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from crabdb import CrabDB, Key, Lost, Repaired, repair_steps, run_steps

from ..answers.documents import Document
from ..answers.failures import ExitCode, Refusal
from ..opening import file_of
from ..store.batch import Column
from .call import Call, from_home
from .console import Screen, count, size
from .progress import progress

__all__ = ["backup", "repair"]

_LISTED = 20
"""Places and keys listed on a screen."""


def backup(
    call: Call, to: Annotated[str, typer.Argument(metavar="TO", help="The new file.", show_default=False)]
) -> ExitCode | None:
    """Copy the store as it is now into a new file, also while another process writes."""
    target = from_home(to)
    with (
        CrabDB.open(_path_of(call), create=False, read_only=True) as db,
        progress("copying", call, unit="bytes") as advance,
    ):
        copied = run_steps(db.backup_steps(target), lambda step: advance(*step))
    document = {"backup": {"path": target, "size": copied}}
    call.answer(document, lambda screen: screen.show(f"{size(copied)} copied to {target}"))
    return None


def repair(
    call: Call,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="NEW", help="Write what can be saved into this file.", show_default=False
        ),
    ] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="Put it in the store's place, and keep the damaged file beside it.")
    ] = False,
) -> ExitCode | None:
    """Tell what can be saved of a damaged store; with --to or --swap, make a sound one of it."""
    if to is not None and swap:
        raise Refusal(ExitCode.USAGE, "usage", "--to and --swap exclude each other")
    target = None if to is None else from_home(to)
    with progress("reading", call, unit="bytes") as advance:
        found = run_steps(repair_steps(_path_of(call), target, swap=swap), lambda step: advance(*step))
    call.answer({"repair": _document(found)}, lambda screen: _draw(screen, found, call))
    return _code(found)


def _path_of(call: Call) -> str:
    path = file_of(call.url)
    if path is None:
        raise Refusal(ExitCode.USAGE, "usage", "only a store in a file (crabdb) can be copied and repaired")
    return path


def _code(found: Repaired) -> ExitCode | None:
    if found.target is not None:
        return ExitCode.PARTIAL if found.damaged else None
    if found.damaged:
        return ExitCode.DAMAGED
    return ExitCode.TORN if found.lost else None


def _document(found: Repaired) -> Document:
    return {
        "path": str(found.source),
        "target": None if found.target is None else str(found.target),
        "original": None if found.original is None else str(found.original),
        "damaged": found.damaged,
        "keys": found.keys,
        "bytes": found.size,
        "lost": [
            {"offset": lost.offset, "length": lost.length, "problem": lost.problem, "torn": lost.torn}
            for lost in found.lost
        ],
        "dropped": [_key_document(key) for key in found.dropped],
        "suspect": [_key_document(key) for key in found.suspect],
        "unreadable": list(found.refused),
    }


def _key_document(key: Key) -> Document:
    return {"kind": _kind(key), "key": _text(key), "offset": key.offset, "length": key.length}


def _kind(key: Key) -> str:
    return Column(key.col).name.lower() if key.col in set(Column) else str(key.col)


def _text(key: Key) -> str:
    return key.key.decode(errors="backslashreplace")


def _draw(screen: Screen, found: Repaired, call: Call) -> None:
    _list(screen, "lost", [_place(lost) for lost in found.lost])
    _list(screen, "dropped, since damaged", [f"{_kind(key)} {_text(key)}" for key in found.dropped])
    _list(screen, "kept, but may be out of date", [f"{_kind(key)} {_text(key)}" for key in found.suspect])
    kept = f"{count(found.keys, 'record')}, {size(found.size)}"
    if found.target is None:
        screen.show(f"{kept} can be kept; nothing was written, say --to NEW or --swap")
        return
    screen.show(f"{kept} kept in {found.target}")
    if found.original is not None:
        screen.show(f"the damaged file is now {found.original}")
    if found.damaged:
        reindex = call.again("reindex") if found.original else f"crabstore reindex --store {found.target}"
        screen.show(f"indexes may lack entries: run `{reindex}`")


def _list(screen: Screen, title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    screen.show(f"{title}:")
    rest = len(lines) - _LISTED
    screen.indented([*lines[:_LISTED], *([f"and {rest:,} more"] if rest > 0 else [])])


def _place(lost: Lost) -> str:
    words = "a torn tail" if lost.torn else lost.problem
    return f"{size(lost.length)} at byte {lost.offset}: {words}"
