"""Which transcript format a file holds, by its content. Reads a bounded part; never guesses from a name.

Formats that are known but not read yet are refused by their name, everything else by what was seen: an import
never ends with nothing imported and nothing said.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NoReturn, TypeAlias

from ..store.messages.wire import content_list, string
from ..store.records import Json
from . import claude_code, codex, messages_jsonl
from .lines import MAX_RECORD, JsonLine, parse, read_lines

__all__ = ["Detected", "Refused", "detect"]

_HEAD = 4 << 20
"""Bytes in which a document shows what it is."""

_MAX_LINES = 500
"""Objects that are looked at; a file was seen to open with a hundred lines that do not say what it is."""

Tool: TypeAlias = Literal["claude-code", "codex", "messages"]


@dataclass(frozen=True)
class Detected:
    """A format that is read; `document` where the file is one JSON value instead of lines."""

    tool: Tool
    document: bool = False


class Refused(Exception):
    """The file holds nothing that this version imports. `format` is its name, "" if it is none that is known."""

    def __init__(self, format: str, seen: str) -> None:
        what = (
            f"{format}: recognised, but not supported yet"
            if format
            else f"no known transcript format: {seen}"
        )
        super().__init__(what)
        self.format = format
        self.seen = seen


_CHATGPT = "ChatGPT data export"
_CLAUDE_AI = "Claude.ai data export"
_GEMINI = "Gemini CLI session"
_SHAREGPT = "ShareGPT conversations"
_COMPANIONS = (
    ({"display", "timestamp"}, "Claude Code prompt history"),
    ({"session_id", "ts", "text"}, "Codex prompt history"),
    ({"id", "thread_name", "updated_at"}, "Codex session index"),
)
_EXEC_OUTPUT = "output of `codex exec --json`"
_EXEC = re.compile(r"(thread|turn|item)\.\w+")

_CLAUDE_OWN = frozenset(
    "file-history-snapshot file-history-delta queue-operation custom-title ai-title agent-name agent-setting "
    "permission-mode last-prompt pr-link bridge-session atis-latch".split()
)
_CLAUDE_TYPES = frozenset(["user", "assistant", "system", "attachment", "progress", "summary", "mode"])
_CLAUDE_MEMBERS = frozenset(["uuid", "sessionId", "leafUuid"])
_ITEMS = frozenset(["reasoning", "function_call", "function_call_output", "local_shell_call"])

_MAGIC = (
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\x1f\x8b", "a gzip file; unpack it first"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"%PDF", "a PDF"),
    (b"CRMEM\0", "a crabdb store"),
)
_MEMBERS = re.compile(rb'"((?:[^"\\]|\\.){1,64})"\s*:')


def detect(open_stream: Callable[[], io.BufferedReader]) -> Detected:
    """The format of the file that `open_stream` opens from its start. Raises Refused, or OSError."""
    with open_stream() as stream:
        head = _head(stream)
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise Refused("", name)
    document = _document(head)
    if document is not None:
        return _detected(document, document=True) or _refused(head)
    with open_stream() as stream:
        return _detected(_lines(stream), document=False) or _refused(head)


def _detected(values: Iterable[dict[str, Json]], *, document: bool) -> Detected | None:
    for value in values:
        _refuse(value)
        if {"session", "items"} <= value.keys():
            return Detected(codex.TOOL, document=True)
        tool = (_document_tool if document else _tool)(value)
        if tool:
            return Detected(tool, document)
    return None


# -- what stands at the head --


def _head(stream: io.BufferedReader) -> bytes:
    """The first bytes, as far as they can be read. Raises OSError if none can."""
    pieces: list[bytes] = []
    try:
        while (size := sum(map(len, pieces))) < _HEAD and (piece := stream.read1(_HEAD - size)):
            pieces.append(piece)
    except OSError:
        if not pieces:
            raise
    return b"".join(pieces)


def _lines(stream: io.BufferedReader) -> Iterator[dict[str, Json]]:
    size = 0
    for line in islice(read_lines(stream), _MAX_LINES):
        if isinstance(line, JsonLine):
            yield line.value
            size += line.size
            if size > MAX_RECORD:
                return


def _document(head: bytes) -> list[dict[str, Json]] | None:
    """The objects of a file that is an array, or one object over several lines; None if it has one a line."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n\0")
    first = text.partition(b"\n")[0].rstrip()
    if text.startswith(b"{") and _parsed(first) is not None:
        return None
    if len(head) < _HEAD:
        value = _parsed(text)
    elif text.startswith(b"[") or first.endswith((b"{", b"[", b",")):
        # Cut off: what its members are called still tells.
        value = _outline(text)
    else:
        value = None
    if not isinstance(value, dict | list):
        return None
    return [element for element in content_list(value)[:_MAX_LINES] if isinstance(element, dict)]


def _outline(text: bytes) -> dict[str, Json]:
    """The names of all members in `text`, wherever they stand."""
    return {name.decode(errors="replace"): None for name in _MEMBERS.findall(text)}


def _parsed(text: bytes) -> Json:
    try:
        return parse(text)
    except ValueError:
        return None


# -- what an object tells --


def _tool(line: dict[str, Json]) -> Tool | None:
    """What a file with this line is; None if the line does not tell."""
    kind = string(line.get("type"))
    if kind and isinstance(line.get("payload"), dict):
        return codex.TOOL
    if kind in _ITEMS or "record_type" in line or {"id", "timestamp", "instructions"} <= line.keys():
        return codex.TOOL
    if kind in _CLAUDE_OWN or (kind in _CLAUDE_TYPES and _CLAUDE_MEMBERS & line.keys()):
        return claude_code.TOOL
    if kind and "sessionId" in line and ("uuid" in line or "timestamp" in line):
        return claude_code.TOOL
    return _document_tool(line)


def _document_tool(value: dict[str, Json]) -> Tool | None:
    told = "role" in value or messages_jsonl.conversation(value) is not None
    return messages_jsonl.TOOL if told or "messages" in value else None


def _refuse(value: dict[str, Json]) -> None:
    """Raises Refused for an object of a format that is known and not read."""
    inner = [
        element for name in _LISTS for element in content_list(value.get(name)) if isinstance(element, dict)
    ]
    names = value.keys() | (inner[0].keys() if inner else set())
    for members, format_name in _EXPORTS:
        if members <= names:
            raise Refused(format_name, ", ".join(sorted(members)))
    if _EXEC.fullmatch(string(value.get("type"))):
        raise Refused(_EXEC_OUTPUT, string(value.get("type")))
    for members, format_name in _COMPANIONS:
        if members <= value.keys() and "type" not in value:
            raise Refused(format_name, ", ".join(sorted(members)))


_LISTS = ("conversations", "conversation", "messages")
_EXPORTS = (
    ({"chat_messages"}, _CLAUDE_AI),
    ({"sessionId", "projectHash"}, _GEMINI),
    ({"mapping", "title"}, _CHATGPT),
    ({"mapping", "current_node"}, _CHATGPT),
    ({"mapping", "create_time"}, _CHATGPT),
    ({"from", "value"}, _SHAREGPT),
    ({"conversations", "role"}, _SHAREGPT),
    ({"conversations", "from"}, _SHAREGPT),
)


def _refused(head: bytes) -> NoReturn:
    """Raises Refused with what a person would see in the file."""
    if len(head) == _HEAD and b"\n" not in head:
        _refuse(_outline(head))
    first = next(_lines(io.BufferedReader(io.BytesIO(head))), None)
    text = head.lstrip()[:40]
    if first is not None:
        seen = f"objects with the members {', '.join(list(first)[:6]) or '(none)'}"
    elif text:
        seen = f"it starts with {text.decode(errors='replace')!r}"
    else:
        seen = "it is empty"
    raise Refused("", seen)
