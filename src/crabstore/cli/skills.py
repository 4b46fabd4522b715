"""`crabstore skills`: SKILL.md files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ..answers.documents import Document
from ..answers.failures import ExitCode
from ..store.backend import Backend
from ..store.errors import NotFound
from ..store.skills import InvalidSkill, SkillSummary
from .call import Call, command, group
from .console import Column, Screen, one_line

__all__ = ["app"]

app = group("List, show, add and remove skills.")

_FILE = "SKILL.md"

Name = Annotated[str, typer.Argument(metavar="NAME", help="A skill's name.")]


@dataclass
class _Added:
    skills: list[SkillSummary] = field(default_factory=list)
    invalid: list[tuple[Path, str]] = field(default_factory=list)
    """Files that were left out, and why."""


@command(app, "list")
def list_skills(call: Call) -> ExitCode | None:
    """List skills by name."""
    skills = call.read(lambda store: store.skills.summaries())
    rows = [(skill.name, skill.description) for skill in skills]
    columns = [Column("name"), Column("description", flexible=True)]
    document = {"skills": [_document(skill) for skill in skills]}
    call.answer(document, lambda screen: screen.table(columns, rows))
    return None


@command(app, "show")
def show(call: Call, name: Name) -> ExitCode | None:
    """Show a SKILL.md."""
    body = call.read(lambda store: _body(store, name))
    call.answer({"skill": {"name": name, "body": body}}, lambda screen: screen.text(body))
    return None


@command(app, "add")
def add(
    call: Call,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=f"{_FILE} files, or their folders.")],
) -> ExitCode | None:
    """Add skills, replacing those of the same name; an invalid file is left out, and the reason told."""
    added = call.write(lambda store: _add(store, files), create=True)
    invalid = [{"path": str(path), "reason": reason} for path, reason in added.invalid]
    document = {"added": [_document(skill) for skill in added.skills], "invalid": invalid}
    call.answer(document, lambda screen: _draw_added(screen, added))
    return ExitCode.PARTIAL if invalid else None


@command(app, "remove")
def remove(call: Call, name: Name) -> ExitCode | None:
    """Remove a skill."""
    call.write(lambda store: _remove(store, name))
    call.answer({"removed": {"name": name}}, lambda screen: screen.show(f"removed {one_line(name)}"))
    return None


async def _body(store: Backend, name: str) -> str:
    body = await store.skills.get(name)
    if body is None:
        raise NotFound("skill", name)
    return body


async def _add(store: Backend, files: list[Path]) -> _Added:
    added = _Added()
    for file in files:
        path = file / _FILE if file.is_dir() else file
        try:
            body = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            added.invalid.append((path, "is not UTF-8 text"))
        except OSError as error:
            added.invalid.append((path, error.strerror or str(error)))
        else:
            await _put(store, path, body, added)
    return added


async def _put(store: Backend, path: Path, body: str, added: _Added) -> None:
    try:
        added.skills.append(await store.skills.put(body))
    except InvalidSkill as error:
        added.invalid.append((path, error.reason))


async def _remove(store: Backend, name: str) -> None:
    if not await store.skills.delete(name):
        raise NotFound("skill", name)


def _document(skill: SkillSummary) -> Document:
    return {"name": skill.name, "description": skill.description}


def _draw_added(screen: Screen, added: _Added) -> None:
    for skill in added.skills:
        screen.show(f"added {one_line(skill.name)}")
    for path, reason in added.invalid:
        screen.show(f"left out {one_line(str(path))}: {one_line(reason)}")
