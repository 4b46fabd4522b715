"""The order in which a Codex rollout says things twice: twins made one, injected contexts told from prompts. Pure.

A rollout holds most texts in two shapes, an item of the wire (`response_item`) and a notice for the screen
(`event_msg`), on neighbouring lines in either order. Both sides of a conversation come in runs: what stands in the
person's name until the agent acts, then what the agent does. A run is held back (bounded) until it is clear what
belongs together:

- an item and a notice of the same role and text are one message, in the item's shape, at the place and under the
  id of whichever came first; a notice that no item repeats is a message of its own;
- in a run where notices say what the person typed, the other items in the person's name are context that the
  harness put there; where there are none, contexts are known by how they start;
- a prompt that comes again word by word after an abort, with nothing from the agent in between, is one prompt.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..store.messages import HistoryEntry, Text
from ..store.records import evolve

__all__ = ["Turns"]

_WINDOW = 8
"""Lines within which a twin follows; seen are neighbours, with usage counts in between."""

_MAX_RUN = 64
"""Messages of a person's run that are held back; more than a handful of contexts was never seen."""

_CONTEXTS = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "# AGENTS.md instructions for",
    "<recommended_plugins>",
    "<codex_internal_context",
    "<goal_context>",
    "<turn_aborted>",
    "<skill>",
    "<user_shell_command>",
    "<subagent_notification>",
)

_REDACTED = re.compile(r"\[REDACTED_[A-Z_]+ ")


@dataclass
class _Held:
    line: int
    entry: HistoryEntry
    notice: bool
    text: str
    texts: frozenset[str]
    """The whole text, and each part of it: beside an image, the notice repeats only the words."""
    twin: bool = False
    """Both shapes were seen."""


@dataclass
class Turns:
    """Entries in, entries out, in order."""

    _run: deque[_Held] = field(default_factory=deque)
    _side: str = ""
    _prompt: _Held | None = None
    """The last prompt, while the agent has not acted on it."""
    _aborts: list[int] = field(default_factory=list)

    def add(self, line: int, entry: HistoryEntry, *, notice: bool) -> Iterator[HistoryEntry]:
        """Take what line `line` says; yield what has become clear by it."""
        side = "person" if entry.role in ("user", "system") else "agent"
        if side != self._side:
            yield from self.flush()
            self._side, self._prompt = side, None
            self._aborts.clear()
        texts = [block.text for block in entry.blocks if isinstance(block, Text)]
        new = _Held(line, entry, notice, _key(entry.text), frozenset(map(_key, [entry.text, *texts])))
        if not self._paired(new):
            self._run.append(new)
        if side == "agent":
            yield from self._release(before=line - _WINDOW)
        elif len(self._run) > _MAX_RUN:
            yield from self.flush()

    def abort(self, line: int) -> None:
        """The turn was aborted; its prompt may be written again."""
        self._aborts.append(line)

    def flush(self) -> Iterator[HistoryEntry]:
        """Everything that is held back."""
        if self._side == "person":
            self._settle()
        yield from self._release()

    def _paired(self, new: _Held) -> bool:
        """Whether `new` is the other shape of something that is held back, which then stands for both."""
        for held in self._run:
            if held.twin or held.notice == new.notice:
                continue
            if held.entry.role == new.entry.role and (held.texts & new.texts) - {""}:
                if held.notice:
                    held.entry = evolve(new.entry, id=held.entry.id)
                held.twin = True
                return True
        return False

    def _release(self, before: int | None = None) -> Iterator[HistoryEntry]:
        while self._run and (before is None or self._run[0].line < before):
            yield self._run.popleft().entry

    def _settle(self) -> None:
        """Tell prompts from contexts in a person's run, and drop prompts that were only written again."""
        told = any(held.notice or held.twin for held in self._run)
        run, self._run = self._run, deque()
        for held in run:
            typed = held.notice or held.twin or not told
            if held.entry.role == "user" and (not typed or held.text.startswith(_CONTEXTS)):
                held.entry = evolve(held.entry, mark="injected")
            elif held.entry.role == "user":
                if self._written_again(held):
                    continue
                self._prompt = held
            self._run.append(held)

    def _written_again(self, held: _Held) -> bool:
        first = self._prompt
        if first is None or first.text != held.text:
            return False
        return any(first.line < at < held.line for at in self._aborts)


def _key(text: str) -> str:
    """`text` to be compared; recordings that were redacted before publication name the field in each token."""
    return _REDACTED.sub("[REDACTED ", text.strip())
