"""The terms of a query and the BM25 scorer, pure: queries to terms, counts to scores. Knows no store and no keys.

Every implementation of text search uses these and nothing else, so that all give the same hits with the
same scores. Source of the formula: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and
Beyond (2009), with the idf that never goes negative, ``ln((N - df + 0.5) / (df + 0.5) + 1)``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeVar

import Stemmer

from .tokeniser import normal, run_pattern, run_tokens, tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["QUESTION_WORDS", "Analysis", "Bm25", "Term", "query_terms", "tokens"]

QUESTION_WORDS = frozenset(
    "what when where who whom whose which why how do does did done can could would should am been being me my mine"
    " you your yours he him his she her hers we us our ours them any some about ll ve".split()
)
"""Words that questions are made of. They are indexed, and a query passes over them as long as others are left."""

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


_MAX_TERMS = 128


def query_terms(query: str) -> list[Term]:
    """The distinct terms of a query, in order; any string is a query, and one without a term finds nothing.

    The words of `tokens`, without `QUESTION_WORDS` unless it has no others. A run before ``*`` is the beginning
    of a word or an identifier; one CJK character is the beginning of every pair that it opens. Of a query that is
    a whole document, the first 128 terms count: what a search costs is bounded, whatever is pasted into it.
    """
    terms: dict[Term, None] = {}
    query = normal(query)
    for match in _query_pattern(ascii_only=query.isascii()).finditer(query):
        terms.update(dict.fromkeys(_run_terms(match)))
    telling = [term for term in terms if term.prefix or term.text not in QUESTION_WORDS]
    return (telling or list(terms))[:_MAX_TERMS]


def _run_terms(match: re.Match[str]) -> list[Term]:
    found = match.groupdict()
    if run := found.get("cjk"):
        return [Term(run[at : at + 2]) for at in range(len(run) - 1)] or [Term(run, prefix=True)]
    run = found["word"]
    if found["star"]:
        return [Term(run.lower().replace("_", ""), prefix=True)]
    return [Term(word) for word in run_tokens(run)]


@cache
def _query_pattern(*, ascii_only: bool) -> re.Pattern[str]:
    return re.compile(rf"(?:{run_pattern(ascii_only=ascii_only).pattern})(?:_*(?P<star>\*))?")


def _lookups(stem: str) -> tuple[str, ...]:
    # A stem is the word's beginning but for its last letter (happy, happiness -> happi). A stem of one or two
    # letters is taken whole: cut, it would be the beginning of half the dictionary.
    if len(stem) <= _SHORT_STEM:
        return (stem,)
    # The one rule of the stemmer that changes more than the last letter: dying, lying, tying -> die, lie, tie.
    irregular = (f"{stem[0]}ying",) if stem[1:] == "ie" else ()
    return (stem[:-1], *irregular)


_stemmer = Stemmer.Stemmer("english")


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))
