"""What is indexed and asked for by the benchmarks: made conversations whose words grow as those of real ones do,
or the texts of a folder. The same for every run, made as they are needed, and never kept.

Word frequencies follow Zipf's law with two regimes (Ferrer i Cancho and Solé, Two Regimes in the Frequency of
Words, 2001): an exponent of one for the words that everybody uses, a steeper one for all others, of which new ones
never cease to come (Heaps' law: about n**0.6 distinct ones in n words). A session has words of its own that it
repeats; a message is as short or long as people's are (log-normal), and so is a session.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import Stemmer

__all__ = ["Corpus", "FolderCorpus", "Message", "Query", "Session", "ZipfCorpus", "queries_over"]

Ints = npt.NDArray[np.int64]

SESSION_MEAN = 25
_START = datetime(2024, 1, 1, tzinfo=UTC)
_SPAN = timedelta(days=730)
_AGENTS = 8
_PROJECTS = 40


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a session."""

    role: str
    text: str
    ts: str
    """UTC RFC 3339 with six fractional digits."""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation."""

    handle: str
    agent: str
    project: str
    title: str
    messages: list[Message]


@dataclass(frozen=True)
class Query:
    """What is asked for. `words` is what engines without folding are given, joined by OR: all forms of a word."""

    kind: str
    text: str
    words: tuple[str, ...]
    prefix: bool = False
    """Whether the one word is the beginning of the words that are meant."""
    project: str = ""
    since: str = ""


class Corpus(ABC):
    """Conversations, oldest first."""

    @abstractmethod
    def sessions(self, messages: int) -> Iterator[Session]:
        """The first so many messages, in whole sessions but for the last; fewer if there are no more."""

    @abstractmethod
    def queries(self, messages: int) -> list[Query]:
        """A fixed mix of forty."""

    def texts(self, messages: int) -> Iterator[str]:
        """The texts alone."""
        for session in self.sessions(messages):
            for message in session.messages:
                yield message.text


# -- a made corpus --

_HEAD = 8_000
"""Words in everybody's vocabulary; behind them frequencies fall faster."""
_FLAT = 2.7
"""How much flatter than a power law the very first ranks are (Mandelbrot)."""
_TAIL = 1.6
_HEAD_MASS = math.log((_HEAD + _FLAT) / _FLAT)
_TAIL_MASS = 1 / (_TAIL - 1)
_LAST = 1 << 40

_GLUE = "the a of to and in is it for on that with as was be by at this".split()
_GLUED = 0.56
_OWN = 0.12
_COMPOUND = 0.015
_COMPOUNDS = 1 << 41
"""Numbers from here on stand for two words joined by an underscore, as names in programs are."""

_SHORT = 600
"""Words of two syllables; the others have three and more."""
_SYLLABLES = [consonant + vowel for consonant in "bdfgjklnprtvz" for vowel in "aeiou"]
_SUFFIXES = {7: (3, "s"), 8: (5, "ed"), 9: (6, "ing")}
"""Of ten ranks, three are forms of a word some ranks before: last digit to (ranks before, suffix)."""


class ZipfCorpus(Corpus):
    """Made conversations, ever so many."""

    def __init__(self, seed: int = 7) -> None:
        self._seed = seed

    def sessions(self, messages: int) -> Iterator[Session]:
        draw = np.random.default_rng(self._seed)
        made = 0
        while made < messages:
            length = min(_log_normal(draw, SESSION_MEAN, 1.2, 1, 4_000), messages - made)
            yield _made_session(draw, length, _START + _SPAN * (made / messages))
            made += length

    def queries(self, messages: int) -> list[Query]:
        return queries_over(_spelled, _forms, _project(1), _time(_START + _SPAN * 0.75))


def _made_session(draw: np.random.Generator, length: int, start: datetime) -> Session:
    sizes = np.clip(draw.lognormal(math.log(46) - 0.245, 0.7, length), 2, 600).astype(np.int64)
    words = [_spelled(number) for number in _numbers(draw, int(sizes.sum())).tolist()]
    ends = np.cumsum(sizes).tolist()
    texts = [_sentences(words[end - size : end]) for size, end in zip(sizes.tolist(), ends, strict=True)]
    messages = [
        Message("assistant" if place % 2 else "user", text, _time(start + timedelta(seconds=40 * place)))
        for place, text in enumerate(texts)
    ]
    return Session(
        handle=draw.bytes(10).hex(),
        agent=f"agent-{int(draw.integers(_AGENTS))}",
        project=_project(min(_PROJECTS, int(draw.zipf(1.5)))),
        title=" ".join(words[:6]),
        messages=messages,
    )


def _numbers(draw: np.random.Generator, count: int) -> Ints:
    """The words of a session: ranks, compounds, and what stands for a little word, below zero."""
    numbers = _ranks(draw, count)
    own = _ranks(draw, 8) + 50
    numbers = np.where(draw.random(count) < _OWN, own[draw.integers(8, size=count)], numbers)
    numbers = np.where(draw.random(count) < _COMPOUND, numbers + _COMPOUNDS, numbers)
    glue = -1 - draw.integers(len(_GLUE), size=count)
    return np.where(draw.random(count) < _GLUED, glue, numbers)


def _ranks(draw: np.random.Generator, count: int) -> Ints:
    """Ranks by the inverse of their distribution."""
    mass = draw.random(count) * (_HEAD_MASS + _TAIL_MASS)
    head = _FLAT * np.exp(np.minimum(mass, _HEAD_MASS)) - _FLAT
    left = np.maximum(1 - np.maximum(mass - _HEAD_MASS, 0) * (_TAIL - 1), 1e-9)
    tail = (_HEAD + _FLAT) * left ** (-1 / (_TAIL - 1)) - _FLAT
    return np.minimum(np.where(mass < _HEAD_MASS, head, tail), _LAST).astype(np.int64)


def _log_normal(draw: np.random.Generator, mean: float, sigma: float, least: int, most: int) -> int:
    return min(most, max(least, round(float(draw.lognormal(math.log(mean) - sigma**2 / 2, sigma)))))


def _sentences(words: list[str]) -> str:
    return ". ".join(" ".join(words[at : at + 12]) for at in range(0, len(words), 12))


_KEPT = 1 << 20
_kept: dict[int, str] = {}
"""Words spelled before. A plain dictionary of numbers and text, since it is in the process that is measured: what
`functools.lru_cache` keeps, the garbage collector would walk in every pass.
"""


def _spelled(number: int) -> str:
    word = _kept.get(number)
    if word is None:
        word = _spell(number)
        if len(_kept) < _KEPT:
            _kept[number] = word
    return word


def _spell(number: int) -> str:
    if number < 0:
        return _GLUE[-1 - number]
    if number >= _COMPOUNDS:
        return f"{_word(number % 997)}_{_word(number - _COMPOUNDS)}"
    return _word(number)


def _word(rank: int) -> str:
    """A word of its own for every rank; frequent ones are short."""
    before, suffix = _SUFFIXES.get(rank % 10, (0, ""))
    return _stem(rank - before) + suffix


def _stem(rank: int) -> str:
    syllables: list[str] = []
    rest = rank + len(_SYLLABLES) ** 2 - _SHORT
    while rest:
        rest, digit = divmod(rest, len(_SYLLABLES))
        syllables.append(_SYLLABLES[digit])
    return "".join(syllables)


def _forms(rank: int) -> tuple[str, ...]:
    """The word of a rank and those that a person who asks for it means, too."""
    before, _ = _SUFFIXES.get(rank % 10, (0, ""))
    stem = rank - before
    others = [
        _word(stem + back)
        for digit, (back, _) in _SUFFIXES.items()
        if (stem + back) % 10 == digit and stem + back != rank
    ]
    return (_word(rank), *([_word(stem)] if before else []), *others)


def _project(number: int) -> str:
    return f"/home/user/project-{number:02}"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- the texts of a folder --

_PARAGRAPH = re.compile(r"\n\s*\n")
_WORD = re.compile(r"[a-z]{3,64}")
_LONGEST_SESSION = 200


class FolderCorpus(Corpus):
    """The paragraphs of a folder's text files, each a message, until they end; what is no UTF-8 is left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sessions(self, messages: int) -> Iterator[Session]:
        made = 0
        for path in sorted(self._folder.rglob("*")):
            said = _paragraphs(path)[: messages - made] if path.is_file() else []
            for at in range(0, len(said), _LONGEST_SESSION):
                yield self._session(path, at, said[at : at + _LONGEST_SESSION], made + at)
            made += len(said)
            if made >= messages:
                return

    def queries(self, messages: int) -> list[Query]:
        counts: Counter[str] = Counter()
        for text in self.texts(messages):
            counts.update(set(_WORD.findall(text.lower())))
        ranked = [word for word, _ in counts.most_common()]
        stemmer = Stemmer.Stemmer("english")
        families: dict[str, list[str]] = {}
        for word in ranked:
            families.setdefault(str(stemmer.stemWord(word)), []).append(word)

        def word_at(rank: int) -> str:
            return ranked[rank % len(ranked)]

        def forms_of(rank: int) -> tuple[str, ...]:
            word = word_at(rank)
            return (word, *(other for other in families[str(stemmer.stemWord(word))] if other != word))

        project = next(self.sessions(messages)).project
        return queries_over(word_at, forms_of, project, _moment(messages * 3 // 4))

    def _session(self, path: Path, at: int, texts: list[str], first: int) -> Session:
        messages = [
            Message("assistant" if place % 2 else "user", text, _moment(first + place))
            for place, text in enumerate(texts)
        ]
        name = f"{path.relative_to(self._folder)}:{at}"[-400:]
        return Session(name, "agent-0", str(path.parent.relative_to(self._folder)), path.stem, messages)


def _moment(number: int) -> str:
    return _time(_START + timedelta(seconds=40 * number))


def _paragraphs(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    return [part for part in map(str.strip, _PARAGRAPH.split(text)) if part]


# -- what is asked --


def queries_over(
    word: Callable[[int], str], forms: Callable[[int], tuple[str, ...]], project: str, since: str
) -> list[Query]:
    """The mix, over words by their rank in frequency: forty queries of nine kinds."""

    def some(kind: str, *wanted: tuple[int, ...], project: str = "", since: str = "") -> Iterator[Query]:
        for ranks in wanted:
            text = " ".join(map(word, ranks))
            words = tuple(dict.fromkeys(form for rank in ranks for form in forms(rank)))
            yield Query(kind, text, words, project=project, since=since)

    starts = [word(rank)[:4] for rank in (90, 700, 6_000, 15_000)]
    missing = ("xyzzyqx", "qqwwxxyy", "xxqq zzxxww")
    return [
        *some("rare", (3_000,), (4_501,), (6_002,), (8_003,), (10_001,), (12_002,)),
        *some("middling", (200,), (301,), (452,), (601,), (700,), (902,)),
        *some("common", (3,), (8,), (17,), (25,), (40,)),
        *some("pair", (8, 9_001), (150, 420), (3, 17), (35, 702), (5_000, 7_001)),
        *some("triple", (150, 401, 900), (8, 300, 6_000), (3, 12, 40), (2_000, 4_000, 9_000)),
        *(Query("prefix", f"{start}*", (start,), prefix=True) for start in starts),
        *some("folded", (34,), (104,), (1_004,)),
        *some("filtered", (17,), (8, 300), project=project),
        *some("filtered", (25,), (150, 401), since=since),
        *(Query("nothing", text, tuple(text.split())) for text in missing),
    ]
