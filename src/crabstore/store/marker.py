"""Where a text matches a query: the spans to mark in what is shown. Pure; says nothing of scores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from .bm25 import Analysis, Term
from .tokeniser import lowered, normal, parts, run_pattern, tokens

__all__ = ["Marker"]

Span = tuple[int, int]
"""(start, end) in characters."""
Run = tuple[int, str, bool]
"""Where a run begins, itself, and whether it is to be cut into pairs."""


class Marker:
    """Marks the words that a query's terms mean, in as many texts as it is given."""

    def __init__(self, terms: Sequence[Term], analysis: Analysis) -> None:
        self._terms = terms
        self._analysis = analysis
        self._known: dict[str, list[Span]] = {}
        self._starts = [(term.lookups(analysis), term) for term in terms]
        self._lookups = sorted({lookup for lookups, _ in self._starts for lookup in lookups})

    def spans(self, text: str) -> list[Span]:
        """Where words of `text` stand that a term means, ascending: an identifier, or its words that are meant."""
        if not self._lookups:
            return []
        low = lowered(text)
        runs = self._any_runs(text) if low is None else self._plain_runs(text, low)
        return _joined(
            [(at + start, at + end) for at, run, cjk in runs for start, end in self._in_run(run, cjk)]
        )

    def _plain_runs(self, text: str, low: str) -> Iterator[Run]:
        """The runs in which a lookup stands where a word may begin."""
        # Most of what stands around a hit matches nothing, so the letters are looked at before the words.
        for start, end in self._joined_lookups(low) if "_" in low else self._plain_lookups(low):
            if start == 0 or not text[start - 1].isalnum() or text[start].isupper():
                yield _run_about(text, start, end)

    def _plain_lookups(self, low: str) -> Iterator[Span]:
        for lookup in self._lookups:
            start = low.find(lookup)
            while start >= 0:
                yield start, start + len(lookup)
                start = low.find(lookup, start + 1)

    def _joined_lookups(self, low: str) -> Iterator[Span]:
        """Where a lookup stands with underscores between its letters, as in an identifier of its words."""
        return (match.span(1) for match in self._joinable.finditer(low))

    @cached_property
    def _joinable(self) -> re.Pattern[str]:
        # Looking ahead consumes nothing: one lookup may begin inside another.
        return re.compile(f"(?=({'|'.join('_*'.join(map(re.escape, lookup)) for lookup in self._lookups)}))")

    def _any_runs(self, text: str) -> Iterator[Run]:
        """Every run of a text of any script."""
        for match in run_pattern(ascii_only=False).finditer(text):
            yield match.start(), match[0], match.lastgroup == "cjk"

    def _in_run(self, run: str, cjk: bool) -> list[Span]:
        spans = self._known.get(run)
        if spans is None:
            spans = self._known[run] = self._in_pairs(run) if cjk else self._in_word(run)
        return spans

    def _in_pairs(self, run: str) -> list[Span]:
        letters = normal(run)
        if len(letters) != len(run):
            return self._whole(run)
        return [
            (at, at + len(term.text))
            for term in self._terms
            for at in range(len(run))
            if letters.startswith(term.text, at)
        ]

    def _in_word(self, run: str) -> list[Span]:
        words = parts(run)
        if len(words) == 1 or self._means("".join(run[start:end] for start, end in words)):
            return self._whole(run)
        return [(start, end) for start, end in words if self._means(run[start:end])]

    def _whole(self, run: str) -> list[Span]:
        # Normalised, a run may fall into several.
        meant = self._means(run) or (not run.isascii() and any(map(self._means, tokens(run))))
        words = parts(run)
        return [(words[0][0], words[-1][1])] if meant and words else []

    def _means(self, word: str) -> bool:
        word = normal(word).lower().replace("_", "")
        return any(
            word.startswith(lookups) and term.matches(word, self._analysis) for lookups, term in self._starts
        )


def _run_about(text: str, start: int, end: int) -> Run:
    """The whole run of which these are letters."""
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return start, text[start:end], False


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
