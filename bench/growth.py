"""What grows with the number of keys: opening a store, its memory, a look-up, a scan, a checkpoint.

    python -m bench.growth [--keys 100000 1000000] [--json FILE]

Keys of 80 bytes as sessions have them, values of 40. Each store is made once, then opened in processes of their
own: behind a snapshot, and without one, when the whole log is replayed. Memory is what the resident set of such a
process has grown by, from before the opening to after it, and to after every kind of read. Everything is in the
system's cache, and times are the processor's, so that it matters less what else the machine does. Look-ups in
random order hardly ever meet a block that is kept; look-ups among a thousand neighbours always do.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from unittest.mock import patch

from crabdb import CrabDB
from crabdb.files import OSFile

COLUMN = 1
VALUE = bytes(range(40))
BATCH = 1000
LOOK_UPS = 50_000
NEIGHBOURS = 1000
PAGE = 100

Figures = dict[str, float]


def key_of(number: int) -> bytes:
    """One of ever so many keys of 80 bytes, in order."""
    return b"local/session/%032x/msg/%029d" % (number // 100 * 0x9E3779B97F4A7C15 % (1 << 128), number % 100)


def resident() -> int:
    """Bytes of this process's resident set."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def fill(path: Path, count: int, *, checkpoint: bool) -> Figures:
    """Make a store."""
    db = CrabDB.open(path)
    start = process_time()
    for first in range(0, count, BATCH):
        db.commit([(COLUMN, key_of(number), VALUE) for number in range(first, min(first + BATCH, count))])
    figures = {"batch of 1000, a record, us": (process_time() - start) / count * 1e6}
    if checkpoint:
        start = process_time()
        db.checkpoint()
        figures["first checkpoint, s"] = process_time() - start
        db.close()
    return figures


class Keys:
    """The keys that are asked for, made before anything is measured."""

    def __init__(self, count: int) -> None:
        source = random.Random(1)
        self.anywhere = [key_of(source.randrange(count)) for _ in range(LOOK_UPS)]
        self.near = [key_of(count // 2 + number % NEIGHBOURS) for number in range(LOOK_UPS)]
        source.shuffle(self.near)
        self.prefixes = [key_of(source.randrange(count))[:51] for _ in range(1000)]
        self.new = [key_of(count + number) for number in range(LOOK_UPS)]


def asked(ask: Callable[[int, bytes], object], keys: list[bytes]) -> float:
    """Microseconds a call."""
    start = process_time()
    for key in keys:
        ask(COLUMN, key)
    return (process_time() - start) / len(keys) * 1e6


def reads(db: CrabDB, keys: Keys) -> Iterator[tuple[str, float]]:
    """Where a key's record is, and its value, anywhere and in blocks that are kept; sessions by their prefix."""
    assert db._log is not None
    find = db._log.index.find
    yield "look-up anywhere, us", asked(find, keys.anywhere)
    yield "get anywhere, us", asked(db.get, keys.anywhere)
    asked(find, keys.near)
    yield "look-up in kept blocks, us", asked(find, keys.near)
    yield "get in kept blocks, us", asked(db.get, keys.near)
    yield "scan_keys of 100, a key, us", asked(db.scan_keys, keys.prefixes) / PAGE
    yield "scan of 100, an entry, us", asked(db.scan, keys.prefixes) / PAGE
    last_key = partial(db.scan_keys, limit=1, reverse=True)
    yield "last key of a prefix, us", asked(last_key, keys.prefixes)


def writes(db: CrabDB, keys: Keys) -> Iterator[tuple[str, float]]:
    """New keys, and keys that are there already."""

    def put(col: int, key: bytes) -> None:
        db.put(col, key, VALUE)

    yield "put of a new key, us", asked(put, keys.new)
    yield "put of an old key, us", asked(put, keys.anywhere)


def look_at(path: Path, count: int) -> Figures:
    """Open a store in this process, and read and write it."""
    keys = Keys(count)
    CrabDB.open(path.with_name("warm")).close()
    before = resident()
    start = process_time()
    db = CrabDB.open(path, create=False)
    figures = {"open, ms": (process_time() - start) * 1e3}
    figures["memory after opening, bytes a key"] = (resident() - before) / count
    figures["system calls of a get anywhere"] = counted_reads(db, keys)
    figures |= reads(db, keys)
    figures["memory after reading, bytes a key"] = (resident() - before) / count
    figures |= writes(db, keys)
    return figures


def counted_reads(db: CrabDB, keys: Keys) -> float:
    """How many reads of the file a get takes, after many that are not counted."""
    calls = 0
    plain = OSFile.read

    def read(self: OSFile, length: int, offset: int) -> bytes:
        nonlocal calls
        calls += 1
        return plain(self, length, offset)

    asked(db.get, keys.anywhere[1000:])
    with patch.object(OSFile, "read", read):
        asked(db.get, keys.anywhere[:1000])
    return calls / 1000


def apart(path: Path, count: int) -> Figures:
    """As `look_at`, in a process of its own."""
    command = [sys.executable, "-m", "bench.growth", "--look-at", str(path), "--keys", str(count)]
    figures: Figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return figures


def measure(count: int) -> dict[str, Figures]:
    """The figures of one size, behind a snapshot and without."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        path = Path(directory) / "store"
        made = fill(path, count, checkpoint=True)
        found = {"with a snapshot": made | apart(path, count)}
        path.unlink()
        made = fill(path, count, checkpoint=False)
        found["without"] = made | apart(path, count)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--look-at", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.look_at:
        print(json.dumps(look_at(arguments.look_at, arguments.keys[0])))
        return
    found = {count: measure(count) for count in arguments.keys}
    for count, sides in found.items():
        print(f"\n{count} keys{'':24}" + "".join(f"{side:>18}" for side in sides))
        for name in dict.fromkeys(name for figures in sides.values() for name in figures):
            cells = [
                f"{figures[name]:18.2f}" if name in figures else f"{'':18}" for figures in sides.values()
            ]
            print(f"{name:36}" + "".join(cells))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
