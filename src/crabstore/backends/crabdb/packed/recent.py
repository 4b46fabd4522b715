"""The documents of an index that no segment holds yet, in memory, ready to be searched.

A few thousand at most: what the rows under ``new/`` say, and nothing else. Ordinals follow arrival, not keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from ....store.bm25 import Analysis, Term
from ....store.text import Where, group_of, passes
from .arrays import Bools, Floats, Ints, Numbers, narrowed
from .hashes import group_hash
from .lists import Docs, Pinned, PostingList, Singles
from .rows import Fresh

__all__ = ["Recent"]


class Recent:
    """Fresh documents, by key and by term."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Fresh] = {}
        """The documents."""
        self.size = 0
        """How many terms they name: what sealing them costs."""
        self.version = 0
        """Another after each change that a search can see."""
        # What follows is for searches, and catches up with the rows when one comes: who only writes never pays.
        self._unread: dict[bytes, Fresh] = {}
        self._keys: list[bytes] = []
        self._fresh: list[Fresh] = []
        self._ordinals: dict[bytes, int] = {}
        self._length = 0
        self._lengths = array("Q")
        self._weights = array("d")
        self._alive = bytearray()
        self._groups: list[int] = []
        self._words: list[str] = []
        self._postings: dict[str, list[int]] = {}
        self._answers: dict[tuple[Term, Analysis], PostingList | None] = {}

    def put(self, doc: bytes, fresh: Fresh) -> None:
        """Add a document, instead of what stood under its key."""
        self.remove(doc)
        self.rows[doc] = self._unread[doc] = fresh
        self.size += len(fresh.terms)

    def remove(self, doc: bytes) -> None:
        """Take a document out, if it is here."""
        fresh = self.rows.pop(doc, None)
        if fresh is None:
            return
        self.size -= len(fresh.terms)
        if self._unread.pop(doc, None) is None:
            ordinal = self._ordinals.pop(doc)
            self._alive[ordinal] = 0
            self._length -= self._lengths[ordinal]
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._answers.clear()

    def catch_up(self) -> None:
        """Have what searches ask follow the rows."""
        if not self._unread:
            return
        known = len(self._words)
        for doc, fresh in self._unread.items():
            self._read(doc, fresh)
        self._unread = {}
        self._changed()
        if len(self._words) > known:
            self._words.sort()  # a sorted list with a short tail: one pass

    def _read(self, doc: bytes, fresh: Fresh) -> None:
        ordinal, length = len(self._keys), sum(fresh.terms.values())
        self._ordinals[doc] = ordinal
        self._keys.append(doc)
        self._fresh.append(fresh)
        self._length += length
        self._lengths.append(length)
        self._weights.append(fresh.weight)
        self._alive.append(1)
        self._groups.append(group_hash(group_of(doc, fresh.group)))
        postings, words = self._postings, self._words
        for term in fresh.terms:
            held = postings.get(term)
            if held is None:
                postings[term] = [ordinal]
                words.append(term)
            else:
                held.append(ordinal)

    # -- what the sealed documents answer, too; after `catch_up` ------------------------------------------

    @property
    def docs(self) -> int:
        """Ordinals in use, those of dead documents included."""
        return len(self._keys)

    @property
    def length(self) -> int:
        """Terms in all documents, repetitions included."""
        return self._length

    def groups(self) -> list[int]:
        """The hash of the group of each document, by ordinal."""
        return self._groups

    @property
    def lengths(self) -> Numbers:
        """Terms in each document."""
        return np.array(self._lengths, np.uint64)

    @property
    def alive(self) -> Bools:
        """Which documents are live."""
        return np.array(self._alive, np.bool_)

    def weights(self, ordinals: Docs | Ints) -> Floats:
        """The weight of each of these documents."""
        return np.array(self._weights)[ordinals]

    def norms(self, pinned: Pinned) -> tuple[Singles, Singles]:
        """What scales each document's frequencies, and what holds them back."""
        return pinned.norms(np.array(self._weights), self.lengths)

    def key(self, ordinal: int) -> bytes:
        """The key of one document."""
        return self._keys[ordinal]

    def passing(self, where: Where) -> Bools:
        """Which documents meet every condition."""
        return np.array([passes(fresh.attrs, where) for fresh in self._fresh], np.bool_)

    def postings(self, term: Term, analysis: Analysis) -> PostingList | None:
        """The live documents that hold a word which `term` means."""
        asked = (term, analysis)
        if asked not in self._answers:
            self._answers[asked] = self._find(term, analysis)
        return self._answers[asked]

    def _find(self, term: Term, analysis: Analysis) -> PostingList | None:
        frequencies: dict[int, int] = {}
        for word in self._meant(term, analysis):
            for ordinal in self._postings[word]:
                if self._alive[ordinal]:
                    frequency = self._fresh[ordinal].terms[word]
                    frequencies[ordinal] = frequencies.get(ordinal, 0) + frequency
        if not frequencies:
            return None
        docs = sorted(frequencies)
        tfs = np.array([frequencies[ordinal] for ordinal in docs], np.int64)
        return PostingList(np.array(docs, np.uint32), narrowed(tfs))

    def _meant(self, term: Term, analysis: Analysis) -> Iterator[str]:
        for prefix in term.lookups(analysis):
            for at in range(bisect_left(self._words, prefix), len(self._words)):
                word = self._words[at]
                if not word.startswith(prefix):
                    break
                if term.matches(word, analysis):
                    yield word
