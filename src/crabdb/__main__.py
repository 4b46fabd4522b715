"""`python -m crabdb`: look at a store, check it, list it, compact it.

Exit codes: 0 fine; 1 the store is damaged; 2 it cannot be opened or used. Everything but `compact` opens
read-only, also beside a live writer, and never makes a store.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields

from crabdb import Corrupted, CrabDB, CrabDBError

__all__ = ["main"]


def stat(db: CrabDB) -> int:
    """Print the numbers of a store, and of its columns."""
    stats = db.stats()
    for field in fields(stats):
        print(f"{field.name:18} {getattr(stats, field.name)}")
    for col, (keys, size) in db.columns().items():
        print(f"column {col:<11} {keys} keys, {size} bytes")
    return 1 if stats.damage else 0


def verify(db: CrabDB) -> int:
    """Check every byte of a store."""
    found = db.verify()
    for offset, problem in found.problems:
        print(f"byte {offset}: {problem}")
    print(f"{found.size} bytes, {found.frames} commits, {found.records} records, {found.keys} keys", end=": ")
    print("sound" if found.ok else f"{len(found.problems)} problems")
    return 0 if found.ok else 1


def dump(db: CrabDB) -> int:
    """Print every record in order: column, key and value, the latter two in hex."""
    for col in db.columns():
        for key in db.scan_keys(col):
            value = db.get(col, key)
            if value is not None:
                print(col, key.hex(), value.hex())
    return 0


def compact(db: CrabDB) -> int:
    """Rewrite the file without what is dead in it."""
    before = db.stats().size
    db.compact()
    print(f"{before} bytes before, {db.stats().size} after")
    return 0


COMMANDS: dict[str, Callable[[CrabDB], int]] = {
    "stat": stat,
    "verify": verify,
    "dump": dump,
    "compact": compact,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m crabdb", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.__doc__).add_argument("path", help="the store's file")
    chosen = parser.parse_args(arguments)
    try:
        with CrabDB.open(chosen.path, create=False, read_only=chosen.command != "compact") as db:
            return COMMANDS[chosen.command](db)
    except CrabDBError as error:
        print(f"crabdb: {error}", file=sys.stderr)
        return 1 if isinstance(error, Corrupted) else 2


if __name__ == "__main__":
    sys.exit(main())
