"""Real processes: killed ones, second ones, forked ones; and real files with modes, owners and links."""

import errno
import gc
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crabdb.model import contents, crash

from crabdb import AccessDenied, Closed, CrabDB, Locked, NotCrabDB, NotFound, Options, StoreFailed

WRITER = """
import sys
from crabdb import CrabDB
db = CrabDB.open(sys.argv[1])
print("open", flush=True)
for number in range(10**9):
    db.put(number % 3, b"key %d" % (number % 50), b"value %d" % number * (number % 40))
    print(number, flush=True)
    if number % 20 == 7:
        with db.batch() as batch:
            batch.put(9, b"one", b"%d" % number)
            batch.put(9, b"two", b"%d" % number)
    if number % 64 == 9:
        db.checkpoint()
    if number % 100 == 11:
        db.compact()
"""


def writer(path: Path) -> "subprocess.Popen[bytes]":
    """A process that writes for as long as it lives and says what it has written."""
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("lines", [1, 2, 13, 70, 140, 333])
def test_killed_process_loses_nothing_it_was_told_is_written(path: Path, lines: int) -> None:
    child = writer(path)
    assert child.stdout is not None
    for _ in range(lines):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    said = [int(line) for line in child.stdout.read().split()]
    child.wait()
    child.stdout.close()
    last = said[-1] if said else lines - 2
    with CrabDB.open(path, create=False) as db:
        check_writer(db, last)
        assert db.verify().ok


def check_writer(db: CrabDB, last: int) -> None:
    """The store holds every put up to the last one that was reported, and at most one more."""
    newest: dict[tuple[int, bytes], bytes] = {}
    for number in range(last + 1):
        newest[number % 3, b"key %d" % (number % 50)] = b"value %d" % number * (number % 40)
    found = contents(db)
    assert found.pop((9, b"one"), None) == found.pop((9, b"two"), None)
    following = last + 1
    more = {(following % 3, b"key %d" % (following % 50)): b"value %d" % following * (following % 40)}
    assert found in (newest, {**newest, **more})


def test_second_process_is_locked_out_until_the_first_dies(path: Path) -> None:
    child = writer(path)
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(Locked) as caught:
        CrabDB.open(path)
    assert f"process {child.pid}" in caught.value.holder
    with CrabDB.open(path, read_only=True) as beside:
        contents(beside)
    child.kill()
    child.wait()
    child.stdout.close()
    with CrabDB.open(path) as db:
        assert db.verify().ok


def test_lock_file_stays_and_is_harmless(path: Path) -> None:
    CrabDB.open(path).close()
    lock = path.with_name("store.crmem.lock")
    assert lock.exists()
    CrabDB.open(path).close()
    assert lock.exists()


def test_forked_child_is_refused_and_the_parent_keeps_its_lock(path: Path) -> None:
    db = CrabDB.open(path)
    db.put(0, b"k", b"v")
    child = os.fork()
    if child == 0:
        os._exit(child_is_refused(db, path))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(Locked):
        CrabDB.open(path)
    db.put(0, b"k", b"w")
    db.close()
    with CrabDB.open(path) as again:
        assert contents(again) == {(0, b"k"): b"w"}


def child_is_refused(db: CrabDB, path: Path) -> int:
    """What a child can do with its parent's store: 0 if nothing."""
    calls: list[Callable[[], object]] = [lambda: db.get(0, b"k"), lambda: db.put(0, b"k", b"child"), db.sync]
    for call in calls:
        try:
            call()
        except Closed:
            continue
        return 1
    db.close()
    try:
        CrabDB.open(path)
    except Locked:
        return 0
    return 2


def test_orphaned_child_does_not_keep_the_lock(path: Path) -> None:
    db = CrabDB.open(path)
    reader, holder = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(holder)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    db.close()
    CrabDB.open(path).close()
    os.close(holder)
    os.waitpid(child, 0)


def test_new_store_is_for_its_owner_only(path: Path) -> None:
    with CrabDB.open(path) as db:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o640)
        db.put(0, b"k", b"v")
        db.compact()
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_empty_file_becomes_a_store_and_keeps_its_mode(path: Path) -> None:
    path.touch(mode=0o644)
    with pytest.raises(NotFound):
        CrabDB.open(path, create=False)
    with pytest.raises(NotCrabDB):
        CrabDB.open(path, read_only=True)
    assert path.stat().st_size == 0
    CrabDB.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_symbolic_link_survives_compaction(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with CrabDB.open(link) as db:
        db.put(0, b"k", b"v")
        db.compact()
        with pytest.raises(Locked):
            CrabDB.open(path)
    assert link.is_symlink()
    with CrabDB.open(path) as db:
        assert contents(db) == {(0, b"k"): b"v"}


def test_relative_path_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with CrabDB.open("store") as db:
        monkeypatch.chdir("/")
        db.put(0, b"k", b"v")
        db.compact()
    assert (tmp_path / "store").exists()


def test_missing_store_or_directory_is_not_made_up(path: Path, tmp_path: Path) -> None:
    for create, read_only in ((False, False), (True, True)):
        with pytest.raises(NotFound):
            CrabDB.open(path, create=create, read_only=read_only)
    with pytest.raises(FileNotFoundError):
        CrabDB.open(tmp_path / "missing" / "store")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        for read_only in (True, False):
            with pytest.raises(NotCrabDB):
                CrabDB.open(tmp_path / name, read_only=read_only)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_file_is_a_typed_error(path: Path) -> None:
    CrabDB.open(path).close()
    path.chmod(0)
    with pytest.raises(AccessDenied):
        CrabDB.open(path)


def test_leftovers_of_a_killed_compaction_are_removed_and_nothing_else(path: Path, tmp_path: Path) -> None:
    CrabDB.open(path).close()
    ours = tmp_path / "store.crmem.compact-123-0123456789abcdef"
    theirs = [
        tmp_path / "store.crmem.compact-my notes",
        tmp_path / "store.tmp",
        tmp_path / "x.new-1-0123456789abcdef",
    ]
    for file in (ours, *theirs):
        file.write_bytes(b"x")
    CrabDB.open(path, read_only=True).close()
    assert ours.exists()
    CrabDB.open(path).close()
    assert not ours.exists()
    assert all(file.exists() for file in theirs)


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux lists them")
def test_no_file_stays_open(path: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(b"foreign")
    before = open_files()
    for _ in range(3):
        with CrabDB.open(path) as db:
            db.put(0, b"k", b"v")
            for _ in range(3):
                db.compact()
            assert open_files() == before + 2
            with pytest.raises(Locked):
                CrabDB.open(path)
            CrabDB.open(path, read_only=True)
        with pytest.raises(NotCrabDB):
            CrabDB.open(tmp_path / "foreign")
    assert open_files() == before


def test_store_whose_file_was_replaced_is_not_written_over(path: Path) -> None:
    db = CrabDB.open(path)
    db.put(0, b"k", b"v")
    path.rename(path.with_name("moved"))
    path.write_bytes(b"somebody else's")
    with pytest.raises(StoreFailed):
        db.compact()
    assert path.read_bytes() == b"somebody else's"
    crash(db)


def test_forgotten_handle_gives_up_its_lock(path: Path) -> None:
    CrabDB.open(path).put(0, b"k", b"v")
    with CrabDB.open(path) as db:
        assert db.get(0, b"k") == b"v"


def refuse(*_: object) -> None:
    """A call to the system for which there is no room."""
    raise OSError(errno.ENOSPC, "injected")


def overwrite(db: CrabDB) -> None:
    """Write until a compaction is due."""
    for number in range(100):
        db.put(0, b"k", b"%d" % number)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux lists them")
@pytest.mark.parametrize("call", [CrabDB.sync, overwrite])
def test_closed_store_holds_no_file_though_it_remembers_an_error(
    path: Path, call: Callable[[CrabDB], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    gc.disable()
    try:
        before = open_files()
        db = CrabDB.open(path, options=Options(compact_min=1000))
        db.put(0, b"k", b"v")
        with monkeypatch.context() as patch, suppress(StoreFailed):
            patch.setattr(os, "fsync", refuse)
            call(db)
        assert db.stats().failure or db.stats().compaction_error
        db.close()
        assert open_files() == before
    finally:
        gc.enable()
