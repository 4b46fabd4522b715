"""A made corpus: words whose frequencies follow Zipf's law, messages of chat length, the same for every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

__all__ = ["MESSAGES_PER_SESSION", "Corpus"]

MESSAGES_PER_SESSION = 40
_SYLLABLES = [
    "ba",
    "cor",
    "de",
    "fi",
    "gra",
    "hul",
    "in",
    "jo",
    "ka",
    "lem",
    "mo",
    "nu",
    "or",
    "pra",
    "qui",
    "ros",
]


class Corpus:
    """Messages of about 20 words over a vocabulary of `words` made-up words, ranked by frequency."""

    def __init__(self, *, words: int = 40_000, seed: int = 7) -> None:
        self.vocabulary = [_word(rank) for rank in range(words)]
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(words)))
        self._seed = seed

    def messages(self, count: int) -> Iterator[str]:
        """The first `count` messages."""
        draw = random.Random(self._seed)
        for _ in range(count):
            length = max(3, round(draw.gauss(21, 8)))
            yield " ".join(draw.choices(self.vocabulary, cum_weights=self._weights, k=length))

    def queries(self) -> dict[str, str]:
        """A fixed mix, by what each is: common, middling and rare words, pairs, a prefix."""
        word = self.vocabulary
        return {
            "common": word[5],
            "middling": word[300],
            "rare": word[20_000],
            "common and rare": f"{word[8]} {word[9_000]}",
            "three middling": f"{word[150]} {word[400]} {word[900]}",
            "prefix": f"{word[700][:5]}*",
        }


def _word(rank: int) -> str:
    """A word of its own for every rank; frequent ones are short."""
    syllables: list[str] = []
    rank += 16
    while rank:
        rank, digit = divmod(rank, 16)
        syllables.append(_SYLLABLES[digit])
    return "".join(syllables)
