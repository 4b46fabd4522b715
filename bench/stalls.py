"""How long a put or a get waits for a compaction beside it, and what durability costs in fsyncs.

    python -m bench.stalls [--megabytes 300] [--keys 100000] [--directory DIR] [--json FILE]

A store of `keys` keys is overwritten until half of it is dead, and compacted while one other thread (or task) puts
and gets; the longest and the 99th percentile of their calls are told, and of the same calls with nothing beside
them, which on a shared machine say how much of the former is the machine's. The steps themselves are told in
processor time, which is not.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, sleep, thread_time
from unittest.mock import patch

from crabdb import CrabDB, Options, Step
from crabdb.files import OSFile
from crabstore.backends.crabdb import CrabBackend
from crabstore.store.batch import Column

COLUMN = 1
COMMITS = 2000
MAINTAINED = Options(maintenance="caller")

Figures = dict[str, float]


def key(number: int) -> bytes:
    """The name of a key; 80 bytes, as in a store of sessions."""
    return b"local/session/%064d/x" % number


def fill(db: CrabDB, keys: int, size: int) -> None:
    """Write every key, and half of them again."""
    value = random.randbytes(size)
    for numbers in (range(keys), range(0, keys, 2), range(1, keys, 2)):
        for start in range(0, len(numbers), 200):
            db.commit([(COLUMN, key(number), value) for number in numbers[start : start + 200]])


class Waits:
    """Times of calls, in seconds."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def time(self, call: Callable[[], object]) -> None:
        """Make a call, and note how long it took."""
        start = perf_counter()
        call()
        self.times.append(perf_counter() - start)

    def figures(self, name: str) -> Figures:
        """The longest and the 99th percentile, in milliseconds."""
        ordered = sorted(self.times)
        return {
            f"{name}: longest, ms": 1000 * ordered[-1],
            f"{name}: p99.9, ms": 1000 * ordered[int(len(ordered) * 0.999)],
            f"{name}: p99, ms": 1000 * ordered[int(len(ordered) * 0.99)],
        }


class Caller:
    """Puts and gets as fast as it can until it is told to stop."""

    def __init__(self, db: CrabDB, keys: int, size: int) -> None:
        self.db, self.keys, self.value = db, keys, random.randbytes(size)
        self.puts, self.gets = Waits(), Waits()

    def call(self) -> None:
        """One put and one get."""
        put, got = key(random.randrange(self.keys)), key(random.randrange(self.keys))
        self.puts.time(lambda: self.db.put(COLUMN, put, self.value))
        self.gets.time(lambda: self.db.get(COLUMN, got))

    def run(self, stop: Event) -> None:
        """Call until `stop` is set, a few thousand times a second."""
        while not stop.is_set():
            self.call()
            sleep(100e-6)

    def figures(self, name: str) -> Figures:
        """Of all calls until now."""
        return {**self.puts.figures(f"{name}, put"), **self.gets.figures(f"{name}, get")}


def beside(caller: Caller, work: Callable[[], object]) -> float:
    """Do work while another thread calls; how long it took, in seconds."""
    stop = Event()
    thread = Thread(target=caller.run, args=(stop,))
    thread.start()
    start = perf_counter()
    try:
        work()
    finally:
        took = perf_counter() - start
        stop.set()
        thread.join()
    return took


def longest_step(name: str, steps: Iterator[Step]) -> Figures:
    """The longest of the steps that do not wait for the medium, in milliseconds of processor time."""
    times: list[float] = []
    upcoming: Step | None = Step.BRIEF
    while upcoming is not None:
        kind, start = upcoming, thread_time()
        upcoming = next(steps, None)
        if kind is Step.BRIEF:
            times.append(thread_time() - start)
    return {f"steps of a {name}, longest, CPU ms": 1000 * max(times), f"steps of a {name}": len(times)}


def steps(path: Path, keys: int, size: int) -> Figures:
    """Nothing but the steps."""
    with CrabDB.open(path, options=MAINTAINED) as db:
        fill(db, keys, size)
        figures = longest_step("compaction", db.compaction_steps())
        fill(db, keys, size)
        return {**figures, **longest_step("checkpoint", db.checkpoint_steps())}


def threads(path: Path, keys: int, size: int) -> Figures:
    """A thread that compacts beside a thread that calls; and the same calls beside a thread that sleeps."""
    with CrabDB.open(path, options=MAINTAINED) as db:
        fill(db, keys, size)
        figures: Figures = {"file before, MB": path.stat().st_size / 1e6}
        alone = Caller(db, keys, size)
        beside(alone, lambda: Event().wait(2))
        busy = Caller(db, keys, size)
        figures["thread: compaction, s"] = beside(busy, db.compact)
        figures["file after, MB"] = path.stat().st_size / 1e6
        snapshot = Caller(db, keys, size)
        fill(db, keys, size)
        figures["thread: checkpoint, s"] = beside(snapshot, db.checkpoint)
        return {
            **figures,
            **alone.figures("nothing beside"),
            **busy.figures("compaction in a thread"),
            **snapshot.figures("checkpoint in a thread"),
        }


def commits(path: Path, keys: int, size: int) -> Figures:
    """One thread only: the commits take the steps."""
    with CrabDB.open(path, options=MAINTAINED) as db:
        fill(db, keys, size)
    with CrabDB.open(path) as db:
        caller = Caller(db, keys, size)
        while not db.stats().compactions:
            caller.call()
        return caller.figures("steps taken by commits")


async def tasks(path: Path, keys: int, size: int) -> Figures:
    """The async backend: a task puts and gets while a task compacts, and another measures the loop."""
    store = await CrabBackend.open(path)
    fill(store.db, keys, size)
    value = random.randbytes(size)
    lag, puts = Waits(), Waits()
    done = False

    async def measure() -> None:
        while not done:
            start = perf_counter()
            await asyncio.sleep(0)
            lag.times.append(perf_counter() - start)

    measuring = asyncio.create_task(measure())
    compactions = store.db.stats().compactions
    start = perf_counter()
    while store.db.stats().compactions == compactions:
        name = key(random.randrange(keys))
        began = perf_counter()
        await store.put(Column.SESSION, name, value)
        puts.times.append(perf_counter() - began)
        await asyncio.sleep(0)
    took = perf_counter() - start
    done = True
    await measuring
    await store.close()
    return {
        "task: compaction, s": took,
        **puts.figures("compaction in a task, put"),
        **lag.figures("compaction in a task, loop lag"),
    }


class CountedSyncs:
    """Counts the calls of fsync on files while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "CountedSyncs":
        real = OSFile.sync

        def counted(file: OSFile) -> None:
            self.count += 1
            real(file)

        self._patch = patch.object(OSFile, "sync", counted)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def fsyncs(path: Path) -> Figures:
    """What overwriting one key and checkpointing for nothing cost."""
    with CrabDB.open(path) as db, CountedSyncs() as counted:
        for number in range(1000):
            db.put(COLUMN, b"k", b"%d" % number * 20)
        overwriting = counted.count
        db.checkpoint()
        before = path.stat().st_size
        for _ in range(1000):
            db.checkpoint()
        return {
            "fsyncs per 1000 overwrites of a key": overwriting,
            "bytes added by 1000 idle checkpoints": path.stat().st_size - before,
        }


def shared(path: Path, writers: int) -> Figures:
    """Commits a second that are on the medium when they return."""
    with CrabDB.open(path, options=Options(sync="always")) as db, CountedSyncs() as counted:

        def write(writer: int) -> None:
            for number in range(COMMITS // writers):
                db.put(COLUMN, b"%d/%d" % (writer, number), b"v" * 100)

        start = perf_counter()
        with ThreadPoolExecutor(writers) as pool:
            for writing in [pool.submit(write, writer) for writer in range(writers)]:
                writing.result()
        took = perf_counter() - start
        return {
            f"sync=always, {writers} threads, commits/s": COMMITS / took,
            f"sync=always, {writers} threads, commits a fsync": COMMITS / counted.count,
        }


async def shared_by_tasks(path: Path, writers: int) -> Figures:
    """The same, through the backend."""
    store = await CrabBackend.open(path, options=Options(sync="always"))

    async def write(writer: int) -> None:
        for number in range(COMMITS // writers):
            await store.put(Column.SESSION, store.key(str(writer), str(number)), b"v" * 100)

    with CountedSyncs() as counted:
        start = perf_counter()
        await asyncio.gather(*(write(writer) for writer in range(writers)))
        took = perf_counter() - start
    await store.close()
    return {
        f"sync=always, {writers} tasks, commits/s": COMMITS / took,
        f"sync=always, {writers} tasks, commits a fsync": COMMITS / counted.count,
    }


def measure(directory: Path, keys: int, size: int) -> Figures:
    """Everything."""
    figures = steps(directory / "steps", keys, size)
    (directory / "steps").unlink()
    figures |= threads(directory / "threads", keys, size)
    (directory / "threads").unlink()
    figures |= commits(directory / "commits", keys, size)
    (directory / "commits").unlink()
    figures |= asyncio.run(tasks(directory / "tasks", keys, size))
    (directory / "tasks").unlink()
    figures |= fsyncs(directory / "fsyncs")
    for writers in (1, 8):
        figures |= shared(directory / f"threads-{writers}", writers)
        figures |= asyncio.run(shared_by_tasks(directory / f"tasks-{writers}", writers))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=300, help="of live data")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        size = max(options.megabytes * 1_000_000 // options.keys - 100, 0)
        figures = measure(Path(directory), options.keys, size)
    for name, figure in figures.items():
        sys.stdout.write(f"{name:55} {figure:12.3f}\n")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
