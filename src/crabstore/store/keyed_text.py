"""Text search over nothing but keys: every posting is one. For any store of five methods; ranks nothing by itself.

    idx/text/{ix}/doc/{key}          DocRecord: length, weight, terms, attributes, parts of its group's key
    idx/text/{ix}/term/{term}/{key}  term frequency
    idx/text/{ix}/group/{group}      GroupRecord: doc count, total length
    idx/text/{ix}/stats              doc count, total length, group count

``{key}`` is the document's own key without the realm, as it stands, so that a prefix of keys is a prefix of
documents; ``{group}`` is its first parts.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from .batch import Batch, Column
from .bm25 import Analysis, Bm25, Term, query_terms, tokens
from .errors import BadRecord
from .kv import KVStorage
from .records import Record, decode, encode
from .text import (
    Attrs,
    GroupHit,
    GroupHits,
    Hit,
    Hits,
    Scale,
    TextSearch,
    Where,
    group_of,
    passes,
    require_limit,
    require_query,
    require_weight,
)

__all__ = ["DocRecord", "KeyedText"]


class DocRecord(Record, omit_defaults=True):
    """What the index knows of a document; it names its own terms, so that retracting it touches only them."""

    len: int
    weight: float = 1.0
    terms: list[str] = []
    attrs: dict[str, str] = {}
    group: int = 0


class GroupRecord(Record):
    """The size of a group; it is there as long as the group has a document."""

    docs: int = 0
    length: int = 0


class Stats(Record):
    """The size of an index."""

    docs: int = 0
    length: int = 0
    groups: int = 0


Postings = dict[bytes, int]
"""Term frequency by document, or by group."""
Records = dict[bytes, DocRecord]

_SLICE = 1024
"""Documents read at once: a word that stands everywhere must not keep the event loop."""
_SMALL = [str(tf).encode() for tf in range(64)]


class KeyedText(TextSearch):
    """Text search over a KVStorage: every posting is a key."""

    layout = "keyed-2"

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
        group: int = 0,
    ) -> None:
        require_weight(weight)
        await self.conform(batch)
        await self.drop(batch, ix, key)
        counts = Counter(tokens(text))
        if not counts:
            return
        doc, home = self._doc(key), self._home(ix)
        length = counts.total()
        record = DocRecord(
            len=length, weight=weight, terms=list(counts), attrs=dict(attrs or {}), group=group
        )
        batch.put(Column.TEXT, home + b"doc/" + doc, encode(record))
        terms, tail = home + b"term/", b"/" + doc
        for term, tf in counts.items():
            value = _SMALL[tf] if tf < len(_SMALL) else str(tf).encode()
            batch.put(Column.TEXT, terms + term.encode() + tail, value)
        await self._count(batch, home, doc, record, 1)

    async def drop(self, batch: Batch, ix: str, key: bytes) -> None:
        await self.conform()
        doc, home = self._doc(key), self._home(ix)
        row = await batch.get(Column.TEXT, home + b"doc/" + doc)
        batch.expect(Column.TEXT, home + b"doc/" + doc, row)
        if row is None:
            return
        record = decode(DocRecord, row, key)
        await self._count(batch, home, doc, record, -1)
        for term in record.terms:
            batch.delete(Column.TEXT, b"%bterm/%b/%b" % (home, term.encode(), doc))
        batch.delete(Column.TEXT, home + b"doc/" + doc)

    async def drop_prefix(self, batch: Batch, ix: str, prefix: bytes) -> None:
        await self.conform()
        docs = self._home(ix) + b"doc/"
        for row in await batch.scan_keys(Column.TEXT, docs + self._doc(prefix)):
            await self.drop(batch, ix, self._realm + row[len(docs) :])

    async def search(self, ix: str, query: str, limit: int, where: Where | None = None) -> Hits:
        require_query(query)
        require_limit(limit)
        await self.conform()
        postings = await self._postings(ix, query)
        records = _passing(await self._records(ix, postings), where)
        scores = self._scores(postings, records, await self._stats(ix))
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        hits = [Hit(self._realm + doc, score) for doc, score in ranked[:limit]]
        return Hits(hits, complete=len(ranked) <= limit)

    async def rank(
        self, query: str, scales: Sequence[Scale], limit: int, where: Where | None = None
    ) -> GroupHits:
        require_query(query)
        require_limit(limit)
        await self.conform()
        scores: dict[bytes, float] = {}
        best: dict[bytes, list[bytes | None]] = {}
        for at, scale in enumerate(scales):
            for group, (score, doc) in (await self._groups(query, scale, where)).items():
                scores[group] = scores.get(group, 0.0) + score
                best.setdefault(group, [None] * len(scales))[at] = self._realm + doc
        ranked = sorted(scores, key=lambda group: (-scores[group], group + b"/"))[:limit]
        hits = [GroupHit(self._realm + group, scores[group], tuple(best[group])) for group in ranked]
        return GroupHits(hits, complete=len(scores) <= limit)

    async def _groups(
        self, query: str, scale: Scale, where: Where | None
    ) -> dict[bytes, tuple[float, bytes]]:
        """The groups that match in one index: what it adds to the score, and the best document."""
        postings, stats = await self._postings(scale.ix, query), await self._stats(scale.ix)
        records = await self._records(scale.ix, postings)
        groups = {doc: group_of(doc, record.group) for doc, record in records.items() if record.group}
        passing = {doc: record for doc, record in _passing(records, where).items() if doc in groups}
        found = _best(self._scores(postings, passing, stats), groups)
        sizes = await self._sizes(scale.ix, list(found))
        wholes = self._wholes(postings, passing, groups, sizes, stats)
        return {
            group: (scale.best * score + scale.whole * wholes[group], doc)
            for group, (score, doc) in found.items()
        }

    async def clear(self) -> None:
        await self._kv.delete_prefix(Column.TEXT, self._kv.prefix("idx", "text"))

    async def _count(self, batch: Batch, home: bytes, doc: bytes, record: DocRecord, sign: int) -> None:
        """Count a document in (sign 1) or out (sign -1) of its index and its group."""
        deltas = {"docs": sign, "length": sign * record.len}
        if record.group:
            key = home + b"group/" + group_of(doc, record.group)
            row = await batch.get(Column.TEXT, key)
            batch.expect(Column.TEXT, key, row)
            old = decode(GroupRecord, row, key) if row else GroupRecord()
            new = GroupRecord(docs=old.docs + sign, length=old.length + deltas["length"])
            if new.docs > 0:
                batch.put(Column.TEXT, key, encode(new))
            else:
                batch.delete(Column.TEXT, key)
            deltas["groups"] = (new.docs > 0) - (old.docs > 0)
        batch.add(Column.TEXT, home + b"stats", deltas)

    async def _postings(self, ix: str, query: str) -> list[Postings]:
        """For each term of the query that is found, the documents that hold it; their number is its df."""
        found = [await self._documents(ix, term) for term in query_terms(query)]
        return [postings for postings in found if postings]

    async def _documents(self, ix: str, term: Term) -> Postings:
        """The documents that hold a word which `term` means."""
        terms = self._home(ix) + b"term/"
        found: Postings = defaultdict(int)
        meant: dict[bytes, bool] = {}
        exact = b"" if term.prefix or self._analysis.fold else b"/"
        for lookup in term.lookups(self._analysis):
            for key, value in await self._kv.scan(Column.TEXT, terms + lookup.encode() + exact):
                word, _, doc = key[len(terms) :].partition(b"/")
                if word not in meant:
                    meant[word] = term.matches(word.decode(), self._analysis)
                if meant[word]:
                    found[doc] += _frequency(key, value)
        return found

    async def _records(self, ix: str, postings: Iterable[Postings]) -> Records:
        """The records of all documents in `postings`; a posting without a record is skipped."""
        home = self._home(ix) + b"doc/"
        docs = sorted(set().union(*postings))
        records: Records = {}
        for at in range(0, len(docs), _SLICE):
            some = docs[at : at + _SLICE]
            rows = await self._kv.get_many(Column.TEXT, [home + doc for doc in some])
            read = {doc: decode(DocRecord, row, doc) for doc, row in zip(some, rows, strict=True) if row}
            records.update(read)
            await asyncio.sleep(0)
        return records

    async def _sizes(self, ix: str, groups: list[bytes]) -> dict[bytes, int]:
        """The length of each group as one document."""
        keys = [self._home(ix) + b"group/" + group for group in groups]
        rows = await self._kv.get_many(Column.TEXT, keys)
        return {
            group: decode(GroupRecord, row, key).length if row else 0
            for group, key, row in zip(groups, keys, rows, strict=True)
        }

    async def _stats(self, ix: str) -> Stats:
        return await self._kv.get_json(Column.TEXT, self._home(ix) + b"stats", Stats) or Stats()

    def _scores(self, postings: Iterable[Postings], records: Records, stats: Stats) -> dict[bytes, float]:
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

    def _wholes(
        self,
        postings: Iterable[Postings],
        records: Records,
        groups: dict[bytes, bytes],
        sizes: dict[bytes, int],
        stats: Stats,
    ) -> dict[bytes, float]:
        """The score of each group as one document, of whose documents only `records` count."""
        average = stats.length / max(stats.groups, 1) or 1.0
        wholes = dict.fromkeys(sizes, 0.0)
        for found in postings:
            df = len({groups[doc] for doc in found if doc in groups})
            idf = self._bm25.idf(max(stats.groups, df), df)
            for group, tf in _by_group(found, records, groups).items():
                wholes[group] = wholes[group] + idf * self._bm25.gain(tf, sizes[group], average)
        return wholes

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


def _passing(records: Records, where: Where | None) -> Records:
    if not where:
        return records
    return {doc: record for doc, record in records.items() if passes(record.attrs, where)}


def _best(scores: dict[bytes, float], groups: dict[bytes, bytes]) -> dict[bytes, tuple[float, bytes]]:
    """Each group's best document with its score; of equal ones the least key."""
    best: dict[bytes, tuple[float, bytes]] = {}
    for doc in sorted(scores):
        group = groups[doc]
        if group not in best or scores[doc] > best[group][0]:
            best[group] = (scores[doc], doc)
    return best


def _by_group(found: Postings, records: Records, groups: dict[bytes, bytes]) -> Postings:
    summed: Postings = defaultdict(int)
    for doc, tf in found.items():
        if doc in records:
            summed[groups[doc]] += tf
    return summed
