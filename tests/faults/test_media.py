"""Real media: one that is full, one that loses power, one that moves a few bytes at a time."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.crabdb.crashable import CrashableFiles
from tests.crabdb.model import Contents, contents, crash
from tests.faults.ledger import OPTIONS, Ledger, some_script
from tests.faults.tally import EARLIER, EQUAL, FULL, REFUSED, Tally

from crabdb import CrabDB, CrabDBError, DiskFull


@contextmanager
def mounted(where: Path, *arguments: str) -> Iterator[Path]:
    """Something mounted there; skips the test where that is not allowed."""
    where.mkdir(exist_ok=True)
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command")
    done = subprocess.run([mount, *arguments, str(where)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True, capture_output=True)


def test_full_disk_refuses_writes_and_keeps_everything(tally: Tally, tmp_path: Path) -> None:
    tally.of("a full disk, also during compaction", "a tmpfs of 256 KiB, filled, and filled again")
    for seed in range(10 if FULL else 2):
        with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=256k", "none") as disk:
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(64 << 10))
            path = disk / "store"
            db = CrabDB.open(path, options=OPTIONS)
            model: Contents = {}
            chance = Random(seed)
            tally.add(REFUSED, _fill(db, model, chance))
            assert sorted(name.name for name in disk.iterdir()) == ["ballast", "store", "store.lock"]
            crash(db)
            db = CrabDB.open(path, options=OPTIONS)
            assert contents(db) == model
            ballast.unlink()
            tally.add(REFUSED, _fill(db, model, chance))
            assert contents(db) == model
            assert db.verify().ok
            # A checkpoint may find no room; the store is closed all the same.
            _attempt(db.close)
            with CrabDB.open(path, read_only=True) as reader:
                assert contents(reader) == model
            tally.add(EQUAL)


def _fill(db: CrabDB, model: Contents, chance: Random) -> int:
    """Write until there is no room, then go on trying; how often there was none."""
    refused = 0
    while refused < 100:
        place, value = (
            (chance.randrange(3), b"%d" % chance.randrange(60)),
            chance.randbytes(chance.choice([9, 5000])),
        )
        try:
            db.put(*place, value)
            model[place] = value
        except DiskFull:
            refused += 1
        assert db.get(*place) == model.get(place)
        if refused % 10 == 9:
            refused += not _attempt(chance.choice([db.compact, db.checkpoint]))
    return refused


def _attempt(call: Callable[[], object]) -> bool:
    try:
        call()
    except DiskFull:
        return False
    return True


@pytest.mark.parametrize(
    "mode", ["data=ordered", "data=writeback", "nodelalloc"] if FULL else ["data=ordered"]
)
def test_power_cut_leaves_what_was_synced_on_a_real_file_system(
    tally: Tally, tmp_path: Path, mode: str
) -> None:
    tally.of("loss of power", "an ext4 image, copied while it is in use, the copy mounted")
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(12 << 20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    chance = Random(mode)
    with mounted(tmp_path / "mounted", "-o", f"loop,commit=600,{mode}", str(image)) as disk:
        ledger = Ledger(CrashableFiles(), lambda: CrabDB.open(disk / "store", options=OPTIONS))
        for number, step in enumerate(some_script(chance, 300 if FULL else 24)):
            ledger.step(step)
            if number % 6 == 5:
                tally.add(_cut(image, tmp_path, ledger.remains()))
        assert not ledger.errors
        assert ledger.db is not None
        ledger.db.close()


def _cut(image: Path, tmp_path: Path, allowed: list[Contents]) -> str:
    """Open what the medium held at this moment."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
    with (
        mounted(tmp_path / "after", "-o", "loop", str(copy)) as disk,
        CrabDB.open(disk / "store", options=OPTIONS) as db,
    ):
        found = contents(db)
        assert found in allowed
        assert db.verify().ok
    return EQUAL if found == allowed[-1] else EARLIER


def test_reads_and_writes_of_a_few_bytes_at_a_time_change_nothing(
    tally: Tally, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally.of("short reads and short writes", "pread and pwrite that move a random part")
    chance = Random(5)
    pread, pwrite = os.pread, os.pwrite

    def short_read(fd: int, length: int, offset: int) -> bytes:
        tally.add(EQUAL)
        return pread(fd, chance.randint(1, length) if length else 0, offset)

    def short_write(fd: int, data: bytes | memoryview, offset: int) -> int:
        tally.add(EQUAL)
        return pwrite(fd, memoryview(data)[: chance.randint(1, max(len(data), 1))], offset)

    monkeypatch.setattr(os, "pread", short_read)
    monkeypatch.setattr(os, "pwrite", short_write)
    script = some_script(chance, 400 if FULL else 60)
    ledger = Ledger(CrashableFiles(), lambda: CrabDB.open(path, options=OPTIONS))
    ledger.run(script)
    assert not ledger.errors
    with CrabDB.open(path) as db:
        assert contents(db) == ledger.history[ledger.acknowledged]
        assert db.verify().ok


def test_medium_that_cannot_be_read_is_an_error_and_not_the_end_of_the_log(
    tally: Tally, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally.of("reads fail with EIO from any place on", "pread in a real file")
    with CrabDB.open(path) as db:
        for number in range(50):
            db.put(0, b"%d" % number, bytes(100))
            expected = contents(db)
        crash(db)
    size = path.stat().st_size
    pread = os.pread
    for limit in range(0, size, 7 if FULL else 301):

        def failing(fd: int, length: int, offset: int, limit: int = limit) -> bytes:
            if offset + length > limit and os.fstat(fd).st_size == size:
                raise OSError(5, "injected")
            return pread(fd, length, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", failing)
            with pytest.raises(CrabDBError) as caught:
                CrabDB.open(path)
        assert isinstance(caught.value, OSError)
        assert path.stat().st_size == size
        tally.add(REFUSED)
    with CrabDB.open(path) as db:
        assert contents(db) == expected
