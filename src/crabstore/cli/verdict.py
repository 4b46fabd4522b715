"""What the last `crabstore verify` found, kept beside the store so that `stats` can tell how old it is."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from crabdb import Verification

from ..answers.documents import Document

__all__ = ["Verdict", "read_verdict", "write_verdict"]


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a verification. `size` is how many bytes were read, `at` when, in UTC."""

    path: str
    at: str
    ok: bool
    size: int
    frames: int
    records: int
    keys: int
    torn: int
    """Bytes of a torn tail behind what was read."""
    problems: list[tuple[int, str]]
    """Where the file is damaged, and how."""

    @classmethod
    def of(cls, found: Verification, path: Path, *, at: str) -> Verdict:
        """What `found` says of the store at `path`."""
        return cls(
            path=str(path),
            at=at,
            ok=found.ok,
            size=found.size,
            frames=found.frames,
            records=found.records,
            keys=found.keys,
            torn=found.torn,
            problems=list(found.problems),
        )

    def document(self) -> Document:
        """As ``--json`` gives it."""
        members: Document = msgspec.to_builtins(self)
        problems = [{"offset": offset, "problem": problem} for offset, problem in self.problems]
        return members | {"problems": problems}


def write_verdict(verdict: Verdict) -> None:
    """Keep `verdict` beside its store, readable by its owner alone."""
    note = {"at": verdict.at, "ok": verdict.ok, "size": verdict.size}
    place = os.open(_beside(verdict.path), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(place, "wb") as file:
        file.write(msgspec.json.encode(note))


class LastVerdict(msgspec.Struct):
    """What is kept."""

    at: str
    ok: bool
    size: int


def read_verdict(path: str | Path) -> LastVerdict | None:
    """The verdict kept beside the store at `path`; None if there is none, or it cannot be read as one."""
    try:
        return msgspec.json.decode(_beside(path).read_bytes(), type=LastVerdict)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _beside(path: str | Path) -> Path:
    return Path(f"{path}.verified")
