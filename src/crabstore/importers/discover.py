"""Where transcripts are: the well-known places, and the files under a folder. Reads no environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import claude_code, codex
from .events import Problem

__all__ = ["Found", "Place", "find", "places"]

_SUFFIXES = (".jsonl", ".json", ".jsonl.zst")
_COMPANIONS = frozenset(["history.jsonl", "journal.jsonl", "session_index.jsonl", "sessions-index.json"])
"""Files that stand beside transcripts and are none."""
_PASSED_OVER = frozenset([".git", ".hg", ".svn", ".venv", "node_modules", "tool-results"])


@dataclass(frozen=True)
class Place:
    """A folder where a program keeps its transcripts."""

    tool: str
    path: Path
    exists: bool


@dataclass
class Found:
    """The transcript files under a path, the oldest first, and what was passed over."""

    files: list[Path] = field(default_factory=list)
    problems: list[tuple[Path, Problem]] = field(default_factory=list)


def places(
    home: Path, *, claude_config_dir: Path | None = None, codex_home: Path | None = None
) -> list[Place]:
    """The well-known places of the programs whose transcripts are read, whether they are there or not.

    `home` is the person's home; the other two are what CLAUDE_CONFIG_DIR and CODEX_HOME say, if they are set.
    """
    claude = [claude_config_dir] if claude_config_dir else [home / ".claude", home / ".config" / "claude"]
    rollouts = codex_home or home / ".codex"
    folders = [(claude_code.TOOL, folder / "projects") for folder in claude]
    folders += [(codex.TOOL, rollouts / name) for name in ("sessions", "archived_sessions")]
    return [Place(tool, path, path.is_dir()) for tool, path in folders]


def find(path: Path) -> Found:
    """The transcripts at `path`, a file or a folder. Raises FileNotFoundError, and OSError for a folder unread.

    Under a folder: files by their suffix, without those that are known to stand beside transcripts, and without
    links that lead out of it. Of a file and its packed twin the plain one counts. Files come in the order of their
    last change, so that a session comes before its forks.
    """
    found = Found()
    if not path.is_dir():
        path.stat()
        found.files.append(path)
        return found
    root = path.resolve()
    dated: list[tuple[int, Path]] = []
    for file in _walk(root, found):
        try:
            if root not in file.resolve().parents:
                found.problems.append((file, Problem("a link out of the folder is not followed", note=True)))
            elif not _has_plain_twin(file):
                dated.append((file.stat().st_mtime_ns, file))
        except OSError as error:
            found.problems.append((file, Problem(str(error))))
    found.files = [file for _, file in sorted(dated)]
    return found


def _walk(root: Path, found: Found) -> Iterator[Path]:
    def failed(error: OSError) -> None:
        found.problems.append((Path(error.filename or root), Problem(f"cannot be listed: {error.strerror}")))

    for folder, folders, names in os.walk(root, onerror=failed):
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        for name in sorted(names):
            if name.endswith(_SUFFIXES) and not _is_companion(Path(folder), name):
                yield Path(folder, name)


def _is_companion(folder: Path, name: str) -> bool:
    workflow = folder.name == "workflows" and name.endswith(".json")
    return workflow or name in _COMPANIONS or name.endswith(".meta.json")


def _has_plain_twin(file: Path) -> bool:
    return file.suffix == ".zst" and file.with_suffix("").exists()
