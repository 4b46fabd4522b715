"""`python -m crabdb`: what each command prints and ends with."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.crabdb.model import contents, crash

from crabdb import CrabDB
from crabdb.__main__ import main


@pytest.fixture
def store(path: Path) -> Path:
    """A small store."""
    with CrabDB.open(path) as db:
        db.put(1, b"key", b"value")
        db.put(0, b"other", b"")
    return path


def damage(store: Path, words: bytes = b"value") -> None:
    """Flip a bit where these words stand."""
    data = bytearray(store.read_bytes())
    data[data.index(words)] ^= 1
    store.write_bytes(data)


def test_stat_prints_the_numbers(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stat", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "keys               2" in lines
    assert "column 1           1 keys, 18 bytes" in lines


def test_dump_prints_every_record_in_order(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(store)]) == 0
    assert capsys.readouterr().out == f"0 {b'other'.hex()} \n1 {b'key'.hex()} {b'value'.hex()}\n"


def test_verify_tells_sound_from_torn_from_damaged_from_foreign(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(store)]) == 0
    assert "sound" in capsys.readouterr().out
    whole = store.read_bytes()
    store.write_bytes(whole + b"#" * 77)
    assert main(["verify", str(store)]) == 8
    assert "77 bytes are the torn tail" in capsys.readouterr().out
    store.write_bytes(whole)
    damage(store)
    assert main(["verify", str(store)]) == 5
    assert "byte 115: this commit does not match its checksum" in capsys.readouterr().out
    assert main(["dump", str(store)]) == 5
    store.write_bytes(b"something else")
    assert main(["verify", str(store)]) == 9
    assert store.read_bytes() == b"something else"


def test_commit_that_came_during_a_verification_is_no_torn_tail(path: Path) -> None:
    with CrabDB.open(path) as db, CrabDB.open(path, read_only=True) as reader:
        db.put(0, b"k", b"v")
        assert reader.verify().torn == 0
        assert reader.get(0, b"k") is None


def test_compact_rewrites_the_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", str(store)]) == 0
    assert "bytes before" in capsys.readouterr().out


def test_compact_can_erase_what_was_saved_beside_the_store(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = store.with_name("store.crmem.torn-1")
    saved.write_bytes(b"an old secret")
    assert main(["compact", str(store)]) == 0
    assert saved.exists()
    assert main(["compact", str(store), "--erase"]) == 0
    assert f"removed {saved}" in capsys.readouterr().out
    assert not saved.exists()


def test_every_command_that_only_reads_runs_beside_a_writer(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with CrabDB.open(store):
        for command in ("stat", "verify", "dump", "repair"):
            assert main([command, str(store)]) == 0
        assert main(["backup", str(store), str(store.with_name("copy"))]) == 0
        assert main(["compact", str(store)]) == 4
        assert main(["repair", str(store), "--swap"]) == 4
    assert "open for writing elsewhere" in capsys.readouterr().err


def test_backup_copies_a_store_and_writes_over_nothing(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = store.with_name("copy")
    assert main(["backup", str(store), str(copy)]) == 0
    assert "bytes copied" in capsys.readouterr().out
    before = copy.read_bytes()
    assert main(["backup", str(store), str(copy)]) == 2
    assert copy.read_bytes() == before
    with CrabDB.open(copy, create=False) as db:
        assert contents(db) == {(1, b"key"): b"value", (0, b"other"): b""}


def test_repair_first_tells_then_writes_and_swaps_only_when_told(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = CrabDB.open(path)
    for number in range(3):
        db.put(0, b"k%d" % number, b"value %d" % number)
    db.sync()
    db.put(0, b"more", b"")
    crash(db)
    damage(path, b"value 1")
    damaged = path.read_bytes()
    assert main(["repair", str(path)]) == 5
    told = capsys.readouterr().out
    assert "lost: " in told and "nothing was written" in told
    assert f"suspect: column 0 key {b'k0'.hex()}" in told
    assert main(["repair", str(path), "--to", str(path.with_name("new"))]) == 1
    assert path.read_bytes() == damaged
    assert main(["repair", str(path), "--swap"]) == 1
    assert path.with_name("store.crmem.damaged-1").read_bytes() == damaged
    assert main(["verify", str(path)]) == 0
    for name in ("new", "store.crmem"):
        with CrabDB.open(path.with_name(name), create=False) as db:
            assert set(contents(db)) == {(0, b"k0"), (0, b"k2"), (0, b"more")}


def test_missing_store_is_one_line_and_not_made(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crabdb", "stat", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith("crabdb: ")
    assert done.stderr.count("\n") == 1
    assert not path.exists()
