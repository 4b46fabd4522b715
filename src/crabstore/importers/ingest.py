"""Files into a store: each read once, in bounded memory, so that a bad one stops no other and doing it again adds
nothing.

A file that has not changed since it was read to its end is not opened. One that has is read whole again: what is
there already is known by its ids. That costs time and never rows; where reading stopped in a file is not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ..store.backend import Backend
from ..store.errors import BadRecord, InvalidArgument, NotFound
from ..store.messages import HistoryEntry
from ..store.records import Json, encode, rfc3339
from . import claude_code, codex, messages_jsonl
from .detect import Detected, Refused, detect
from .discover import find
from .events import Closed, Event, Message, Problem, Session
from .report import FileReport, Report
from .session_target import Target
from .sources import Unreadable, open_whole, opener, session_titles, sidecar

__all__ = ["IMPORTER", "ingest", "ingest_file"]

IMPORTER = 1
"""Raised when the same file would become other entries: then files that have not changed are read again."""

_BATCH_ENTRIES = 256
_BATCH_BYTES = 1 << 20
"""What is held back before it is written, of all sessions of a file together."""

_BREATH = 16
"""Events after which others on the event loop have their turn."""

_FILE = "file"
"""Stands for the tool in the source rows that say how far a file was read; these rows name no session."""


async def ingest(
    store: Backend,
    paths: Iterable[Path],
    *,
    again: bool = False,
    progress: Callable[[FileReport], None] | None = None,
) -> Report:
    """Import every transcript at `paths`, files or folders, and say what became of each.

    `again` reads files that have not changed, too. `progress` is called after each file. What cannot be read is
    in the report; only what the store's own engine raises (a full disk, a lost lock) ends the import, and then
    running it again continues it.
    """
    report = Report()
    for path in paths:
        async for file in _ingest_under(store, path, again=again):
            report.files.append(file)
            if progress:
                progress(file)
    return report


async def _ingest_under(store: Backend, path: Path, *, again: bool) -> AsyncIterator[FileReport]:
    try:
        found = find(path)
    except OSError as error:
        yield _unreadable(path, str(error))
        return
    for passed, problem in found.problems:
        report = FileReport(path=_text(passed), status="unreadable")
        report.add(problem)
        yield report
    for file in found.files:
        yield await ingest_file(store, file, again=again)
    if not found.files:
        report = FileReport(path=_text(path))
        report.failed("empty", "no transcript files in this folder")
        yield report


async def ingest_file(store: Backend, path: Path, *, again: bool = False) -> FileReport:
    """Import one file. Never raises for what stands in it; see `ingest`."""
    name = _text(path.absolute())
    try:
        status = path.stat()
    except OSError as error:
        return _unreadable(path, str(error))
    cursor: dict[str, Json] = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "importer": IMPORTER}
    row = await store.sessions.find_source(_FILE, name)
    if row is not None and row.cursor == cursor and not again:
        return FileReport(path=name, status="unchanged", bytes=status.st_size)
    report = FileReport(path=name, bytes=status.st_size)
    modified = rfc3339(datetime.fromtimestamp(status.st_mtime, UTC))
    if await _read(store, path, report, modified):
        await store.sessions.set_source(_FILE, name, "", cursor)
    return report


async def _read(store: Backend, path: Path, report: FileReport, modified: str) -> bool:
    """Whether the file was read to its end, and everything in it that can be stored is."""
    if report.bytes == 0:
        report.failed("empty", "the file is empty")
        return True
    try:
        with _reading():
            detected = detect(opener(path))
        report.tool = detected.tool
        whole = await _Ingest(store, report, modified).run(_events(path, detected, modified))
    except Refused as error:
        report.failed("refused", str(error))
        return False
    except Unreadable as error:
        report.failed("unreadable", error.reason)
        return False
    if not (report.sessions or report.skipped or report.lost or report.forgotten):
        report.failed("empty", f"a {detected.tool} file without messages")
    return whole


@contextmanager
def _reading() -> Iterator[None]:
    """Tells what a transcript's own file raises from what the store's does, which is no business of a report."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise Unreadable(f"reading stopped: {error}") from error


def _events(path: Path, detected: Detected, modified: str) -> Iterator[Event]:
    """What stands in the file. Raises Unreadable."""
    with _reading():
        yield from _parsed(path, detected, modified)


def _parsed(path: Path, detected: Detected, modified: str) -> Iterator[Event]:
    place = Path(_text(path.absolute()))
    if detected.tool == codex.TOOL:
        titles = session_titles(path)
        if detected.document:
            yield from codex.read_document(open_whole(path), place, titles)
        else:
            yield from codex.read(opener(path), place, titles)
    elif detected.document:
        yield from messages_jsonl.read_document(open_whole(path), place, modified)
    else:
        read = (
            partial(claude_code.read, sidecar=sidecar(path))
            if detected.tool == claude_code.TOOL
            else partial(messages_jsonl.read, modified=modified)
        )
        with opener(path)() as stream:
            yield from read(stream, place)


@dataclass
class _Ingest:
    """The events of one file into a store; holds one batch of entries."""

    store: Backend
    report: FileReport
    modified: str
    _targets: dict[str, Target] = field(default_factory=dict)
    _batch: dict[str, dict[str, HistoryEntry]] = field(default_factory=dict)
    _entries: int = 0
    _bytes: int = 0
    _whole: bool = True

    async def run(self, events: Iterator[Event]) -> bool:
        """Whether everything could be stored."""
        try:
            for number, event in enumerate(events):
                await self._take(event)
                if number % _BREATH == 0:
                    await asyncio.sleep(0)
        except Unreadable:
            await self._flush()
            raise
        await self._flush()
        return self._whole

    async def _take(self, event: Event) -> None:
        if isinstance(event, Message):
            await self._message(event)
        elif isinstance(event, Session):
            self._session(event)
        elif isinstance(event, Closed):
            await self._close(event)
        else:
            self.report.add(event)

    def _session(self, facts: Session) -> None:
        target = self._targets.get(facts.original_id)
        if target is not None:
            target.learn(facts)
            return
        self._targets[facts.original_id] = Target(
            self.store, self.report.tool, self.report.path, facts, self.modified
        )

    async def _message(self, message: Message) -> None:
        try:
            size = len(encode(message.entry))
        except (ValueError, RecursionError) as error:
            self._lost(message.original_id, f"message {message.entry.id} cannot be stored: {error}")
            return
        # An entry that has grown within the batch replaces itself, in its place.
        self._batch.setdefault(message.original_id, {})[message.entry.id] = message.entry
        self._entries += 1
        self._bytes += size
        if self._entries >= _BATCH_ENTRIES or self._bytes >= _BATCH_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        batch, self._batch = self._batch, {}
        self._entries = self._bytes = 0
        for original_id, entries in batch.items():
            await self._append(original_id, list(entries.values()))
            await asyncio.sleep(0)

    async def _append(self, original_id: str, entries: list[HistoryEntry]) -> None:
        try:
            done = await self._targets[original_id].append(entries)
        except (BadRecord, InvalidArgument, NotFound) as error:
            self._lost(original_id, str(error))
            return
        self.report.added += done.added
        self.report.replaced += done.replaced
        self.report.skipped += done.skipped

    async def _close(self, closed: Closed) -> None:
        await self._flush()
        target = self._targets.pop(closed.original_id)
        self.report.forgotten += target.forgotten
        self.report.sessions += target.meta is not None and not target.forgotten
        self.report.new_sessions += target.new
        try:
            await target.close(closed.inactive)
        except (BadRecord, InvalidArgument, NotFound) as error:
            self._lost(closed.original_id, str(error))

    def _lost(self, original_id: str, reason: str) -> None:
        self._whole = False
        self.report.add(Problem(f"session {original_id}: {reason}"))


def _unreadable(path: Path, reason: str) -> FileReport:
    report = FileReport(path=_text(path))
    report.failed("unreadable", reason)
    return report


def _text(path: Path) -> str:
    """The path as text that can be stored, whatever bytes its names have."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")
