"""One Claude Code conversation while it is being read: its tree, its growing messages, its title. Pure.

Keeps ids of everything and the content of only the last few messages, so memory does not grow with content.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from ..store.messages import HistoryEntry
from ..store.messages.wire import content_list
from ..store.records import Json, evolve
from .events import Closed, Event, Message, Session

__all__ = ["RANKS", "Thread"]

RANKS = ("answer", "command", "prompt", "summary", "name", "custom")
"""Where a title may come from, the best last. Of the first three the first one counts, of the others the last."""

_OPEN_MESSAGES = 16
_OPEN_BYTES = 8 << 20
"""How many assistant messages stay open for further lines, and of which size together. The lines of one message
stand close to each other, with at most the results of its own calls in between."""

_NEAR = 100
"""Lines within which the same queued text is the same message."""


@dataclass
class _Open:
    entry: HistoryEntry
    size: int


@dataclass
class Thread:
    """The state of one conversation."""

    original_id: str
    parent: str = ""
    project: str = ""
    queue: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=64))
    """Texts that a person typed while the agent worked, each with its line, and that were not sent yet."""
    _opened: bool = False
    _last: str = ""
    _tree: dict[str, str] = field(default_factory=dict)
    _prompts: dict[str, list[str]] = field(default_factory=dict)
    _contents: dict[bytes, str] = field(default_factory=dict)
    _digested: tuple[HistoryEntry | None, bytes] = (None, b"")
    """The line of which the digest was made last, and that: it is asked for twice."""
    _open: OrderedDict[str, _Open] = field(default_factory=OrderedDict)
    _unsent: HistoryEntry | None = None
    _titles: dict[str, str] = field(default_factory=dict)
    _heard: deque[tuple[int, str, str]] = field(default_factory=lambda: deque(maxlen=32))

    @property
    def last(self) -> str:
        """The id of the entry that was written last, "" before the first."""
        return self._last

    @property
    def titled(self) -> bool:
        """Whether any title was proposed."""
        return bool(self._titles)

    def title(self, rank: str, text: str) -> None:
        """Propose a title."""
        if text and (rank not in self._titles or RANKS.index(rank) > RANKS.index("prompt")):
            self._titles[rank] = text

    # -- messages --

    def replayed(self, line: HistoryEntry) -> str:
        """The id of the entry that a line with this parent, time and content became; "" if none did yet."""
        return self._contents.get(self._digest(line), "") if line.ts else ""

    def grow(self, message_id: str, line: HistoryEntry, size: int) -> str | None:
        """Add a line to the open message of this id; the id of its entry, or None if there is none open."""
        found = self._open.get(message_id)
        if found is None:
            return None
        found.size += size
        found.entry = evolve(found.entry, message=_joined(found.entry.message, line.message))
        self._open.move_to_end(message_id)
        self._note(line, found.entry.id)
        return found.entry.id

    def regrown(self, message_id: str) -> Iterator[Event]:
        """Send the open message again, once no further line follows at once."""
        entry = self._open[message_id].entry
        if self._unsent is None or self._unsent.id != entry.id:
            yield from self.flush()
        self._unsent = entry
        self._last = entry.id

    def hold(self, message_id: str, entry: HistoryEntry, size: int) -> Iterator[Event]:
        """Send a message that may still grow, once no further line of it follows at once."""
        yield from self.flush()
        self._open[message_id] = _Open(entry, size)
        while len(self._open) > _OPEN_MESSAGES or (len(self._open) > 1 and self._open_size() > _OPEN_BYTES):
            self._open.popitem(last=False)
        self._unsent = entry

    def send(self, entry: HistoryEntry) -> Iterator[Event]:
        """Send a message that is whole."""
        yield from self.flush()
        yield from self._message(entry)

    def flush(self) -> Iterator[Event]:
        """Send what is held back."""
        entry, self._unsent = self._unsent, None
        if entry is not None:
            yield from self._message(entry)

    def _message(self, entry: HistoryEntry) -> Iterator[Event]:
        if not self._opened:
            self._opened = True
            yield Session(self.original_id, self.project, entry.ts, parent=self.parent, lineage=entry.id)
        yield Message(self.original_id, entry)

    def _open_size(self) -> int:
        return sum(message.size for message in self._open.values())

    # -- queued texts --

    def heard(self, line: int, text: str, queued: str = "") -> None:
        """A person's text has become an entry; `queued` is its id if that was read from the queue."""
        self._heard.append((line, text, queued))

    def queued(self, line: int, text: str) -> str:
        """The entry that this text has become already when it left the queue, or "". It is answered once."""
        for at, heard, entry in self._heard:
            if entry and heard == text and line - at <= _NEAR:
                self._heard.remove((at, heard, entry))
                return entry
        return ""

    def unqueue(self, line: int, text: str) -> str:
        """The text that leaves the queue here, or "" if a message brought it already.

        Older versions do not say which text it is: it is known only if it was the only one.
        """
        if not text:
            text = self.queue[0][1] if len(self.queue) == 1 else ""
        since = next((at for at, queued in self.queue if queued == text), line - _NEAR)
        self.queue = deque((item for item in self.queue if item != (since, text)), maxlen=64)
        for at, heard, entry in self._heard:
            if not entry and heard == text and at >= since:
                self._heard.remove((at, heard, entry))
                return ""
        return text

    # -- the tree --

    def place(self, entry: HistoryEntry, parent: str, *, prompt: bool) -> None:
        """Note where the entry stands. `parent` is an entry of this conversation, or "" at a root."""
        self._note(entry, entry.id)
        self._last = entry.id
        if entry.id in self._tree:
            return
        self._tree[entry.id] = parent
        if prompt and parent:
            self._prompts.setdefault(parent, []).append(entry.id)

    def holds(self, entry: str) -> bool:
        """Whether the entry is one of this conversation."""
        return entry in self._tree

    def _note(self, line: HistoryEntry, entry_id: str) -> None:
        if line.ts:
            self._contents.setdefault(self._digest(line), entry_id)

    def _digest(self, line: HistoryEntry) -> bytes:
        if self._digested[0] is not line:
            self._digested = line, _digest(line)
        return self._digested[1]

    def inactive(self) -> frozenset[str]:
        """The entries off the active branch.

        A prompt is off when a later prompt has the same parent and the last entry is not behind it; an entry
        is off with the prompt that it follows.
        """
        path = set(self._path(self._last))
        dead = {
            prompt for siblings in self._prompts.values() for prompt in siblings[:-1] if prompt not in path
        }
        if dead:
            for entry, parent in self._tree.items():  # parents stand before their children
                if parent in dead:
                    dead.add(entry)
        return frozenset(dead)

    def _path(self, entry: str) -> Iterator[str]:
        for _ in range(len(self._tree)):
            if not entry:
                return
            yield entry
            entry = self._tree.get(entry, "")

    def close(self) -> Iterator[Event]:
        """The end of the file: what is held back, the branches, and the title."""
        yield from self.flush()
        if self._opened:
            title = next((self._titles[rank] for rank in reversed(RANKS) if rank in self._titles), "")
            yield Session(self.original_id, self.project, title=title, parent=self.parent)
            yield Closed(self.original_id, self.inactive())


def _joined(first: dict[str, Json], then: dict[str, Json]) -> dict[str, Json]:
    """Two lines of one message: the blocks of both in order; of everything else (usage, stop reason) the last."""
    content = [*_as_blocks(first), *_as_blocks(then)]
    return {**first, **then, "content": content}


def _as_blocks(message: dict[str, Json]) -> list[Json]:
    blocks = content_list(message.get("content"))
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]


def _digest(line: HistoryEntry) -> bytes:
    content = msgspec.json.encode((line.parent, line.ts, line.message))
    return hashlib.blake2b(content, digest_size=16).digest()
