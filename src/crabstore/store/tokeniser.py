"""The tokeniser, pure: text to the terms under which it is indexed. Knows no store, no query and no score.

A term is a run of letters, digits and combining marks in lower case. An identifier of several words, written
``resolve_dirs`` or ``resolveDirs``, gives its words and all of them as one; so each way of writing it finds the
others, and the identifier itself most of all. Changing what `tokens` gives changes `schema.TOKENISER`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import pairwise
from operator import add

__all__ = ["STOP_WORDS", "is_term", "lowered", "normal", "parts", "run_pattern", "run_tokens", "tokens"]

STOP_WORDS = frozenset(
    "a an and are as at be but by for from had has have if in into is it its of on or so such that the their"
    " then there these they this to was were will with".split()
)
"""English words that stand in nearly every message and so tell nothing apart: not indexed."""

_MAX_LETTERS = 64
_MAX_HUMPS = 6
"""Words in one camelCase run at most, if digits stand in it: more are base64, whose pieces say nothing."""

# Scripts written without spaces between words: a run of them is cut into overlapping pairs.
_CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_PAIRED = re.compile(f"[{_CJK}]")
_ASCII_WORD = re.compile("[a-z0-9]{2,}")
_ASCII_RUN = re.compile("(?P<word>[A-Za-z0-9]+(?:_+[A-Za-z0-9]+)*)")
_ANY_HUMP = re.compile("[A-Z](?:(?<=[a-z0-9].)|[A-Z][a-z])")
"""Finds a hump wherever `_HUMP` does, and quickly passes over text that has none."""
# Before a capital after a small letter (resolve|Dirs), or before a capitalised word after a digit or a capital
# (sha256|Sum, HTTP|Server). The plural of capitals is one word: URLs.
_HUMP = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z](?!s(?![a-z]))[a-z])")
_RUN = re.compile(r"\w+")
_BETWEEN = re.compile(r"[^\x00-\x7f\w]")
_FOREIGN = re.compile("[^\x00-\x7f]+")


def tokens(text: str) -> list[str]:
    """The terms under which `text` is indexed, in order, repeated as they occur.

    Runs of letters, digits and combining marks (NFKC), lower-cased, longer than one character and at most 64,
    without stop words; the words of an identifier, and after them the identifier without what joined them. A run
    of CJK characters gives each overlapping pair, and its last character alone, so that every character of it
    begins a term. Any text will do: what is no letter, a lone surrogate too, stands between terms.
    """
    text = normal(text)
    return _ascii_tokens(text) if text.isascii() else _foreign_tokens(text)


def normal(text: str) -> str:
    """`text` with composed and decomposed, wide and narrow characters made the same (NFKC)."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@cache
def run_pattern(*, ascii_only: bool) -> re.Pattern[str]:
    """What finds runs: a group `cjk` to be cut into pairs, or a group `word` for `run_tokens`."""
    if ascii_only:
        return _ASCII_RUN
    letter = f"[^\\W_{_CJK}]"
    word = f"{letter}(?:{letter}|[{_marks()}])*"
    return re.compile(f"(?P<cjk>[{_CJK}]+)|(?P<word>{word}(?:_+{word})*)")


@lru_cache(maxsize=4096)
def run_tokens(run: str) -> tuple[str, ...]:
    """The terms of one run of letters, digits and underscores."""
    words = [run[start:end].lower() for start, end in parts(run)]
    if len(words) > 1:
        words.append("".join(words))
    return tuple(filter(is_term, words))


def parts(run: str) -> list[tuple[int, int]]:
    """Where the words of an identifier stand in it: (start, end); one for a plain word."""
    found: list[tuple[int, int]] = []
    for piece in re.finditer("[^_]+", run):
        humps = [match.start() for match in _HUMP.finditer(piece[0])]
        spoken = len(humps) < _MAX_HUMPS or piece[0].isalpha()
        cuts = [0, *(humps if spoken else ()), len(piece[0])]
        found += [(piece.start() + start, piece.start() + end) for start, end in pairwise(cuts)]
    return found


def is_term(word: str) -> bool:
    """Whether a word in lower case is indexed."""
    return 1 < len(word) <= _MAX_LETTERS and word not in STOP_WORDS


def _ascii_tokens(text: str) -> list[str]:
    if "_" in text or _ANY_HUMP.search(text):
        return [term for run in _RUN.findall(text) for term in run_tokens(run)]
    words: list[str] = _ASCII_WORD.findall(text.lower())
    return [word for word in words if word not in STOP_WORDS and len(word) <= _MAX_LETTERS]


def _foreign_tokens(text: str) -> list[str]:
    """The tokens of normal text that is not all ASCII, by the quickest way that is right for what is foreign."""
    foreign = "".join(_FOREIGN.findall(text))
    if not any(map(_is_letter, foreign)):
        # Quotes, dashes and emoji stand between words, as blanks do.
        return _ascii_tokens(_FOREIGN.sub(" ", text))
    if not _hard().search(foreign):
        return [term for run in _RUN.findall(text) for term in run_tokens(run)]
    return [term for match in run_pattern(ascii_only=False).finditer(text) for term in _terms(match)]


def lowered(text: str) -> str | None:
    """`text` in lower case, letter for letter, if its runs are plain: nothing but letters, digits, underscores.

    What stands between words and is not ASCII is blank in it. None where normalising moves letters, or where there
    are pairs or combining marks.
    """
    if not text.isascii():
        foreign = "".join(_FOREIGN.findall(text))
        if any(map(_is_letter, foreign)) and _hard().search(normal(foreign)):
            return None
        text = _BETWEEN.sub(" ", text)
        if not unicodedata.is_normalized("NFKC", text):
            return None
    low = text.lower()
    return low if len(low) == len(text) else None


def _is_letter(char: str) -> bool:
    """Whether a character may be part of a run."""
    return (
        char.isalnum()
        or char == "_"
        or unicodedata.category(char)[0] == "M"
        or _PAIRED.match(char) is not None
    )


def _terms(match: re.Match[str]) -> Iterable[str]:
    run = match[0]
    if match.lastgroup == "cjk":
        return (*map(add, run, run[1:]), run[-1])
    return run_tokens(run)


@cache
def _hard() -> re.Pattern[str]:
    """What there is to a run beyond letters, digits and underscores: pairs and combining marks."""
    return re.compile(f"[{_CJK}{_marks()}]")


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
