"""Codex CLI rollouts (`~/.codex/sessions/**/rollout-*`) as events. Pure: callers bring the stream.

Three generations are read: one JSON document (`{"session": ..., "items": [...]}`), bare items a line after a bare
header, and today's `{"timestamp", "type", "payload"}` lines. What becomes what:

- Wire items (messages, reasoning, calls and their outputs, kinds not known yet) are entries, one each, named by
  their line. Notices for the screen are entries only where no item says the same (see `codex_turns`).
- Developer and system messages are entries of role system; contexts that stand in the person's name are marked
  "injected", a compaction's text "summary". What a compaction repeats is not added again.
- A fork or a subagent replays its parent's lines: they are left out, and the session names its parent.
- Turns that were rolled back are inactive.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Final

from ..store.messages import HistoryEntry, Mark
from ..store.messages.wire import string
from ..store.records import Json
from .codex_turns import Turns
from .events import Closed, Event, Message, Problem, Session, title_of
from .lines import BadLine, JsonLine, parse, read_lines
from .times import timestamp

__all__ = ["TOOL", "read", "read_document", "read_titles"]

TOOL: Final = "codex"
"""The name of this format, and of the agent whose sessions they become."""

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_NOTICES = {"user_message": "user", "agent_message": "assistant"}
_NOT_SAID = ("ghost_snapshot",)

Stream = Callable[[], io.BufferedReader]


def read(open_stream: Stream, path: PurePath, titles: Mapping[str, str] | None = None) -> Iterator[Event]:
    """The events of one rollout. `path` is only looked at; `titles` is what a session index says.

    `open_stream` is called twice for a fork, which has to be looked through for where its own turns start.
    """
    reader = _Reader(path, titles or {})
    with open_stream() as stream:
        for line in read_lines(stream):
            if isinstance(line, BadLine):
                yield Problem.of(line)
            elif reader.starts_replay(line):
                reader.skip_to = _first_own_line(open_stream, reader.forked_at)
                if not reader.skip_to:
                    yield Problem(
                        "its own turns cannot be told from those it copied", line.number, line.offset, True
                    )
            elif line.number >= reader.skip_to:
                yield from reader.read(line)
    yield from reader.close()


def read_document(data: bytes, path: PurePath, titles: Mapping[str, str] | None = None) -> Iterator[Event]:
    """The events of a rollout of the first generation, one JSON document. Raises ValueError if it is none."""
    document = parse(data)
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    reader = _Reader(path, titles or {})
    reader.header(_object(document.get("session")))
    items = document.get("items")
    for number, item in enumerate(items if isinstance(items, list) else [], 1):
        if isinstance(item, dict):
            yield from reader.read(JsonLine(number, 0, 0, item, 0))
        else:
            yield Problem(f"item {number} is no object")
    yield from reader.close()


def read_titles(stream: io.BufferedReader) -> dict[str, str]:
    """Titles by session id, from a `session_index.jsonl`; the last line of a session counts."""
    rows = (line.value for line in read_lines(stream) if isinstance(line, JsonLine))
    return {string(row.get("id")): title_of(string(row.get("thread_name"))) for row in rows}


class _Reader:
    """Reads one rollout, which is one session."""

    def __init__(self, path: PurePath, titles: Mapping[str, str]) -> None:
        self.skip_to = 0
        """The first line that is read; 0 for all."""
        self.forked_at = 0
        """When this session began, in milliseconds since 1970; 0 if it is not known."""
        self._path = path
        self._index = titles
        self._id = self._parent = self._project = self._created_at = ""
        self._opened = self._replaying = self._headed = False
        self._titles: dict[str, str] = {}
        self._turns = Turns()
        self._prompts: list[list[str]] = [[]]
        """The ids of each turn that still counts; first what stands before any prompt."""
        self._inactive: set[str] = set()

    # -- whose file it is --

    def header(self, meta: Mapping[str, Json]) -> None:
        """Take what the first header says; further ones are the parent's, or a resume's."""
        if self._id:
            return
        self._id = string(meta.get("id")) or self._named()
        self._project = string(meta.get("cwd")) or self._project
        self._headed = bool(self._project) and bool(meta)
        self._created_at = timestamp(meta.get("timestamp"))
        self._parent = _parent(meta)
        self.forked_at = _milliseconds(self._id)

    def starts_replay(self, line: JsonLine) -> bool:
        """Whether the copy of a parent's lines starts here, with the parent's header."""
        if self._replaying or line.value.get("type") != "session_meta" or not self._id:
            return False
        other = string(_object(line.value.get("payload")).get("id"))
        self._replaying = bool(other) and other != self._id
        if self._replaying:
            self._parent = self._parent or other
        return self._replaying

    def _moved(self, cwd: str) -> None:
        """A turn's folder stands for the session's where the header does not say it; the last one counts."""
        if cwd and not self._headed:
            self._project = cwd

    def _named(self) -> str:
        """The id in the file's name."""
        ids = _UUID.findall(self._path.name)
        return ids[-1] if ids else self._path.name.split(".", 1)[0]

    # -- lines --

    def read(self, line: JsonLine) -> Iterator[Event]:
        row = line.value
        kind, payload = string(row.get("type")), row.get("payload")
        if kind and isinstance(payload, dict):
            yield from self._line(line, kind, payload)
        elif kind and payload is None:
            yield from self._item(line, row)
        elif kind:
            return  # a kind that is not known, with something else than an object in it
        elif "record_type" not in row and ("id" in row or "instructions" in row):
            self.header(row)
        elif "record_type" not in row:
            yield Problem("an object without a type", line.number, line.offset)

    def _line(self, line: JsonLine, kind: str, payload: dict[str, Json]) -> Iterator[Event]:
        if kind == "session_meta":
            self.header(payload)
        elif kind == "turn_context":
            self._moved(string(payload.get("cwd")))
        elif kind == "response_item":
            yield from self._item(line, payload)
        elif kind == "event_msg":
            yield from self._event(line, string(payload.get("type")), payload)
        elif kind == "compacted":
            yield from self._compacted(line, string(payload.get("message")))

    def _item(self, line: JsonLine, item: dict[str, Json]) -> Iterator[Event]:
        if item.get("type") not in _NOT_SAID:
            for entry in self._turns.add(line.number, _entry(line, item), notice=False):
                yield from self._send(entry)

    def _event(self, line: JsonLine, kind: str, payload: Mapping[str, Json]) -> Iterator[Event]:
        text = string(payload.get("message"))
        if kind in _NOTICES and text:
            entry = _entry(line, _said(_NOTICES[kind], text))
            for settled in self._turns.add(line.number, entry, notice=True):
                yield from self._send(settled)
        elif kind == "turn_aborted":
            self._turns.abort(line.number)
        elif kind == "thread_rolled_back":
            yield from self._rolled_back(payload.get("num_turns"))
        elif kind == "thread_name_updated":
            self._title("name", string(payload.get("thread_name")))

    def _compacted(self, line: JsonLine, text: str) -> Iterator[Event]:
        """The summary of a compaction; the history that it repeats beside it is here already."""
        yield from self._flush()
        if text:
            yield from self._send(_entry(line, _said("user", text), mark="summary"))

    def _rolled_back(self, count: Json) -> Iterator[Event]:
        yield from self._flush()
        for _ in range(min(count, len(self._prompts) - 1) if isinstance(count, int) else 0):
            self._inactive.update(self._prompts.pop())

    # -- sending --

    def close(self) -> Iterator[Event]:
        """The end of the file: what is held back, the title, the turns that were rolled back."""
        yield from self._flush()
        if self._opened:
            self._title("index", self._index.get(self._id, ""))
            title = next((self._titles[rank] for rank in _RANKS if rank in self._titles), "")
            yield Session(self._id, self._project, title=title, parent=self._parent)
            yield Closed(self._id, frozenset(self._inactive))

    def _flush(self) -> Iterator[Event]:
        for entry in self._turns.flush():
            yield from self._send(entry)

    def _send(self, entry: HistoryEntry) -> Iterator[Event]:
        if not self._opened:
            self._opened = True
            self.header({})
            created_at = self._created_at or entry.ts
            yield Session(self._id, self._project, created_at, parent=self._parent)
        if entry.role == "user" and not entry.mark:
            self._prompts.append([])
            self._title("prompt", entry.text.rpartition(_REQUEST)[2])
        elif entry.role == "assistant":
            self._title("answer", entry.indexable())
        self._prompts[-1].append(entry.id)
        yield Message(self._id, entry)

    def _title(self, rank: str, text: str) -> None:
        if text.strip() and (rank == "name" or rank not in self._titles):
            self._titles[rank] = title_of(text)


_REQUEST = "## My request for Codex:"
"""Stands between what an editor tells about itself and what the person typed."""

_RANKS = ("name", "index", "prompt", "answer")


def _entry(line: JsonLine, item: dict[str, Json], mark: Mark = "") -> HistoryEntry:
    ts = timestamp(line.value.get("timestamp"))
    return HistoryEntry(message=item, format="openai-responses", id=line.key, ts=ts, mark=mark)


def _said(role: str, text: str) -> dict[str, Json]:
    """The item that a text for the screen would have been."""
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


# -- forks --


def _parent(meta: Mapping[str, Json]) -> str:
    spawned = _object(_object(_object(meta.get("source")).get("subagent")).get("thread_spawn"))
    named = (meta.get("forked_from_id"), meta.get("parent_thread_id"), spawned.get("parent_thread_id"))
    return next((parent for parent in map(string, named) if parent), "")


def _first_own_line(open_stream: Stream, forked_at: int) -> int:
    """The line where a fork's own turns start: 0 if that cannot be told, beyond the file if there are none.

    Copied lines carry the fork's time, but their turns keep ids that say when they began, except those of old
    versions. What a person said just before a turn belongs to it.
    """
    run = last = 0
    undated = False
    with open_stream() as stream:
        for line in read_lines(stream):
            last = line.number
            if isinstance(line, BadLine):
                continue
            payload = _object(line.value.get("payload"))
            began = _milliseconds(string(payload.get("turn_id")))
            undated = undated or (not (began and forked_at) and _begins_turn(line, payload))
            if began and began >= forked_at > 0:
                return run or last
            run = _person_run(run, line, payload)
    return 0 if undated else last + 1


def _begins_turn(line: JsonLine, payload: Mapping[str, Json]) -> bool:
    return line.value.get("type") == "turn_context" or payload.get("type") in ("task_started", "turn_started")


def _person_run(run: int, line: JsonLine, payload: Mapping[str, Json]) -> int:
    """Where the run of what stands in the person's name began, 0 while the agent acts."""
    if payload.get("role") in ("user", "developer", "system") or payload.get("type") == "user_message":
        return run or line.number
    acts = line.value.get("type") in ("response_item", "session_meta") or payload.get("type") in _ENDS
    return 0 if acts else run


_ENDS = ("agent_message", "task_complete", "turn_complete", "turn_aborted")


def _milliseconds(uuid: str) -> int:
    """When a UUID of version 7 was made, since 1970; 0 for any other text."""
    return int(uuid.replace("-", "")[:12], 16) if _UUID.fullmatch(uuid) and uuid[14] == "7" else 0
