"""What every engine under measurement shares: the corpus in calls, clocks, and what a phase gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from ..corpus import Corpus, Message, Query, Session

__all__ = [
    "BULK",
    "LIMIT",
    "REPEATS",
    "Clock",
    "Engine",
    "Figures",
    "Outcome",
    "Part",
    "Row",
    "Stream",
    "resident",
    "victims",
]

Figures = dict[str, float]

BULK = 256
"""Messages a call, and a commit, at most."""
REPEATS = 9
LIMIT = 20
_VICTIMS = 20


@dataclass
class Outcome:
    """What a phase found; `cold` and `warm` are the milliseconds of each run of each query of the mix."""

    figures: Figures
    cold: list[list[float]] = field(default_factory=list)
    warm: list[list[float]] = field(default_factory=list)


class Engine(ABC):
    """One engine with its files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def fill(self, corpus: Corpus, messages: int) -> Outcome:
        """Index all messages: most in bulk, the last ones each by itself."""

    @abstractmethod
    def search(self, queries: list[Query]) -> Outcome:
        """Open; every query once, then each again and again."""

    @abstractmethod
    def delete(self, corpus: Corpus, messages: int) -> Outcome:
        """Delete some sessions, each by itself."""


@dataclass(frozen=True)
class Part:
    """Messages of one session for one call."""

    session: Session
    messages: list[Message]
    number: int
    """How many messages of the corpus stand before."""
    first: bool
    """Whether the session begins here."""


class Row(NamedTuple):
    """A message by itself."""

    number: int
    text: str
    session: str
    project: str
    role: str
    ts: str


class Stream:
    """A corpus, taken call by call."""

    def __init__(self, sessions: Iterator[Session]) -> None:
        self._sessions = sessions
        self._session: Session | None = None
        self._at = 0
        self._number = 0
        self.bytes = 0
        """Of text, in what was taken so far."""

    def take(self, count: int, most: int) -> Iterator[Part]:
        """The next `count` messages, at most so many a call."""
        end = self._number + count
        while self._number < end and (session := self._current()):
            some = session.messages[self._at : self._at + min(most, end - self._number)]
            part = Part(session, some, self._number, first=self._at == 0)
            self._at += len(some)
            self._number += len(some)
            self.bytes += sum(len(message.text.encode()) for message in some)
            yield part

    def rows(self, count: int, most: int) -> Iterator[list[Row]]:
        """The next `count` messages for engines that know no sessions, so many a call."""
        batch: list[Row] = []
        for part in self.take(count, most):
            session = part.session
            batch += [
                Row(number, message.text, session.handle, session.project, message.role, message.ts)
                for number, message in enumerate(part.messages, part.number)
            ]
            while len(batch) >= most:
                yield batch[:most]
                batch = batch[most:]
        if batch:
            yield batch

    def _current(self) -> Session | None:
        if self._session is None or self._at == len(self._session.messages):
            self._session, self._at = next(self._sessions, None), 0
        return self._session


class Clock:
    """Seconds spent inside, each time."""

    def __init__(self) -> None:
        self.spent: list[float] = []
        self.processor = 0.0
        """Seconds of the processor's time, of all threads of this process; other processes do not add to it."""
        self._start = (0.0, 0.0)

    def __enter__(self) -> None:
        self._start = (process_time(), perf_counter())

    def __exit__(self, *_: object) -> None:
        used, start = self._start
        self.spent.append(perf_counter() - start)
        self.processor += process_time() - used

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self.spent)

    def high(self, share: float) -> float:
        """The seconds that this share of the times took at most."""
        return sorted(self.spent)[int(share * (len(self.spent) - 1))]

    @property
    def milliseconds(self) -> list[float]:
        """Each time."""
        return [seconds * 1e3 for seconds in self.spent]


def resident() -> float:
    """Megabytes of this process's resident set."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


def victims(corpus: Corpus, messages: int) -> list[tuple[Session, int]]:
    """Sessions of common length to delete, and how many messages stand before each."""
    found: list[tuple[Session, int]] = []
    number = 0
    for session in corpus.sessions(min(messages, 20_000)):
        if 10 <= len(session.messages) <= 60 and len(found) < _VICTIMS:
            found.append((session, number))
        number += len(session.messages)
    return found
