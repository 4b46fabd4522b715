"""tantivy under measurement, a search library in Rust, by its Python binding: frequencies without positions, the
text stored, attributes indexed and fast, a writer of 128 MB with as many threads as it likes, a commit a batch. A
commit survives a loss of power, too, since it has no other.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import median

import tantivy

from ..corpus import Corpus, Query
from .common import LIMIT, Clock, Engine, Outcome, Row, resident, victims
from .peers import asked, filled, stored

__all__ = ["Tantivy"]

SINGLES = 100
"""It takes milliseconds for each."""


class Tantivy(Engine):
    """A search library in Rust, by its Python binding."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", stored=True, index_option="freq")
        for name in ("session", "project", "role"):
            builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_integer_field("number", stored=True, indexed=True, fast=True)
        builder.add_integer_field("ts", stored=True, indexed=True, fast=True)
        self._schema = builder.build()

    def fill(self, corpus: Corpus, messages: int) -> Outcome:
        writer = self._index().writer(128_000_000)

        def write(rows: list[Row]) -> None:
            for row in rows:
                writer.add_document(tantivy.Document(**row._asdict() | {"ts": _seconds(row.ts)}))
            writer.commit()

        outcome = filled(corpus, messages, SINGLES, write)
        closing = Clock()
        with closing:
            writer.wait_merging_threads()
        kept = sum(path.stat().st_size for path in self.folder.glob("*.store")) / 1e6
        size = stored(self.folder)
        outcome.figures |= {"close_s": closing.seconds, "index_mb": size - kept, "file_mb": size}
        return outcome

    def search(self, queries: list[Query]) -> Outcome:
        opening, bare = Clock(), resident()
        with opening:
            searcher = self._index().searcher()

        def ask(query: Query) -> None:
            searcher.search(self._query(query), LIMIT)

        return asked(queries, ask, opening, bare)

    def delete(self, corpus: Corpus, messages: int) -> Outcome:
        writer, deleting = self._index().writer(128_000_000), Clock()
        for session, _ in victims(corpus, messages):
            with deleting:
                writer.delete_documents_by_term("session", session.handle)
                writer.commit()
        writer.wait_merging_threads()
        return Outcome({"delete_ms": median(deleting.milliseconds)})

    def _index(self) -> tantivy.Index:
        return tantivy.Index(self._schema, path=str(self.folder), reuse=True)

    def _query(self, query: Query) -> tantivy.Query:
        make, schema = tantivy.Query, self._schema
        if query.prefix:
            words = make.regex_query(schema, "text", f"{query.words[0]}.*")
        else:
            each = [make.term_query(schema, "text", word, "freq") for word in query.words]
            words = make.boolean_query([(tantivy.Occur.Should, one) for one in each])
        conditions = [make.term_query(schema, "project", query.project)] if query.project else []
        if query.since:
            since = _seconds(query.since)
            conditions.append(make.range_query(schema, "ts", tantivy.FieldType.Integer, since, None))
        if not conditions:
            return words
        # A constant: a condition says whether a message counts, not how much.
        must = [make.const_score_query(condition, 0.0) for condition in conditions]
        return make.boolean_query([(tantivy.Occur.Must, part) for part in (words, *must)])


def _seconds(ts: str) -> int:
    return int(datetime.fromisoformat(ts).timestamp())
