"""os: files below a root, and commands where the host grants them too.

Declared, with the `root` that bounds it; without one nothing is registered. `read`, `write`, `edit` and `list`
cannot leave the root (see `rooted`). `exec` can: a program is bounded by its user's rights and by nothing else, so
it is granted apart, by `system` in the declaration. To bound programs is the work of a container or another user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from ...store.agents import AgentConfig
from ...store.errors import InvalidArgument
from ...store.messages import ToolCall
from ..finishing import finished
from ..tools import Tool, ToolOutput
from .base import Context, Harness
from .commands import CommandLimits, Finished, run
from .rooted import Entry, Root
from .toolbox import Arguments, Function, Refused, Toolbox

__all__ = ["OsHarness"]

T = TypeVar("T")

_SHOWN = 64 * 1024
"""Bytes of a file in one answer: what a model reads at once with profit."""
_SCANNED = 256 * 1024 * 1024
"""Bytes that are passed over to reach a line: half a second."""
_EDITED = 8 * 1024 * 1024
"""Bytes of a file that can be edited: it is read whole."""
_LISTED = 1000
"""Names in one answer."""
_PIECE = 64 * 1024

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

FilePath = Annotated[str, Meta(min_length=1, max_length=4096, description="Relative to the root.")]


class _Read(Arguments):
    path: FilePath
    start: Annotated[int, Meta(ge=1, description="The first line, counted from 1.")] = 1
    lines: Annotated[int, Meta(ge=1, le=10_000, description="How many lines at most.")] = 2000


class _Write(Arguments):
    path: FilePath
    content: Annotated[str, Meta(description="All of the file.")]


class _Edit(Arguments):
    path: FilePath
    old: Annotated[str, Meta(min_length=1, description="The text to replace, exactly as the file has it.")]
    new: Annotated[str, Meta(description="What to put there.")]
    every: Annotated[bool, Meta(description="Replace it everywhere; otherwise it must stand there once.")] = (
        False
    )


class _List(Arguments):
    path: FilePath = "."


class _Exec(Arguments):
    command: Annotated[
        str, Meta(min_length=1, max_length=100_000, description="For /bin/sh, run in the root.")
    ]
    timeout: Annotated[float, Meta(gt=0, description="Seconds until it is killed.")] | None = None


class OsHarness(Harness):
    """Files and commands of the machine. Holds no state; `environment` is all that commands are given of it."""

    name = "os"

    def __init__(
        self, *, limits: CommandLimits | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._limits = limits or CommandLimits()
        self._environment = _ENVIRONMENT | dict(environment or {})
        files: list[Function[Any]] = [
            Function("read", "Read lines of a text file.", _Read, self._read),
            Function("write", "Create a file, or replace all of it; folders are made.", _Write, self._write),
            Function("edit", "Replace text in a file.", _Edit, self._edit),
            Function("list", "List a folder.", _List, self._list),
        ]
        command = Function("exec", "Run a shell command; both outputs are returned.", _Exec, self._exec)
        self._files = Toolbox(*files)
        self._everything = Toolbox(*files, command)

    async def on_resolve_agent(self, agent: AgentConfig) -> None:
        declared = self.declaration(agent)
        if declared and declared.root and not Path(declared.root).is_absolute():
            raise InvalidArgument("root of the harness os", declared.root, "must be an absolute path")

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return self._granted(agent).tools

    def usage(self, agent: AgentConfig) -> str:
        return (
            "Paths of files are relative to your root folder, which you cannot leave; '.' is the root itself."
        )

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        return await self._granted(context.agent).answer(context, call)

    def _granted(self, agent: AgentConfig) -> Toolbox:
        declared = self.declaration(agent)
        if declared is None or not declared.root:
            return Toolbox()
        return self._everything if declared.system else self._files

    def _root(self, context: Context) -> Root:
        declared = self.declaration(context.agent)
        if declared is None or not declared.root:
            raise Refused("there is no root folder")
        return Root(Path(declared.root))

    async def _read(self, context: Context, asked: _Read) -> str:
        return await _apart(lambda: _read(self._root(context), asked))

    async def _write(self, context: Context, asked: _Write) -> str:
        data = _encoded(asked.content)
        new = await _apart(lambda: self._root(context).write(asked.path, data))
        return f"{'created' if new else 'replaced'} {asked.path} ({len(data)} bytes)"

    async def _edit(self, context: Context, asked: _Edit) -> str:
        times = await _apart(lambda: _edit(self._root(context), asked))
        return f"replaced {times} {'place' if times == 1 else 'places'} in {asked.path}"

    async def _list(self, context: Context, asked: _List) -> str:
        entries = await _apart(lambda: self._root(context).entries(asked.path))
        more = [f"[{len(entries) - _LISTED} more]"] if len(entries) > _LISTED else []
        return "\n".join([*(_line(entry) for entry in entries[:_LISTED]), *more]) or "[empty folder]"

    async def _exec(self, context: Context, asked: _Exec) -> str:
        root = self._root(context).path
        seconds = min(asked.timeout or self._limits.seconds, self._limits.most_seconds)
        environment = {"HOME": str(root), **self._environment}
        try:
            ended = await run(
                asked.command, cwd=str(root), environment=environment, seconds=seconds, limits=self._limits
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in the command
            raise Refused(
                f"the command cannot be started: {getattr(error, 'strerror', None) or error}"
            ) from error
        return _told(ended)


async def _apart(work: Callable[[], T]) -> T:
    """The result of work that blocks. A run that is cancelled waits for it, so nothing is written later."""
    return await finished(asyncio.to_thread(work))


def _read(root: Root, asked: _Read) -> str:
    with root.reading(asked.path) as file:
        data, more = _lines(file, asked)
    if b"\0" in data:
        raise Refused(f"{asked.path!r} is no text file")
    # Cut where a line ends; what a line is longer than all that is shown is not shown at all.
    shown = data[: data.rfind(b"\n", 0, _SHOWN) + 1 or _SHOWN] if more else data
    text = shown.decode(errors="replace")
    if more:
        last = asked.start + max(1, shown.count(b"\n")) - 1
        return f"{text}\n[up to line {last}; there is more: read on with start={last + 1}]"
    return text or ("[empty file]" if asked.start == 1 else f"[the file ends before line {asked.start}]")


def _lines(file: BufferedReader, asked: _Read) -> tuple[bytes, bool]:
    """The lines that were asked for, or more of them than are shown; and whether there are others."""
    found, number, passed = bytearray(), 1, 0
    while piece := file.readline(_PIECE):
        passed += len(piece)
        if passed > _SCANNED:
            raise Refused(f"{asked.path!r}: line {asked.start} stands too far in")
        if number >= asked.start:
            found += piece
        number += piece.endswith(b"\n")
        if len(found) > _SHOWN:
            return bytes(found), True
        if number >= asked.start + asked.lines:
            return bytes(found), bool(file.peek(1))
    return bytes(found), False


def _edit(root: Root, asked: _Edit) -> int:
    """Replace text in a file; in how many places. Raises Refused if it is not there, or not once."""
    old, new = _encoded(asked.old), _encoded(asked.new)
    data, version = root.whole(asked.path, _EDITED)
    times = data.count(old)
    if not times:
        raise Refused(
            f"{asked.path!r} does not hold that text: read it again, it must match to the last blank"
        )
    if times > 1 and not asked.every:
        raise Refused(f"{asked.path!r} holds that text {times} times: give more of it, or say every=true")
    root.write(asked.path, data.replace(old, new), over=version)
    return times


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused("the text holds a lone surrogate, which no file can") from error


def _line(entry: Entry) -> str:
    # A name may hold anything but a slash: line breaks and bytes that are no text are shown escaped.
    plain = entry.name.isprintable() and entry.name.strip() == entry.name
    name = entry.name if plain else ascii(entry.name)
    return {"folder": f"{name}/", "file": f"{name} ({entry.size} bytes)"}.get(
        entry.kind, f"{name} [{entry.kind}]"
    )


def _told(ended: Finished) -> str:
    if ended.why:
        raise Refused(f"{ended.output}\n[{ended.why}]")
    code = ended.code
    how = f"exit {code}" if code is not None and code >= 0 else f"ended by signal {-(code or 0)}"
    return f"{ended.output}\n[{how}]" if ended.output else f"[{how}]"
