"""`python -m crabdb`."""

import subprocess
import sys
from pathlib import Path

import pytest

from crabdb import CrabDB
from crabdb.__main__ import main


@pytest.fixture
def store(path: Path) -> Path:
    """A small store."""
    with CrabDB.open(path) as db:
        db.put(1, b"key", b"value")
        db.put(0, b"other", b"")
    return path


def test_stat_prints_the_numbers(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stat", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "keys               2" in lines
    assert "column 1           1 keys, 18 bytes" in lines


def test_dump_prints_every_record_in_order(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(store)]) == 0
    assert capsys.readouterr().out == f"0 {b'other'.hex()} \n1 {b'key'.hex()} {b'value'.hex()}\n"


def test_verify_tells_sound_from_damaged(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(store)]) == 0
    assert "sound" in capsys.readouterr().out
    data = bytearray(store.read_bytes())
    data[data.index(b"value")] ^= 1
    store.write_bytes(data)
    assert main(["verify", str(store)]) == 1
    assert "byte 115: this commit does not match its checksum" in capsys.readouterr().out
    assert main(["dump", str(store)]) == 1


def test_compact_rewrites_the_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", str(store)]) == 0
    assert "bytes before" in capsys.readouterr().out


def test_every_command_but_compact_runs_beside_a_writer(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with CrabDB.open(store):
        for command in ("stat", "verify", "dump"):
            assert main([command, str(store)]) == 0
        assert main(["compact", str(store)]) == 2
    assert "open for writing elsewhere" in capsys.readouterr().err


def test_missing_store_is_one_line_and_not_made(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crabdb", "stat", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("crabdb: ")
    assert done.stderr.count("\n") == 1
    assert not path.exists()
