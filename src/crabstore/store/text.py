"""TextSearch: ranked full-text search, and its implementation over nothing but keys.

It knows keys, text, a number to weight by and opaque attributes; what a role or a session is stays with
whoever calls. `KeyedText` works on any store of five methods and is the executable specification: an engine
that ranks text itself gives the same hits with the same scores.

    idx/text/{ix}/doc/{key}          DocRecord: length, weight, terms, attributes
    idx/text/{ix}/term/{term}/{key}  term frequency
    idx/text/{ix}/stats              doc count, total length

``{key}`` is the document's own key without the realm, as it stands, so that a prefix of keys is a prefix of
documents.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from .batch import Batch, Column
from .bm25 import Analysis, Bm25, Term, query_terms, term_spans, tokens
from .errors import BadRecord, InvalidArgument
from .kv import KVStorage
from .records import Record, decode, encode
from .schema import Schema, read_schema

__all__ = ["Attrs", "Between", "DocRecord", "Hit", "Hits", "KeyedText", "TextSearch", "Where"]

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
    attrs: Attrs = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Hits:
    """The best documents, best first, equal scores in key order."""

    hits: list[Hit]
    complete: bool
    """Whether these are all that match: False when `limit` cut some off."""


class TextSearch(ABC):
    """Ranked search over indexes named `ix`.

    Required: `layout`, `index`, `drop`, `drop_prefix`, `search`, `clear`. Provided: the judgement numbers,
    `spans`, `rebuilding`, and `conform`, which the required ones call first.
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
        return term_spans(text, query_terms(query), self._analysis)

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
    ) -> None:
        """Stage the document `key` into `batch`, replacing what was indexed under it.

        `weight` multiplies its scores. A text without a term is no document.
        """

    @abstractmethod
    async def drop(self, batch: Batch, ix: str, key: bytes) -> None:
        """Stage the removal of one document; one that is not there is no error."""

    @abstractmethod
    async def drop_prefix(self, batch: Batch, ix: str, prefix: bytes) -> None:
        """Stage the removal of every document whose key starts with `prefix`."""

    @abstractmethod
    async def search(
        self, ix: str, query: str, limit: int, where: Where | None = None, group: int | None = None
    ) -> Hits:
        """The `limit` best documents for any string.

        `where` is applied before the cut. With `group`, documents whose keys share their first `group` parts
        (the realm not counted) count as one, which its best document stands for.
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


class DocRecord(Record, omit_defaults=True):
    """What the index knows of a document; it names its own terms, so that retracting it touches only them."""

    len: int
    weight: float = 1.0
    terms: list[str] = []
    attrs: dict[str, str] = {}


class Stats(Record):
    """The size of an index."""

    docs: int = 0
    length: int = 0


Postings = dict[bytes, int]
"""Term frequency by document."""

_SLICE = 1024
"""Documents read at once: a word that stands everywhere must not keep the event loop."""
_SMALL = [str(tf).encode() for tf in range(64)]


class KeyedText(TextSearch):
    """Text search over a KVStorage: every posting is a key."""

    layout = "keyed-1"

    def __init__(self, kv: KVStorage, bm25: Bm25 | None = None, analysis: Analysis | None = None) -> None:
        super().__init__(kv, bm25, analysis)
        self._realm = kv.prefix()
        self._homes: dict[str, bytes] = {}

    async def index(
        self,
        batch: Batch,
        ix: str,
        key: bytes,
        text: str,
        *,
        weight: float = 1.0,
        attrs: Attrs | None = None,
    ) -> None:
        await self.conform(batch)
        await self.drop(batch, ix, key)
        counts = Counter(tokens(text))
        if not counts:
            return
        doc, home = self._doc(key), self._home(ix)
        length = counts.total()
        record = DocRecord(len=length, weight=weight, terms=list(counts), attrs=dict(attrs or {}))
        batch.put(Column.TEXT, home + b"doc/" + doc, encode(record))
        terms, tail = home + b"term/", b"/" + doc
        for term, tf in counts.items():
            value = _SMALL[tf] if tf < len(_SMALL) else str(tf).encode()
            batch.put(Column.TEXT, terms + term.encode() + tail, value)
        batch.add(Column.TEXT, home + b"stats", {"docs": 1, "length": length})

    async def drop(self, batch: Batch, ix: str, key: bytes) -> None:
        await self.conform()
        doc, home = self._doc(key), self._home(ix)
        row = await batch.get(Column.TEXT, home + b"doc/" + doc)
        if row is None:
            return
        record = decode(DocRecord, row, key)
        batch.add(Column.TEXT, home + b"stats", {"docs": -1, "length": -record.len})
        for term in record.terms:
            batch.delete(Column.TEXT, b"%bterm/%b/%b" % (home, term.encode(), doc))
        batch.delete(Column.TEXT, home + b"doc/" + doc)

    async def drop_prefix(self, batch: Batch, ix: str, prefix: bytes) -> None:
        await self.conform()
        docs = self._home(ix) + b"doc/"
        for row in await batch.scan_keys(Column.TEXT, docs + self._doc(prefix)):
            await self.drop(batch, ix, self._realm + row[len(docs) :])

    async def search(
        self, ix: str, query: str, limit: int, where: Where | None = None, group: int | None = None
    ) -> Hits:
        if not isinstance(query, str):
            raise InvalidArgument("query", query, "must be text")
        if not isinstance(limit, int) or limit < 0:
            raise InvalidArgument("limit", limit, "must be a whole number, not negative")
        await self.conform()
        postings = [found for term in query_terms(query) if (found := await self._postings(ix, term))]
        docs = sorted(set().union(*postings))
        records = await self._records(ix, docs, where)
        scores = await self._scores(ix, postings, records)
        if group is not None:
            scores = _best_of_groups(scores, group)
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        hits = [Hit(self._realm + doc, score, records[doc].attrs) for doc, score in ranked[:limit]]
        return Hits(hits, complete=len(ranked) <= limit)

    async def clear(self) -> None:
        await self._kv.delete_prefix(Column.TEXT, self._kv.prefix("idx", "text"))

    async def _postings(self, ix: str, term: Term) -> Postings:
        """The documents that hold a word which `term` means; their number is the term's df."""
        terms = self._home(ix) + b"term/"
        exact = term.lookup(self._analysis).encode()
        if not term.prefix and not self._analysis.fold:
            exact += b"/"
        found: Postings = defaultdict(int)
        meant: dict[bytes, bool] = {}
        for key, value in await self._kv.scan(Column.TEXT, terms + exact):
            word, _, doc = key[len(terms) :].partition(b"/")
            if word not in meant:
                meant[word] = term.matches(word.decode(), self._analysis)
            if meant[word]:
                found[doc] += _frequency(key, value)
        return found

    async def _records(self, ix: str, docs: list[bytes], where: Where | None) -> dict[bytes, DocRecord]:
        """The records of those documents that pass `where`; a posting without a record is skipped."""
        home = self._home(ix) + b"doc/"
        records: dict[bytes, DocRecord] = {}
        for at in range(0, len(docs), _SLICE):
            some = docs[at : at + _SLICE]
            rows = await self._kv.get_many(Column.TEXT, [home + doc for doc in some])
            read = {doc: decode(DocRecord, row, doc) for doc, row in zip(some, rows, strict=True) if row}
            records.update(read)
            await asyncio.sleep(0)
        if not where:
            return records
        return {doc: record for doc, record in records.items() if _passes(record.attrs, where)}

    async def _scores(
        self, ix: str, postings: Iterable[Postings], records: dict[bytes, DocRecord]
    ) -> dict[bytes, float]:
        stats = await self._kv.get_json(Column.TEXT, self._home(ix) + b"stats", Stats) or Stats()
        average = stats.length / max(stats.docs, 1) or 1.0
        scores: dict[bytes, float] = {}
        for found in postings:
            idf = self._bm25.idf(max(stats.docs, len(found)), len(found))
            for doc, tf in found.items():
                record = records.get(doc)
                if record is not None:
                    gain = self._bm25.gain(tf, record.len, average)
                    scores[doc] = scores.get(doc, 0.0) + record.weight * idf * gain
        return scores

    def _home(self, ix: str) -> bytes:
        home = self._homes.get(ix)
        if home is None:
            home = self._homes[ix] = self._kv.prefix("idx", "text", ix)
        return home

    def _doc(self, key: bytes) -> bytes:
        return key[len(self._realm) :]


def _frequency(key: bytes, value: bytes) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise BadRecord(key, "a term frequency is a decimal number") from error


def _passes(attrs: Attrs, where: Where) -> bool:
    for name, condition in where.items():
        value = attrs.get(name)
        if value is None:
            return False
        if value not in condition if isinstance(condition, Between) else value != condition:
            return False
    return True


def _best_of_groups(scores: dict[bytes, float], parts: int) -> dict[bytes, float]:
    """The best document of each group of keys that share their first `parts` parts."""
    best: dict[bytes, tuple[float, bytes]] = {}
    for doc in sorted(scores):
        group = b"/".join(doc.split(b"/", parts)[:parts])
        if group not in best or scores[doc] > best[group][0]:
            best[group] = (scores[doc], doc)
    return {doc: score for score, doc in best.values()}
