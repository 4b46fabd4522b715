"""Writing a session out: every message, in slices, so that memory stays bounded however long it is."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from ..answers.failures import ExitCode, Refusal
from ..answers.lookup import find_session
from ..store.backend import Backend
from ..store.messages import HistoryEntry
from ..store.session_records import SessionMeta
from .console import clean, one_line, to_json
from .messages import markdown

__all__ = ["Exported", "Format", "export_file", "export_stdout"]

_SLICE = 256


class Format(StrEnum):
    """What an export looks like."""

    JSONL = "jsonl"
    MARKDOWN = "markdown"


@dataclass(frozen=True)
class Exported:
    """What was written."""

    handle: str
    messages: int
    size: int
    """In bytes."""


async def export_stdout(store: Backend, start: str, format: Format, *, whole: bool) -> None:
    """Write a session to stdout; with `whole`, as one JSON document."""
    meta = await find_session(store, start)
    if whole and format is Format.JSONL:
        messages = [entry.message async for entry in _entries(store, meta)]
        sys.stdout.write(to_json({"handle": meta.handle, "messages": messages}) + "\n")
    elif whole:
        text = "".join([piece async for piece in _pieces(store, meta, format)])
        sys.stdout.write(to_json({"handle": meta.handle, "markdown": text}) + "\n")
    else:
        safe = clean if sys.stdout.isatty() else str
        async for piece in _pieces(store, meta, format):
            sys.stdout.write(safe(piece))


async def export_file(store: Backend, start: str, format: Format, path: Path, *, force: bool) -> Exported:
    """Write a session to `path`, which only its owner may read. Raises Refusal if it exists.

    With `force` an old file stays as it is until the new one is whole.
    """
    meta = await find_session(store, start)
    target = path.with_name(f".{path.name}.{secrets.token_hex(4)}") if force else path
    with _create(target) as file:
        try:
            async for piece in _pieces(store, meta, format):
                file.write(piece.encode())
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            target.unlink()
            raise
        size = file.tell()
    target.replace(path)
    return Exported(meta.handle, meta.message_count, size)


def _create(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except FileExistsError as error:
        raise Refusal(ExitCode.USAGE, "exists", f"{path} exists: --force replaces it") from error


async def _pieces(store: Backend, meta: SessionMeta, format: Format) -> AsyncIterator[str]:
    """The session as pieces of text: for Markdown a heading, and then a message at a time."""
    if format is Format.MARKDOWN:
        yield f"# {one_line(meta.title) or meta.handle}\n"
    async for entry in _entries(store, meta):
        yield f"\n{markdown(entry)}" if format is Format.MARKDOWN else _line(entry)


async def _entries(store: Backend, meta: SessionMeta) -> AsyncIterator[HistoryEntry]:
    for start in range(0, meta.message_count, _SLICE):
        for entry in await store.sessions.messages(
            meta.handle, start, min(start + _SLICE, meta.message_count)
        ):
            yield entry


def _line(entry: HistoryEntry) -> str:
    """The message as it was recorded, on one line; in ASCII, as every JSON that this program prints."""
    return json.dumps(entry.message, separators=(",", ":")) + "\n"
