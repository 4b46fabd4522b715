"""The tokeniser and the BM25 scorer, pure: text to terms, counts to scores. Knows no store and no keys.

Every implementation of text search uses these and nothing else, so that all give the same hits with the
same scores. Source of the formula: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and
Beyond (2009), with the idf that never goes negative, ``ln((N - df + 0.5) / (df + 0.5) + 1)``.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeVar

import Stemmer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["STOP_WORDS", "Analysis", "Bm25", "Term", "query_terms", "term_spans", "tokens"]

STOP_WORDS = frozenset(
    "a an and are as at be but by for from had has have if in into is it its of on or so such that the their"
    " then there these they this to was were will with".split()
)
"""English words that stand in nearly every message and so tell nothing apart."""


Number = TypeVar("Number", float, "NDArray[np.float64]")


@dataclass(frozen=True)
class Bm25:
    """The scorer's judgement numbers."""

    k1: float = 1.2
    """How much a repeated term still adds. Higher: repetition counts for longer. The common range is 1.2 to 2."""
    b: float = 0.75
    """How much long documents are held back, 0 (not at all) to 1 (fully). Leave it unless lengths mean nothing."""

    def idf(self, documents: int, df: int) -> float:
        """The weight of a term that `df` of `documents` documents hold."""
        return math.log((documents - df + 0.5) / (df + 0.5) + 1)

    def gain(self, tf: Number, length: Number, average: float) -> Number:
        """What `tf` occurrences in a document of `length` terms are worth, before the term's idf.

        Of arrays of float64 each element is, to the last bit, what its numbers alone give: nothing but the four
        operations of IEEE 754 in this order.
        """
        return tf * (self.k1 + 1) / (tf + self.k1 * (1 - self.b + self.b * length / average))


@dataclass(frozen=True)
class Analysis:
    """How a query reads. What is stored does not depend on it, so that it may change without a reindex."""

    fold: bool = True
    """Let a term find the words that share its English stem: "deploy" finds "deployed". Switch it off for text
    that is not English or where each form must be told apart."""


@dataclass(frozen=True)
class Term:
    """One term of a query: a word, or with `prefix` the beginning of one."""

    text: str
    prefix: bool = False

    def lookups(self, analysis: Analysis) -> tuple[str, ...]:
        """What the stored words that match start with: each with one of these, none with two."""
        if self.prefix or not analysis.fold:
            return (self.text,)
        return _lookups(_stem(self.text))

    def matches(self, word: str, analysis: Analysis) -> bool:
        """Whether a stored word is one that this term means."""
        if self.prefix:
            return word.startswith(self.text)
        return word == self.text or (analysis.fold and _stem(word) == _stem(self.text))


_SHORT_STEM = 2
_MAX_LETTERS = 64

# Scripts written without spaces between words: a run of them is cut into overlapping pairs.
_CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_ASCII_QUERY = re.compile(r"(?:(?P<cjk>[^\x00-\x7f]+)|(?P<word>[a-z0-9]+))(?P<star>\*?)")
_ASCII_SPAN = re.compile(r"(?P<word>[A-Za-z0-9]+)")


def tokens(text: str) -> Iterator[str]:
    """The terms under which `text` is indexed, in order, repeated as they occur.

    Runs of letters, digits and combining marks, lower-cased (NFKC), longer than one character and at most 64,
    without stop words. A run of CJK characters gives each overlapping pair, and its last character alone, so
    that every character of it begins a term.
    """
    if text.isascii():
        yield from filter(_is_term, _ASCII_WORD.findall(text.lower()))
        return
    for match in _word().finditer(unicodedata.normalize("NFKC", text).lower()):
        run = match[0]
        if match.lastgroup == "cjk":
            yield from (run[at : at + 2] for at in range(len(run)))
        elif _is_term(run):
            yield run


def query_terms(query: str) -> list[Term]:
    """The distinct terms of a query, in order; any string is a query, and one without a term finds nothing."""
    terms: dict[Term, None] = {}
    pattern = _ASCII_QUERY if query.isascii() else _query_word()
    for match in pattern.finditer(unicodedata.normalize("NFKC", query).lower()):
        run, starred = match["cjk"] or match["word"], bool(match["star"])
        terms.update(dict.fromkeys(_run_terms(run, cjk=match["cjk"] is not None, starred=starred)))
    return list(terms)


def term_spans(text: str, terms: list[Term], analysis: Analysis) -> list[tuple[int, int]]:
    """Where words of `text` stand that one of `terms` matches: (start, end) in characters, ascending."""
    spans: list[tuple[int, int]] = []
    pattern = _ASCII_SPAN if text.isascii() else _word()
    for match in pattern.finditer(text):
        run = unicodedata.normalize("NFKC", match[0]).lower()
        if match.lastgroup == "cjk":
            spans.extend(_cjk_spans(run, match.start(), terms))
        elif any(_starts(run, term, analysis) for term in terms):
            spans.append(match.span())
    return _joined(spans)


def _is_term(word: str) -> bool:
    return 1 < len(word) <= _MAX_LETTERS and word not in STOP_WORDS


def _run_terms(run: str, *, cjk: bool, starred: bool) -> list[Term]:
    if cjk:
        # One character is the beginning of every pair that it opens; a longer run is its pairs.
        pairs = [Term(run[at : at + 2]) for at in range(len(run) - 1)]
        return pairs or [Term(run, prefix=True)]
    if starred:
        return [Term(run, prefix=True)]
    return [Term(run)] if _is_term(run) else []


def _starts(word: str, term: Term, analysis: Analysis) -> bool:
    return word.startswith(term.lookups(analysis)) and term.matches(word, analysis)


def _cjk_spans(run: str, start: int, terms: list[Term]) -> list[tuple[int, int]]:
    return [
        (start + at, start + at + len(term.text))
        for term in terms
        for at in range(len(run))
        if run.startswith(term.text, at)
    ]


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


@cache
def _word() -> re.Pattern[str]:
    letter = f"[^\\W_{_CJK}]"
    return re.compile(f"(?P<cjk>[{_CJK}]+)|(?P<word>{letter}(?:{letter}|[{_marks()}])*)")


@cache
def _query_word() -> re.Pattern[str]:
    return re.compile(rf"(?:{_word().pattern})(?P<star>\*?)")


@cache
def _marks() -> str:
    """The combining marks of Unicode as a character class: they belong to the letter before them.

    Computed at the first text that is not ASCII; `re` itself has no class for them. All of them stand in the
    two ranges below (Unicode 15).
    """
    codes = [*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)]
    marks = [code for code in codes if unicodedata.category(chr(code))[0] == "M"]
    first = [code for code, before in zip(marks, [0, *marks], strict=False) if code != before + 1]
    last = [code for code, after in zip(marks, [*marks[1:], 0], strict=True) if after != code + 1]
    return "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(first, last, strict=True))


def _lookups(stem: str) -> tuple[str, ...]:
    # A stem is the word's beginning but for its last letter (happy, happiness -> happi). A stem of one or two
    # letters is taken whole: cut, it would be the beginning of half the dictionary.
    if len(stem) <= _SHORT_STEM:
        return (stem,)
    # The one rule of the stemmer that changes more than the last letter: dying, lying, tying -> die, lie, tie.
    irregular = (f"{stem[0]}ying",) if stem[1:] == "ie" else ()
    return (stem[:-1], *irregular)


_stemmer = Stemmer.Stemmer("english")


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))
