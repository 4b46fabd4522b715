"""Real processes: killed, refused by the system or interrupted at every call, by real means."""

import os
import re
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random
from time import sleep

import pytest
from tests.crabdb.model import contents
from tests.faults import child
from tests.faults.tally import EARLIER, EQUAL, FULL, REFUSED, Tally

import crabdb
from crabdb import CrabDB

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")
CALLS = "pwrite64,fsync,ftruncate,rename,unlink,flock"


def python(*arguments: str) -> list[str]:
    """A command line that starts as little as possible."""
    return [sys.executable, "-S", *arguments]


def environment() -> dict[str, str]:
    """Where a child finds the code."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(crabdb.__file__).parents[1]}"}


def run(command: list[str], path: Path) -> "subprocess.CompletedProcess[str]":
    """Run a child on a store."""
    return subprocess.run(
        [*command, str(path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


SCRIPT = python("-m", "tests.faults.child")


@cache
def calls_of_script(directory: Path) -> dict[str, int]:
    """How often the script makes each call; skips the test where calls cannot be traced."""
    if STRACE is None:
        pytest.skip("strace is not installed; processes are killed by a timer instead")
    log = directory / "calls"
    done = run([STRACE, "-f", "-o", str(log), "-e", f"trace={CALLS}", *SCRIPT], directory / "counted")
    if done.returncode:
        pytest.skip(f"strace does not work here: {done.stderr[-200:]}")
    names = re.findall(r"^\d+ +(\w+)\(", log.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: names.count(name) for name in sorted(set(names))}


def inject(path: Path, call: str, number: int | str, what: str) -> "subprocess.CompletedProcess[str]":
    """Run the script with something happening at the Nth of one kind of call."""
    assert STRACE is not None
    options = ["-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:{what}:when={number}"]
    return run([STRACE, *options, *SCRIPT], path)


def reopened(path: Path, said: str) -> str:
    """Compare what a process left with what it said."""
    allowed = child.survivors(said.splitlines())
    with CrabDB.open(path) as db:
        found = contents(db)
        assert found in allowed
        assert db.verify().ok
    names = {name.name for name in path.parent.glob(f"{path.name}*")}
    assert names <= {path.name, f"{path.name}.lock", f"{path.name}.torn-1"}
    return EQUAL if found == allowed[-1] else EARLIER


def reported(path: Path, said: str) -> str:
    """As `reopened`; whether the process was told."""
    return f"typed error, then {reopened(path, said)}" if "failed" in said else reopened(path, said)


@pytest.fixture
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The calls of the script, counted once."""
    return calls_of_script(tmp_path_factory.getbasetemp())


def points(counted: dict[str, int], every: int) -> list[tuple[str, int]]:
    """Each call by name and number, or in a quick run some of them."""
    all_points = [(call, number) for call, times in counted.items() for number in range(1, times + 1)]
    return all_points if FULL else all_points[every // 2 :: every]


def test_process_killed_at_any_call_loses_nothing_acknowledged(
    tally: Tally, tmp_path: Path, counted: dict[str, int]
) -> None:
    tally.of("SIGKILL at every write, fsync, truncate, rename, unlink, flock", "a real process under strace")
    for call, number in points(counted, 12):
        path = tmp_path / f"{call}-{number}" / "store"
        path.parent.mkdir()
        done = inject(path, call, number, "signal=SIGKILL")
        assert done.returncode == -signal.SIGKILL
        tally.add(reopened(path, done.stdout))


@pytest.mark.parametrize("reason", ["EIO", "ENOSPC", "EINTR"] if FULL else ["EIO", "EINTR"])
def test_process_whose_call_fails_reports_it_and_loses_nothing(
    tally: Tally, tmp_path: Path, counted: dict[str, int], reason: str
) -> None:
    tally.of("a system call fails with EIO, ENOSPC, EINTR", "each call of a real process under strace")
    for call, number in points(counted, 16):
        path = tmp_path / f"{call}-{number}" / "store"
        path.parent.mkdir()
        done = inject(path, call, number, f"error={reason}")
        assert done.stderr == ""
        if reason == "EINTR" and call not in {"unlink", "rename"}:
            assert "failed" not in done.stdout  # The interpreter tries again, as it must.
        tally.add(reported(path, done.stdout))


def test_write_that_moves_no_bytes_is_an_error_and_no_endless_loop(
    tally: Tally, tmp_path: Path, counted: dict[str, int]
) -> None:
    tally.of("a write that returns 0", "each write of a real process under strace")
    for call, number in points({"pwrite64": counted["pwrite64"]}, 8):
        path = tmp_path / f"{number}" / "store"
        path.parent.mkdir()
        for times in ("", "+"):
            done = inject(path, call, f"{number}{times}", "retval=0")
            assert done.stderr == ""
            tally.add(reported(path, done.stdout))
            path = path.with_name("again")


def test_process_killed_at_any_time_loses_nothing_acknowledged(tally: Tally, tmp_path: Path) -> None:
    tally.of("SIGKILL at a random time", "a timer and a real process")
    chance = Random(1)
    for number in range(40 if FULL else 4):
        path = tmp_path / f"{number}" / "store"
        path.parent.mkdir()
        with subprocess.Popen(
            [*SCRIPT, str(path)], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            sleep(chance.uniform(0, 0.01))
            process.kill()
            said = first + process.stdout.read()
        tally.add(reopened(path, said[: said.rindex("\n") + 1]))


STORM = """
import signal, sys
from random import Random
from crabdb import CrabDB, Options, StoreFailed

def interrupt(*_):
    # The interpreter may call this late.
    if armed:
        raise KeyboardInterrupt

def attempt(db, chance, number, model):
    global armed
    place = chance.randrange(2), b"%d" % chance.randrange(20)
    new = b"%d" % number * chance.randrange(40)
    call = chance.choice([db.put] * 9 + [db.checkpoint, db.compact])
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, limit))
            call(*place, new) if call == db.put else call()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        found = db.get(*place)
        assert found in (new, model.get(place)), (found, new, model.get(place))
        if found is not None:
            model[place] = found
        return 1
    if call == db.put:
        model[place] = new
    return 0

armed = False
signal.signal(signal.SIGALRM, interrupt)
chance, model, hits, failed = Random(int(sys.argv[2])), {}, 0, 0
limit = float(sys.argv[3])
db = CrabDB.open(sys.argv[1])
for number in range(int(sys.argv[4])):
    try:
        hits += attempt(db, chance, number, model)
    except StoreFailed:
        failed += 1
        db.close()
        db = CrabDB.open(sys.argv[1])
    if number % 100 == 99:
        assert {(c, k): v for c in db.columns() for k, v in db.scan(c)} == model
        assert db.verify().ok
db.close()
with CrabDB.open(sys.argv[1]) as db:
    assert {(c, k): v for c in db.columns() for k, v in db.scan(c)} == model
    assert db.verify().ok
print(hits, failed)
"""


def test_interrupted_calls_happened_or_did_not_and_the_store_goes_on(tally: Tally, path: Path) -> None:
    tally.of("KeyboardInterrupt in the middle of calls", "setitimer and a handler that raises")
    for seed, limit in enumerate((30e-6, 100e-6, 1e-3)):
        rounds = 10_000 if FULL else 800
        store = path.with_name(f"{seed}")
        arguments = [str(store), str(seed), str(limit), str(rounds)]
        done = subprocess.run(
            python("-c", STORM, *arguments),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        hits, failed = map(int, done.stdout.split())
        tally.add(EQUAL, hits - failed)
        tally.add(REFUSED, failed)


LIMITED = """
import resource, sys
from crabdb import CrabDB, DiskFull
db = CrabDB.open(sys.argv[1])
db.put(0, b"before", b"v" * 1000)
for limit in range(1500, 4500, int(sys.argv[2])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    size = db.stats().size
    try:
        db.put(1, b"%d" % limit, b"w" * 2000)
    except DiskFull as error:
        assert db.stats().size == size and db.get(1, b"%d" % limit) is None
        print(error.errno)
db.put(0, b"after", b"")
"""


def test_limit_on_the_size_of_files_is_a_full_disk(tally: Tally, path: Path) -> None:
    tally.of("a write cut short, then EFBIG", "RLIMIT_FSIZE in a real process")
    for step in (10, 37, 101) if FULL else (101,):
        store = path.with_name(f"{step}")
        done = subprocess.run(
            python("-c", LIMITED, str(store), str(step)),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with CrabDB.open(store) as db:
            assert db.get(0, b"before") == b"v" * 1000
            assert db.get(0, b"after") == b""
            assert len(db) == 3
            assert db.verify().ok
        tally.add(REFUSED, len(done.stdout.split()))
