"""Where a text matches a query: the spans to mark in what is shown. Pure; says nothing of scores."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .bm25 import Analysis, Term
from .tokeniser import normal, parts, run_pattern, tokens

__all__ = ["Marker"]

Span = tuple[int, int]
"""(start, end) in characters."""


class Marker:
    """Marks the words that a query's terms mean, in as many texts as it is given."""

    def __init__(self, terms: Sequence[Term], analysis: Analysis) -> None:
        self._terms = terms
        self._analysis = analysis
        self._lookups = {lookup for term in terms for lookup in term.lookups(analysis)}
        self._known: dict[str, list[Span]] = {}

    def spans(self, text: str) -> list[Span]:
        """Where words of `text` stand that a term means, ascending: an identifier, or its words that are meant."""
        if not self._may_match(text):
            return []
        spans: list[Span] = []
        for match in run_pattern(ascii_only=text.isascii()).finditer(text):
            at = match.start()
            spans += [(at + start, at + end) for start, end in self._in_run(match)]
        return _joined(spans)

    def _may_match(self, text: str) -> bool:
        # Nearly all of what stands around a hit does not: a look at the letters saves looking at each word.
        letters = normal(text).lower().replace("_", "")
        return any(lookup in letters for lookup in self._lookups)

    def _in_run(self, match: re.Match[str]) -> list[Span]:
        run = match[0]
        spans = self._known.get(run)
        if spans is None:
            in_run = self._in_pairs if match.lastgroup == "cjk" else self._in_word
            spans = self._known[run] = in_run(run)
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
        return [(0, len(run))] if any(map(self._means, [run, *tokens(run)])) else []

    def _means(self, word: str) -> bool:
        word = normal(word).lower().replace("_", "")
        return any(
            word.startswith(term.lookups(self._analysis)) and term.matches(word, self._analysis)
            for term in self._terms
        )


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
