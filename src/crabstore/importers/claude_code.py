"""Claude Code transcripts (`~/.claude/projects/**.jsonl`) as events. Pure: callers bring the stream.

The layout is internal to that program and changes monthly, so whatever is not known is passed over without an
error. What becomes what:

- The lines of one assistant message, which carry its `message.id`, are one entry under the first line's uuid.
- A line that the harness wrote in the person's name is marked "injected", a compaction's recap "summary", a
  failure of the API "error"; all are kept. Everything else that is no dialogue (system, progress, snapshots)
  only serves to find out what follows what.
- A subagent's lines are a session of their own, `{session id}/{agent id}`, whichever of the three layouts they
  come in: inline, a file beside the trunk's, a file in its `subagents` folder.
- A rewind leaves the abandoned branch inactive. A line that a compaction replayed under a new uuid is not added
  again.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

import msgspec

from ..store.messages import HistoryEntry, Mark, Text, without_reminders
from ..store.messages.wire import read_blocks, string
from ..store.records import Json
from .claude_thread import Thread
from .events import Event, Problem, title_of
from .lines import BadLine, JsonLine, read_lines
from .times import timestamp

__all__ = ["AGENT_FILE", "TOOL", "read"]

TOOL: Final = "claude-code"
"""The name of this format, and of the agent whose sessions they become."""

AGENT_FILE = "agent-"
"""How the names of subagents' files start."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PROGRESS = re.compile(rb'"type"\s*:\s*"progress"')
_PEEK = 1 << 16
_COMMAND = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)
_TITLE_LINES = {"custom-title": "custom", "ai-title": "name", "agent-name": "name"}
_TITLE_MEMBERS = ("customTitle", "aiTitle", "agentName", "title", "name")

_INJECTED = (
    "<command-name>",
    "<command-message>",
    "<command-args>",
    "<command-contents>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<system-reminder>",
    "<user-memory-input>",
    "<task-notification>",
    "<teammate-message>",
    "<ide_opened_file>",
    "<ide_selection>",
    "<ide_diagnostics>",
    "Caveat: The messages below",
    "[Request interrupted by user",
)


class _Peek(msgspec.Struct):
    type: Json = None
    uuid: Json = None
    parentUuid: Json = None


def read(
    stream: io.BufferedReader, path: PurePath, sidecar: Mapping[str, Json] | None = None
) -> Iterator[Event]:
    """The events of one file. `path` is only looked at; `sidecar` is what a subagent's `.meta.json` holds."""
    reader = _Reader(path, sidecar or {})
    for line in read_lines(stream, reader.passes_over):
        if isinstance(line, BadLine):
            yield Problem.of(line)
        else:
            yield from reader.read(line)
    yield from reader.close()


class _Reader:
    """Reads one file; `_anchors` leads from the uuid of any line to the entry that it belongs to or follows."""

    def __init__(self, path: PurePath, sidecar: Mapping[str, Json]) -> None:
        self._agent = path.stem.removeprefix(AGENT_FILE) if path.stem.startswith(AGENT_FILE) else None
        self._named = _session_named(path)
        self._sidecar = sidecar
        self._anchors: dict[str, str] = {}
        self._threads: dict[str, Thread] = {}
        self._sidechains: dict[str, str] = {}
        self._summaries: dict[str, str] = {}
        self._session = ""

    def passes_over(self, line: bytes) -> bool:
        """Whether this is a progress line: they are many, up to megabytes each, and nothing in them was said."""
        if not _PROGRESS.search(line, 0, _PEEK):
            return False
        try:
            row = msgspec.json.decode(line, type=_Peek)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if row.type != "progress":
            return False
        self._anchor(string(row.uuid), string(row.parentUuid))
        return True

    def read(self, line: JsonLine) -> Iterator[Event]:
        row = line.value
        kind = string(row.get("type"))
        if kind in ("user", "assistant"):
            yield from self._dialogue(line, kind)
        elif kind == "attachment" and (queued := _queued_command(row)):
            yield from self._queued(line, queued)
        elif kind == "queue-operation":
            yield from self._queue_operation(line)
        elif kind == "summary":
            self._summaries[string(row.get("leafUuid"))] = string(row.get("summary"))
        elif kind in _TITLE_LINES:
            titles = (string(row.get(member)) for member in _TITLE_MEMBERS)
            self._thread(row).title(_TITLE_LINES[kind], title_of(next(filter(None, titles), "")))
        elif not kind:
            yield Problem("an object without a type", line.number, line.offset)
        else:
            self._passed(row)

    def _passed(self, row: Mapping[str, Json]) -> None:
        """A line that says nothing itself, but that others may follow."""
        parent = string(row.get("parentUuid"))
        if not parent:  # a root; a compaction's says what it logically follows
            parent = string(row.get("logicalParentUuid"))
            parent = parent if parent in self._anchors else self._thread(row).last
        self._anchor(string(row.get("uuid")), parent)

    def close(self) -> Iterator[Event]:
        for thread in self._threads.values():
            for leaf, summary in self._summaries.items():
                # Most summaries were written into the wrong file: one counts where its leaf is.
                if thread.holds(self._anchors.get(leaf, "")):
                    thread.title("summary", title_of(summary))
            yield from thread.close()

    # -- dialogue --

    def _dialogue(self, line: JsonLine, kind: str) -> Iterator[Event]:
        row = line.value
        message = _message(row, kind)
        if message is None:
            yield Problem(f"{kind} line without a message", line.number, line.offset)
            return
        uuid, thread = string(row.get("uuid")) or line.key, self._thread(row)
        entry = self._entry(row, uuid, message, _mark(row, message, kind))
        if again := thread.replayed(entry):
            self._anchors[uuid] = again
        elif kind == "user":
            yield from self._said(line, thread, entry)
        elif uuid not in self._anchors:
            yield from self._answered(line, thread, entry)

    def _answered(self, line: JsonLine, thread: Thread, entry: HistoryEntry) -> Iterator[Event]:
        """A line of an assistant's message: its first, or a further one."""
        message_id = string(entry.message.get("id"))
        grown = thread.grow(message_id, entry, line.size) if message_id else None
        self._anchors[entry.id] = grown or entry.id
        if grown:
            yield from thread.regrown(message_id)
            return
        if not thread.titled:
            thread.title("answer", title_of(entry.indexable()))
        thread.place(entry, self._parent(line.value, thread), prompt=False)
        yield from thread.hold(message_id, entry, line.size) if message_id else thread.send(entry)

    def _said(self, line: JsonLine, thread: Thread, entry: HistoryEntry) -> Iterator[Event]:
        """What stands in the person's name: a prompt, tool results, or an injected text."""
        parent = self._parent(line.value, thread)
        prompt = not entry.mark and entry.role == "user"
        if prompt:
            text = _human_text(entry.message)
            thread.title("prompt", title_of(text))
            if earlier := thread.queued(line.number, text):
                self._anchors[entry.id] = earlier
                return
            thread.heard(line.number, text)
        elif command := _slash_command(entry.text):
            thread.title("command", title_of(command))
        self._anchors[entry.id] = entry.id
        thread.place(entry, parent, prompt=prompt)
        yield from thread.send(entry)

    def _entry(
        self, row: Mapping[str, Json], uuid: str, message: dict[str, Json], mark: Mark
    ) -> HistoryEntry:
        parent = string(row.get("parentUuid"))
        return HistoryEntry(
            message=message,
            format="anthropic",
            id=uuid,
            ts=timestamp(row.get("timestamp")),
            parent="" if parent == uuid else self._anchors.get(parent, parent),
            mark=mark,
        )

    # -- what a person typed while the agent worked --

    def _queued(self, line: JsonLine, prompt: Json) -> Iterator[Event]:
        """A queued prompt that reached the model in the middle of a turn."""
        message: dict[str, Json] = {"role": "user", "content": prompt}
        thread = self._thread(line.value)
        entry = self._entry(
            line.value, string(line.value.get("uuid")) or line.key, message, _mark({}, message)
        )
        text = _human_text(message)
        if earlier := thread.queued(line.number, text):
            self._anchors[entry.id] = earlier
            return
        thread.heard(line.number, text)
        yield from self._interjected(line, thread, entry)

    def _queue_operation(self, line: JsonLine) -> Iterator[Event]:
        """A prompt was queued, sent, or taken off the queue; only the last may be all that is left of it."""
        row, thread = line.value, self._thread(line.value)
        text = _human_text({"role": "user", "content": row.get("content")})
        operation = row.get("operation")
        if operation == "enqueue" and text:
            thread.queue.append((line.number, text))
        elif operation == "dequeue" and thread.queue:
            thread.queue.popleft()
        elif operation == "popAll":
            thread.queue.clear()
        elif operation == "remove" and (text := thread.unqueue(line.number, text)):
            entry = self._entry(row, line.key, {"role": "user", "content": text}, "")
            thread.heard(line.number, text, entry.id)
            yield from self._interjected(line, thread, entry)

    def _interjected(self, line: JsonLine, thread: Thread, entry: HistoryEntry) -> Iterator[Event]:
        """A person's word in the middle of a turn; it never starts a branch."""
        parent = self._parent(line.value, thread)
        self._anchors[entry.id] = entry.id
        thread.place(entry, parent, prompt=False)
        yield from thread.send(entry)

    # -- whose line it is, and what it follows --

    def _parent(self, row: Mapping[str, Json], thread: Thread) -> str:
        """The entry that a line follows: by its parent, or in the order of the file where it names none."""
        parent = string(row.get("parentUuid"))
        if not parent or parent == row.get("uuid"):
            return thread.last
        return self._anchors.get(parent, "")

    def _anchor(self, uuid: str, parent: str) -> None:
        """Let lines behind `uuid` follow what its parent belongs to; a root stands for itself."""
        if uuid:
            self._anchors[uuid] = self._anchors.get(parent) or uuid

    def _thread(self, row: Mapping[str, Json]) -> Thread:
        original_id, parent = self._identity(row)
        thread = self._threads.get(original_id)
        if thread is None:
            thread = self._threads[original_id] = Thread(original_id, parent)
            if len(self._threads) == 1:
                thread.title("name", title_of(string(self._sidecar.get("description"))))
        if not thread.project:
            thread.project = string(row.get("cwd"))
        return thread

    def _identity(self, row: Mapping[str, Json]) -> tuple[str, str]:
        """The session's original id and its parent's: by the file's place, or by what its lines say."""
        session = self._session = self._session_id(row)
        if self._agent is not None:
            spawner = string(self._sidecar.get("parentAgentId"))
            return f"{session}/{self._agent}", f"{session}/{spawner}" if spawner else session
        if row.get("isSidechain") is True:
            return f"{session}/{string(row.get('agentId')) or self._sidechain(row)}", session
        return session, ""

    def _session_id(self, row: Mapping[str, Json]) -> str:
        if _UUID.fullmatch(self._named):
            return self._named
        return string(row.get("sessionId")) or self._session or self._named

    def _sidechain(self, row: Mapping[str, Json]) -> str:
        """Names an inline sidechain of versions that gave them no id: by the uuid of its root."""
        uuid, parent = string(row.get("uuid")), string(row.get("parentUuid"))
        root = self._sidechains.get(parent, uuid)
        self._sidechains[uuid] = root
        return root


def _session_named(path: PurePath) -> str:
    """What the file's place calls its session."""
    if "subagents" in path.parts:
        return path.parts[path.parts.index("subagents") - 1]
    return path.stem


def _message(row: Mapping[str, Json], kind: str) -> dict[str, Json] | None:
    message = row.get("message")
    if isinstance(message, str):
        return {"role": kind, "content": message}
    if not isinstance(message, dict):
        return None
    return message if message.get("role") else {"role": kind, **message}


def _mark(row: Mapping[str, Json], message: dict[str, Json], kind: str = "user") -> Mark:
    if kind == "assistant":
        return "error" if row.get("isApiErrorMessage") is True else ""
    if row.get("isCompactSummary") is True:
        return "summary"
    texts = _texts(message)
    if row.get("isMeta") is True or (texts and all(map(_is_injected, texts))):
        return "injected"
    return ""


def _texts(message: dict[str, Json]) -> list[str]:
    return [
        block.text for block in read_blocks("anthropic", message) if isinstance(block, Text) and block.text
    ]


def _is_injected(text: str) -> bool:
    stripped = text.lstrip()
    if stripped.startswith("<system-reminder>"):
        return not without_reminders(stripped).strip()
    return stripped.startswith(_INJECTED) or stripped == "Warmup"


def _human_text(message: dict[str, Json]) -> str:
    """What a person said in a message, without what the harness put beside it."""
    human = (text for text in _texts(message) if not _is_injected(text))
    return without_reminders("\n".join(human)).strip()


def _slash_command(text: str) -> str:
    name = _COMMAND.search(text)
    arguments = _ARGUMENTS.search(text)
    return " ".join(match[1] for match in (name, arguments) if match) if name else ""


def _queued_command(row: Mapping[str, Json]) -> Json:
    attachment = row.get("attachment")
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
        return None
    return attachment.get("prompt")
