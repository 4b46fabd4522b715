"""TextSearch: ranked full-text search as every store offers it. The seam alone: no implementation.

It knows keys, text, a number to weight by, opaque attributes and groups of keys; what a role or a session is
stays with whoever calls. `KeyedText` works on any store of five methods and is the executable specification: an
engine that ranks text itself gives the same hits with the same scores, to the last bit of their float64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from .batch import Batch, Column
from .bm25 import Analysis, Bm25, query_terms
from .errors import InvalidArgument
from .kv import KVStorage
from .marker import Marker
from .records import encode
from .schema import Schema, read_schema

__all__ = [
    "Attrs",
    "Between",
    "GroupHit",
    "GroupHits",
    "Hit",
    "Hits",
    "Scale",
    "TextSearch",
    "Where",
    "group_of",
    "passes",
    "require_limit",
    "require_query",
    "require_weight",
]

Attrs = Mapping[str, str]
"""What a document may be filtered by: names and values, opaque to the search."""


@dataclass(frozen=True)
class Between:
    """A half-open range of attribute values as text: ``since <= value < until``; None leaves an end open."""

    since: str | None = None
    until: str | None = None

    def __contains__(self, value: str) -> bool:
        return (self.since is None or value >= self.since) and (self.until is None or value < self.until)


Where = Mapping[str, str | Between]
"""What a document's attributes must be. One that lacks an attribute does not match a condition on it."""


@dataclass(frozen=True)
class Hit:
    """A document that matches."""

    key: bytes
    score: float


@dataclass(frozen=True)
class Hits:
    """The best documents, best first, equal scores in key order."""

    hits: list[Hit]
    complete: bool
    """Whether these are all that match: False when `limit` cut some off."""


@dataclass(frozen=True)
class Scale:
    """How much one index counts where groups are ranked."""

    ix: str
    best: float = 1.0
    """What the score of the group's best document is multiplied by, from 0."""
    whole: float = 0.0
    """The same for the score of the group as one document."""


@dataclass(frozen=True)
class GroupHit:
    """A group that matches."""

    group: bytes
    """What its documents' keys begin with, e.g. ``local/session/abc``."""
    score: float
    best: tuple[bytes | None, ...]
    """The key of its best document in each index, None where none of it matches."""


@dataclass(frozen=True)
class GroupHits:
    """The best groups, best first, equal scores in the order in which their documents stand."""

    hits: list[GroupHit]
    complete: bool
    """Whether these are all that match."""


class TextSearch(ABC):
    """Ranked search over indexes named `ix`.

    Required: `layout`, `index`, `drop`, `drop_prefix`, `search`, `rank`, `clear`. Provided: the judgement
    numbers, `spans`, `rebuilding`, and `conform`, which the required ones call first.

    Every implementation gives the same keys in the same order, and the same scores as float64 to the last bit.
    So the sums are part of the contract: a document's score starts from 0.0 and adds, in the order of
    `query_terms`, ``weight * idf * gain`` for each term that it holds, idf and gain as `Bm25` computes them
    from whole numbers and ``average = total length / documents``. A term stands for every stored word that
    `Term.matches`; its frequency in a document is the sum over those words, its df the number of documents
    that hold one, counted before `where`.
    """

    layout: str
    """The name of how this implementation keeps its index, as the store's `schema` row names it."""

    _conforms = False

    def __init__(self, kv: KVStorage, bm25: Bm25 | None = None, analysis: Analysis | None = None) -> None:
        self._kv = kv
        self._bm25 = bm25 or Bm25()
        self._analysis = analysis or Analysis()

    def bm25(self) -> Bm25:
        """The scorer's numbers."""
        return self._bm25

    def analysis(self) -> Analysis:
        """How a query reads."""
        return self._analysis

    def spans(self, query: str, text: str) -> list[tuple[int, int]]:
        """Where the words of `text` stand that `query` matches: (start, end) in characters, ascending."""
        return Marker(query_terms(query), self._analysis).spans(text)

    @abstractmethod
    async def index(
        self,
        batch: Batch,
        ix: str,
        key: bytes,
        text: str,
        *,
        weight: float = 1.0,
        attrs: Attrs | None = None,
        group: int = 0,
    ) -> None:
        """Stage the document `key` into `batch`, replacing what was indexed under it.

        `weight`, finite and from 0, multiplies its scores. A text without a term is no document. Documents
        whose keys share their first `group` parts (the realm not counted) are one group, 0 puts it in none; the
        number is the same for every document of an index. The batch is to be committed by
        `KVStorage.transact`: it presupposes what it read, and a concurrent change of the same group is a
        Conflict.
        """

    @abstractmethod
    async def drop(self, batch: Batch, ix: str, key: bytes) -> None:
        """Stage the removal of one document; one that is not there is no error."""

    @abstractmethod
    async def drop_prefix(self, batch: Batch, ix: str, prefix: bytes) -> None:
        """Stage the removal of every document whose key starts with `prefix`."""

    @abstractmethod
    async def search(self, ix: str, query: str, limit: int, where: Where | None = None) -> Hits:
        """The `limit` best documents for any string; `where` is applied before the cut."""

    @abstractmethod
    async def rank(
        self, query: str, scales: Sequence[Scale], limit: int, where: Where | None = None
    ) -> GroupHits:
        """The `limit` best groups for any string, by what several indexes hold of them.

        A score starts from 0.0 and adds ``best * B + whole * W`` for each index, in the order of `scales`, in
        which the group matches: in which a document of it that passes `where` does. Documents of no group have
        no part in it. B is the score that `search` gives the group's best document (of equal ones the least
        key). W is the BM25 score of the group as one document: from 0.0 and in the order of `query_terms`,
        ``idf * gain`` for each term of which the frequency is not 0. There, a term's frequency is the sum over
        the group's documents that pass `where`; the length is the sum over all its documents; a term's df is
        the number of groups with a document that holds it, before `where`; the average is the total length by
        the number of groups.
        """

    @abstractmethod
    async def clear(self) -> None:
        """Remove every index."""

    async def conform(self, batch: Batch | None = None) -> None:
        """Make sure that the store's index is of this layout and tokeniser, and whole.

        Raises SchemaMismatch where it is not: an answer from it would be silently wrong. A store that has no
        index yet is given its `schema` row in `batch`.
        """
        if self._conforms:
            return
        row = await read_schema(self._kv)
        if row is not None:
            row.require_text(self.layout)
            self._conforms = True
        elif batch is not None:
            batch.put(Column.CONFIG, self._kv.key("schema"), encode(Schema(text=self.layout)))

    @asynccontextmanager
    async def rebuilding(self) -> AsyncIterator[None]:
        """Inside, every index is empty and takes documents; until it ends well, the store asks for a reindex."""
        key = self._kv.key("schema")
        await self._kv.put_json(Column.CONFIG, key, Schema(text=self.layout, rebuilding=True))
        self._conforms = True
        try:
            await self.clear()
            yield
        except BaseException:
            self._conforms = False
            raise
        await self._kv.put_json(Column.CONFIG, key, Schema(text=self.layout))


def group_of(doc: bytes, parts: int) -> bytes:
    """The first `parts` parts of a key."""
    return b"/".join(doc.split(b"/", parts)[:parts])


def passes(attrs: Attrs, where: Where) -> bool:
    """Whether a document with these attributes is one that `where` asks for."""
    for name, condition in where.items():
        value = attrs.get(name)
        if value is None:
            return False
        if value not in condition if isinstance(condition, Between) else value != condition:
            return False
    return True


def require_query(query: str) -> str:
    """`query`, or InvalidArgument if it is no text."""
    if not isinstance(query, str):
        raise InvalidArgument("query", query, "must be text")
    return query


def require_weight(weight: float) -> float:
    """`weight`, or InvalidArgument unless it is a finite number, not negative."""
    if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise InvalidArgument("weight", weight, "must be a finite number, not negative")
    return weight


def require_limit(limit: int) -> int:
    """`limit`, or InvalidArgument unless it is a whole number, not negative."""
    if not isinstance(limit, int) or limit < 0:
        raise InvalidArgument("limit", limit, "must be a whole number, not negative")
    return limit
