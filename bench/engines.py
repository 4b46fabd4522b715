"""crabdb beside sqlite3, lmdb and rocksdict, and beside the bare system calls, on the same work in one run.

    python -m bench.engines [--keys 200000] [--rounds 3] [--json FILE]

Every engine is set to the durability that crabdb has by default: what a call wrote survives the end of the
process, not the loss of power. That is WAL with synchronous NORMAL for sqlite3, no sync and no writable map for
lmdb, the write-ahead log without sync for rocksdict. All keep one ordered space of (column, key); all run in this
process, one after the other, each round in a fresh directory on the same disk, through the thinnest call that the
library allows. A figure is the median of the rounds.
"""

import argparse
import json
import os
import platform
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import cast

import lmdb
import rocksdict

from crabdb import CrabDB
from crabdb.format import FRAME_SIZE, RECORD_OVERHEAD

BATCH = 40
PAGES = 20_000
COLUMN = 1

Pairs = list[tuple[bytes, bytes]]
Figures = dict[str, float]


@dataclass
class Engine:
    """What is measured: a commit of one pair, of many; a value; the pairs under a prefix; its greatest key; what
    makes the next opening quick; and letting go, with no more work than the library insists on.
    """

    put: Callable[[bytes, bytes], None]
    batch: Callable[[Pairs], None]
    get: Callable[[bytes], bytes | None]
    scan: Callable[[bytes], Pairs]
    last_key: Callable[[bytes], bytes | None]
    checkpoint: Callable[[], object]
    close: Callable[[], None]


def after(prefix: bytes) -> bytes:
    """The end of a prefix's range; the prefixes here do not end in 0xFF."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def crabdb_engine(directory: Path) -> Engine:
    """The store that is measured here."""
    db = CrabDB.open(directory / "store")

    def batch(pairs: Pairs) -> None:
        db.commit([(COLUMN, key, value) for key, value in pairs])

    def last_key(prefix: bytes) -> bytes | None:
        found = db.scan_keys(COLUMN, prefix, limit=1, reverse=True)
        return found[0] if found else None

    def close() -> None:
        # Closing would checkpoint, but an opening without a checkpoint is measured too.
        db._log = db._writing = None
        if db._lock is not None:
            db._lock.release()

    return Engine(
        put=partial(db.put, COLUMN),
        batch=batch,
        get=partial(db.get, COLUMN),
        scan=partial(db.scan, COLUMN),
        last_key=last_key,
        checkpoint=db.checkpoint,
        close=close,
    )


SCHEMA = (
    "CREATE TABLE IF NOT EXISTS kv (col INTEGER, key BLOB, value BLOB, PRIMARY KEY (col, key)) WITHOUT ROWID"
)
INSERT = "INSERT OR REPLACE INTO kv VALUES (1, ?, ?)"
RANGE = "FROM kv WHERE col = 1 AND key >= ? AND key < ? ORDER BY key"


def sqlite_engine(directory: Path) -> Engine:
    """The standard library's database; statements are prepared once and cached by the module."""
    db = sqlite3.connect(directory / "store", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute(SCHEMA)
    run, many = db.execute, db.executemany

    def put(key: bytes, value: bytes) -> None:
        run(INSERT, (key, value))

    def batch(pairs: Pairs) -> None:
        run("BEGIN")
        many(INSERT, pairs)
        run("COMMIT")

    def get(key: bytes) -> bytes | None:
        row = run("SELECT value FROM kv WHERE col = 1 AND key = ?", (key,)).fetchone()
        return row[0] if row else None

    def scan(prefix: bytes) -> Pairs:
        return run(f"SELECT key, value {RANGE}", (prefix, after(prefix))).fetchall()

    def last_key(prefix: bytes) -> bytes | None:
        row = run(f"SELECT key {RANGE} DESC LIMIT 1", (prefix, after(prefix))).fetchone()
        return row[0] if row else None

    def checkpoint() -> None:
        run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    return Engine(put, batch, get, scan, last_key, checkpoint, db.close)


def lmdb_engine(directory: Path) -> Engine:
    """A memory-mapped copy-on-write tree."""
    env = lmdb.open(str(directory / "store"), map_size=1 << 32, sync=False, metasync=False)
    column = bytes((COLUMN,))

    def put(key: bytes, value: bytes) -> None:
        with env.begin(write=True) as transaction:
            transaction.put(column + key, value)

    def batch(pairs: Pairs) -> None:
        with env.begin(write=True) as transaction:
            for key, value in pairs:
                transaction.put(column + key, value)

    def get(key: bytes) -> bytes | None:
        with env.begin() as transaction:
            return transaction.get(column + key)

    def scan(prefix: bytes) -> Pairs:
        found = []
        start = column + prefix
        with env.begin() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(start):
                for key, value in cursor:
                    if not key.startswith(start):
                        break
                    found.append((key[1:], value))
        return found

    def last_key(prefix: bytes) -> bytes | None:
        start = column + prefix
        with env.begin() as transaction, transaction.cursor() as cursor:
            if not (cursor.prev() if cursor.set_range(after(start)) else cursor.last()):
                return None
            key: bytes = cursor.key()
            return key[1:] if key.startswith(start) else None

    return Engine(put, batch, get, scan, last_key, partial(env.sync, True), env.close)


def rocksdict_engine(directory: Path) -> Engine:
    """RocksDB, a log-structured merge tree."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    db = rocksdict.Rdict(str(directory / "store"), options)
    column = bytes((COLUMN,))

    def put(key: bytes, value: bytes) -> None:
        db[column + key] = value

    def batch(pairs: Pairs) -> None:
        staged = rocksdict.WriteBatch(raw_mode=True)
        for key, value in pairs:
            staged[column + key] = value
        db.write(staged)

    def get(key: bytes) -> bytes | None:
        value: bytes | None = db.get(column + key)
        return value

    def scan(prefix: bytes) -> Pairs:
        found: Pairs = []
        start = column + prefix
        pairs = cast("Iterator[tuple[bytes, bytes]]", db.items(from_key=start))
        for key, value in pairs:
            if not key.startswith(start):
                break
            found.append((key[1:], value))
        return found

    def last_key(prefix: bytes) -> bytes | None:
        start = column + prefix
        place = db.iter()
        place.seek_for_prev(after(start))
        key: bytes = place.key() if place.valid() else b""
        return key[1:] if key.startswith(start) else None

    return Engine(put, batch, get, scan, last_key, db.flush, db.close)


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "crabdb": crabdb_engine,
    "sqlite3": sqlite_engine,
    "lmdb": lmdb_engine,
    "rocksdict": rocksdict_engine,
}
SESSIONS_AT_A_TIME = 4
MESSAGES = 100


def pairs_for(count: int) -> Pairs:
    """Keys in the order in which a few sessions at a time are written, a hundred messages each, with values that
    make a pair about 85 bytes.
    """
    source = random.Random(1)
    pairs: Pairs = []
    while len(pairs) < count:
        handles = [b"%016x" % source.getrandbits(64) for _ in range(SESSIONS_AT_A_TIME)]
        pairs += [
            (b"local/session/%s/msg/%012d" % (handle, number), source.randbytes(38))
            for number in range(MESSAGES)
            for handle in handles
        ]
    return pairs[:count]


def timed(work: Callable[[], object], count: int) -> float:
    """Microseconds per piece of work."""
    start = perf_counter()
    work()
    return (perf_counter() - start) / count * 1e6


def chunks(pairs: Pairs) -> Iterator[Pairs]:
    """The pairs in batches."""
    for start in range(0, len(pairs), BATCH):
        yield pairs[start : start + BATCH]


def measure(engine: Callable[[Path], Engine], pairs: Pairs, directory: Path) -> Figures:
    """One round of one engine."""
    single = directory / "single"
    single.mkdir()
    store = engine(single)
    figures: Figures = {
        "put": timed(lambda: puts(store, pairs), len(pairs)),
        "get": timed(lambda: gets(store, shuffled_keys(pairs)), len(pairs)),
        "scan, an entry": timed(lambda: scans(store, pairs), len(pairs)),
        "put and last key": timed(lambda: appends(store), PAGES),
    }
    store.close()
    figures["open, no checkpoint, ms"] = opening(engine, single)
    store = engine(single)
    store.checkpoint()
    store.close()
    figures["open, checkpoint, ms"] = opening(engine, single)
    figures["size, MiB"] = size_of(single) / (1 << 20)
    figures["batch, a record"] = batched(engine, pairs, directory)
    return figures


def shuffled_keys(pairs: Pairs) -> list[bytes]:
    """All keys in an order that has nothing to do with how they were written."""
    keys = [key for key, _ in pairs]
    random.Random(2).shuffle(keys)
    return keys


def puts(store: Engine, pairs: Pairs) -> None:
    """One commit a pair."""
    put = store.put
    for key, value in pairs:
        put(key, value)


def gets(store: Engine, keys: list[bytes]) -> None:
    """One value a call."""
    get = store.get
    for key in keys:
        get(key)


def scans(store: Engine, pairs: Pairs) -> None:
    """Every session by its prefix."""
    for prefix in sorted({key[:31] for key, _ in pairs}):
        store.scan(prefix)


def appends(store: Engine) -> None:
    """What appending to a session does: find the last key, put the next."""
    prefix = b"local/session/0123456789abcdef/msg/"
    for number in range(PAGES):
        store.put(prefix + b"%012d" % number, b"v" * 42)
        assert store.last_key(prefix) == prefix + b"%012d" % number


def batched(engine: Callable[[Path], Engine], pairs: Pairs, directory: Path) -> float:
    """Microseconds a record, in batches, into an empty store."""
    (directory / "batched").mkdir()
    store = engine(directory / "batched")
    batches = list(chunks(pairs))
    figure = timed(lambda: commits(store, batches), len(pairs))
    store.close()
    return figure


def commits(store: Engine, batches: list[Pairs]) -> None:
    """One commit a batch."""
    for batch in batches:
        store.batch(batch)


def opening(engine: Callable[[Path], Engine], directory: Path) -> float:
    """Milliseconds to open and read one key."""
    start = perf_counter()
    store = engine(directory)
    store.get(b"local/session/0123456789abcdef/msg/000000000000")
    figure = (perf_counter() - start) * 1e3
    store.close()
    return figure


def size_of(directory: Path) -> int:
    """Bytes of everything in a directory, as far as they occupy the disk."""
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())


def bare(pairs: Pairs, directory: Path) -> Figures:
    """The system calls alone: as many bytes written as crabdb writes, a record read at a time in random order."""
    data = [bytes(FRAME_SIZE + RECORD_OVERHEAD + len(key)) + value for key, value in pairs]
    length = len(data[0])
    offsets = [length * number for number in range(len(data))]
    fd = os.open(directory / "bare", os.O_RDWR | os.O_CREAT)

    def write() -> None:
        for record, offset in zip(data, offsets, strict=True):
            os.pwrite(fd, record, offset)

    def read() -> None:
        for offset in offsets:
            os.pread(fd, length - FRAME_SIZE, offset)

    figures = {"put": timed(write, len(data))}
    random.Random(2).shuffle(offsets)
    figures["get"] = timed(read, len(data))
    os.close(fd)
    return figures


def run(count: int, rounds: int) -> dict[str, Figures]:
    """The medians of all rounds, per engine; the bare calls first."""
    pairs = pairs_for(count)
    work: dict[str, Callable[[Pairs, Path], Figures]] = {"bare calls": bare}
    work |= {name: partial(measure, engine) for name, engine in ENGINES.items()}
    found: dict[str, list[Figures]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, figures_of in work.items():
            directory = Path(tempfile.mkdtemp(prefix="bench-"))
            found[name].append(figures_of(pairs, directory))
            shutil.rmtree(directory)
    return {
        name: {key: median(figures[key] for figures in each_round) for key in each_round[0]}
        for name, each_round in found.items()
    }


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def machine() -> dict[str, str]:
    """Where this ran."""
    return {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "engines": f"sqlite {sqlite3.sqlite_version}, lmdb {'.'.join(map(str, lmdb.version()))}, "
        f"rocksdict {version('rocksdict')}",
    }


def table(found: dict[str, Figures]) -> str:
    """The figures as text, in microseconds where no unit stands, with how many times crabdb's each is."""
    rows = list(found["crabdb"])
    lines = [f"{'':26}" + "".join(f"{name:>20}" for name in found)]
    for row in rows:
        ours = found["crabdb"][row]
        cells = [
            f"{figures[row]:11.2f} ({figures[row] / ours:5.2f}x)" if row in figures else ""
            for figures in found.values()
        ]
        lines.append(f"{row:26}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the figures to a file if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    facts = machine()
    for name, fact in facts.items():
        print(f"{name}: {fact}")
    found = run(arguments.keys, arguments.rounds)
    print(
        f"{arguments.keys} keys, median of {arguments.rounds} rounds; microseconds unless a unit is given\n"
    )
    print(table(found))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "figures": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
