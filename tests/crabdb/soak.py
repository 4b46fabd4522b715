"""A process that writes, compacts and dies beside one that follows it: `python -m tests.crabdb.soak --seconds 20`.

The writer counts its batches inside them, so that the follower can tell half a batch, an earlier state and a
lost commit from what may be.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from crabdb import CrabDB

__all__ = ["Seen", "soak"]

KEYS = 7

WRITER = f"""
import random, sys
from crabdb import CrabDB, Options
db = CrabDB.open(sys.argv[1], options=Options(compact_min=20_000))
number = int(db.get(1, b"0") or b"0")
while True:
    number += 1
    with db.batch() as batch:
        for key in range({KEYS}):
            batch.put(1, b"%d" % key, b"%d" % number)
        batch.put(2, b"%d" % (number % 500), bytes(number % 300))
        batch.delete(2, b"%d" % ((number + 250) % 500))
    chance = random.random()
    if chance < 0.002:
        db.compact()
    elif chance < 0.01:
        db.checkpoint()
    elif chance < 0.011:
        db.close()
        db = CrabDB.open(sys.argv[1], options=Options(compact_min=20_000))
"""


@dataclass
class Seen:
    """What a follower saw: the last batch, how often it looked, how often something had changed, how many
    writers died.
    """

    batches: int = 0
    refreshes: int = 0
    changes: int = 0
    kills: int = 0


def soak(path: Path, *, seconds: float) -> Seen:
    """Follow a writer for so long, killing and replacing it now and then. Raises AssertionError at the first
    thing that must not be.
    """
    CrabDB.open(path).close()
    follower = CrabDB.open(path, read_only=True)
    seen = Seen()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        life = min(end - time.monotonic(), random.uniform(0.4, 3))
        _follow(follower, writer, seen, until=time.monotonic() + life)
        writer.kill()
        writer.wait()
        seen.kills += 1
        follower.refresh()
        _check_against_a_fresh_handle(follower, path)
    follower.close()
    return seen


def _follow(follower: CrabDB, writer: "subprocess.Popen[bytes]", seen: Seen, *, until: float) -> None:
    while time.monotonic() < until or not seen.changes:
        assert writer.poll() is None, "the writer ended by itself"
        seen.refreshes += 1
        seen.changes += follower.refresh()
        values = {value for _, value in follower.scan(1)}
        assert len(values) <= 1, f"half a batch: {sorted(values)}"
        number = int(values.pop()) if values else 0
        assert number >= seen.batches, f"went back from {seen.batches} to {number}"
        seen.batches = number
        follower.get_many(2, follower.scan_keys(2, limit=20))


def _check_against_a_fresh_handle(follower: CrabDB, path: Path) -> None:
    with CrabDB.open(path, read_only=True) as fresh:
        for col in (1, 2):
            assert follower.scan(col) == fresh.scan(col)
        assert follower.stats().live == fresh.stats().live
    assert follower.verify().ok


def main() -> None:
    """Soak, and say what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    with tempfile.TemporaryDirectory() as directory:
        seen = soak(Path(directory) / "store", seconds=parser.parse_args().seconds)
    print(
        f"{seen.batches} batches, {seen.refreshes} refreshes, {seen.changes} of them brought something, "
        f"{seen.kills} writers killed: no half batch, and it never went back"
    )


if __name__ == "__main__":
    main()
