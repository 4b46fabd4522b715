"""`python -m crabdb`: look at a store, check it, list it, copy it, compact it, repair it.

Exit codes are those of the `crabstore` command:

0 everything was done, or is sound; 1 a repair could not keep everything; 2 the command line cannot be used, or
a file it would make exists; 3 there is no such file; 4 another process writes; 5 the store is damaged; 6 a newer
version wrote it; 7 the system refused; 8 it is sound but for the torn tail of a crash; 9 the file is no store.

Only `compact` writes to a store, and `repair --swap`, which puts a new one in its place; nothing here makes an
empty one.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from crabdb.backup import Progress, run_steps
from crabdb.db import CrabDB
from crabdb.errors import (
    Corrupted,
    CrabDBError,
    Exists,
    InvalidArgument,
    Locked,
    NotCrabDB,
    NotFound,
    Unsupported,
)
from crabdb.repair import Repaired, repair_steps

__all__ = ["main"]

DONE, PARTIAL, USAGE, MISSING, LOCKED, DAMAGED, VERSION, SYSTEM, TORN, FOREIGN = range(10)

CODES: tuple[tuple[type[CrabDBError], int], ...] = (
    (InvalidArgument, USAGE),
    (Exists, USAGE),
    (NotFound, MISSING),
    (Locked, LOCKED),
    (Corrupted, DAMAGED),
    (Unsupported, VERSION),
    (NotCrabDB, FOREIGN),
    (CrabDBError, SYSTEM),
)
"""The first that fits an error is the exit code."""


def stat(options: argparse.Namespace) -> int:
    """Print the numbers of a store, and of its columns."""
    with _reader(options) as db:
        stats = db.stats()
        for field in fields(stats):
            print(f"{field.name:18} {getattr(stats, field.name)}")
        for col, (keys, size) in db.columns().items():
            print(f"column {col:<11} {keys} keys, {size} bytes")
        return DAMAGED if stats.damage else DONE


def verify(options: argparse.Namespace) -> int:
    """Read every byte of a store and check it."""
    with _reader(options) as db:
        found = db.verify()
    for offset, problem in found.problems:
        print(f"byte {offset}: {problem}")
    if found.torn:
        print(f"byte {found.size}: {found.torn} bytes are the torn tail of a crash, or are being written")
    print(f"{found.size} bytes, {found.frames} commits, {found.records} records, {found.keys} keys", end=": ")
    print("sound" if found.ok else f"{len(found.problems)} problems")
    if not found.ok:
        return DAMAGED
    return TORN if found.torn else DONE


def dump(options: argparse.Namespace) -> int:
    """Print every record in order: column, key and value, the latter two in hex."""
    with _reader(options) as db:
        for col in db.columns():
            for key in db.scan_keys(col):
                value = db.get(col, key)
                if value is not None:
                    print(col, key.hex(), value.hex())
    return DONE


def backup(options: argparse.Namespace) -> int:
    """Copy a store, also one that is being written, into a new file."""
    with _reader(options) as db:
        size = run_steps(db.backup_steps(options.to), _progress())
    print(f"{size} bytes copied")
    return DONE


def compact(options: argparse.Namespace) -> int:
    """Rewrite the file without what is dead in it."""
    removed: tuple[Path, ...] = ()
    with CrabDB.open(options.path, create=False) as db:
        before = db.stats().size
        if options.erase:
            removed = db.erase()
        else:
            db.compact()
        print(f"{before} bytes before, {db.stats().size} after")
    for path in removed:
        print(f"removed {path}")
    return DONE


def repair(options: argparse.Namespace) -> int:
    """Tell what can be saved of a damaged store; with --to or --swap, make a sound one of it."""
    found = run_steps(repair_steps(options.path, options.to, swap=options.swap), _progress())
    _print_repaired(found)
    if found.target is not None:
        return PARTIAL if found.damaged else DONE
    if found.damaged:
        return DAMAGED
    return TORN if found.lost else DONE


def _print_repaired(found: Repaired) -> None:
    for stretch in found.lost:
        print(f"lost: {stretch.length} bytes at {stretch.offset}: {stretch.problem}")
    for kind, keys in (("dropped", found.dropped), ("suspect", found.suspect)):
        for key in keys:
            print(f"{kind}: column {key.col} key {key.key.hex()} at {key.offset}")
    print(f"{found.keys} keys, {found.size} bytes can be kept", end="")
    print(f", {len(found.dropped)} keys are lost, {len(found.suspect)} may be out of date")
    if found.original is not None:
        print(f"the damaged file is now {found.original}")
    print(f"written to {found.target}" if found.target else "nothing was written: say --to NEW or --swap")


def _reader(options: argparse.Namespace) -> CrabDB:
    return CrabDB.open(options.path, create=False, read_only=True)


def _progress() -> Callable[[Progress], None] | None:
    """Shows how far long work has come, to a person; to nobody else."""
    if not sys.stderr.isatty():
        return None

    def tell(step: Progress) -> None:
        end = "\n" if step.done >= step.total else ""
        sys.stderr.write(f"\r{100 * step.done // max(step.total, 1)} %{end}")
        sys.stderr.flush()

    return tell


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "stat": stat,
    "verify": verify,
    "dump": dump,
    "backup": backup,
    "compact": compact,
    "repair": repair,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m crabdb",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {name: commands.add_parser(name, help=command.__doc__) for name, command in COMMANDS.items()}
    for command in parsers.values():
        command.add_argument("path", help="the store's file")
    parsers["backup"].add_argument("to", help="the new file")
    parsers["compact"].add_argument(
        "--erase",
        action="store_true",
        help="also remove torn tails and damaged originals that were saved beside the store",
    )
    where = parsers["repair"].add_mutually_exclusive_group()
    where.add_argument("--to", metavar="NEW", help="write what can be saved into this new file")
    where.add_argument(
        "--swap", action="store_true", help="put it in the store's place, and keep the damaged file beside it"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return COMMANDS[options.command](options)
    except CrabDBError as error:
        print(f"crabdb: {error}", file=sys.stderr)
        return next(code for kind, code in CODES if isinstance(error, kind))


if __name__ == "__main__":
    sys.exit(main())
