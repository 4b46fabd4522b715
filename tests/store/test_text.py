"""Ranked search: the formula, the tokeniser, folding, grouping, filters, and a naive model of all of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Column
from crabstore.store.bm25 import Analysis, Bm25, query_terms, term_spans, tokens
from crabstore.store.errors import BadRecord, InvalidArgument, SchemaMismatch
from crabstore.store.records import encode
from crabstore.store.reindex import reindex
from crabstore.store.schema import Schema
from crabstore.store.text import Between, Hits, KeyedText, Where

T = TypeVar("T")
Store = VolatileBackend

WORDS = [
    "deploy",
    "deployed",
    "deployment",
    "crab",
    "crabs",
    "sea",
    "error",
    "errors",
    "run",
    "running",
    "ran",
]
documents = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5)),
    st.tuples(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), st.sampled_from([0.5, 1.0, 2.0])),
)
queries = st.lists(st.sampled_from([*WORDS, "dep*", "r*", "zzz"]), max_size=4).map(" ".join)


def on_store(body: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        return await body(VolatileBackend())

    return asyncio.run(run())


async def index(store: Store, docs: dict[tuple[str, int], tuple[str, float]]) -> None:
    for (group, number), (text, weight) in docs.items():
        batch = store.batch()
        key = store.key("doc", group, str(number))
        await store.text.index(batch, "x", key, text, weight=weight, attrs={"n": str(number)})
        await store.commit(batch)


def naive(docs: dict[tuple[str, int], tuple[str, float]], query: str) -> dict[tuple[str, int], float]:
    """The same scores from the definition: every document read for every term."""
    split = {key: (list(tokens(text)), weight) for key, (text, weight) in docs.items()}
    split = {key: value for key, value in split.items() if value[0]}
    average = sum(len(words) for words, _ in split.values()) / max(len(split), 1)
    scores: dict[tuple[str, int], float] = {}
    for term in query_terms(query):
        tf = {key: sum(term.matches(word, Analysis()) for word in words) for key, (words, _) in split.items()}
        df = sum(count > 0 for count in tf.values())
        for key, count in tf.items():
            if count:
                words, weight = split[key]
                idf = math.log((len(split) - df + 0.5) / (df + 0.5) + 1)
                gain = count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words) / average))
                scores[key] = scores.get(key, 0.0) + weight * idf * gain
    return scores


@settings(max_examples=150)
@given(documents, documents, st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 5))), queries)
def test_scores_are_those_of_the_definition_after_any_history(
    first: dict[tuple[str, int], tuple[str, float]],
    second: dict[tuple[str, int], tuple[str, float]],
    dropped: set[tuple[str, int]],
    query: str,
) -> None:
    async def body(store: Store) -> Hits:
        await index(store, first)
        await index(store, second)
        for group, number in dropped:
            batch = store.batch()
            await store.text.drop(batch, "x", store.key("doc", group, str(number)))
            await store.commit(batch)
        return await store.text.search("x", query, 100)

    docs = {key: value for key, value in {**first, **second}.items() if key not in dropped}
    hits = on_store(body)
    found = {
        (parts[2], int(parts[3])): hit.score for hit in hits.hits if (parts := hit.key.decode().split("/"))
    }
    assert found == pytest.approx(naive(docs, query))
    assert [(-hit.score, hit.key) for hit in hits.hits] == sorted((-hit.score, hit.key) for hit in hits.hits)
    assert hits.complete


def test_dropping_everything_leaves_only_zero_counters() -> None:
    async def body(store: Store) -> list[tuple[bytes, bytes]]:
        await index(store, {("a", 1): ("crab sea", 1.0), ("b", 1): ("crab", 1.0)})
        batch = store.batch()
        await store.text.drop_prefix(batch, "x", store.prefix("doc"))
        await store.commit(batch)
        return await store.scan(Column.TEXT, store.prefix())

    assert on_store(body) == [(b"local/idx/text/x/stats", b'{"docs":0,"length":0}')]


def test_a_group_is_represented_by_its_best_document_and_cut_says_incomplete() -> None:
    docs = {("a", n): ("crab", 1.0) for n in range(5)} | {("a", 9): ("crab", 2.0), ("b", 1): ("crab", 1.0)}

    async def body(store: Store) -> tuple[Hits, Hits]:
        await index(store, docs)
        return await store.text.search("x", "crab", 5, group=2), await store.text.search(
            "x", "crab", 1, group=2
        )

    both, one = on_store(body)
    assert [hit.key for hit in both.hits] == [b"local/doc/a/9", b"local/doc/b/1"]
    assert both.complete and not one.complete and one.hits == both.hits[:1]


def test_filters_apply_before_the_cut() -> None:
    async def body(store: Store) -> list[list[bytes]]:
        await index(store, {("a", n): ("crab " * (10 - n), 1.0) for n in range(10)})
        wheres: list[Where] = [
            {"n": "7"},
            {"n": Between("3", "5")},
            {"n": Between(until="1")},
            {"absent": "7"},
        ]
        return [[hit.key[-1:] for hit in (await store.text.search("x", "crab", 2, w)).hits] for w in wheres]

    assert on_store(body) == [[b"7"], [b"3", b"4"], [b"0"], []]


def test_folding_finds_what_shares_a_stem_and_can_be_switched_off() -> None:
    async def body(store: Store) -> tuple[int, int]:
        await index(
            store, {("a", n): (word, 1.0) for n, word in enumerate(["deployed", "deploys", "deplore"])}
        )
        plain = KeyedText(store, analysis=Analysis(fold=False))
        return len((await store.text.search("x", "deploy", 9)).hits), len(
            (await plain.search("x", "deploy", 9)).hits
        )

    assert on_store(body) == (2, 0)


def test_the_store_is_asked_for_its_numbers() -> None:
    async def body(store: Store) -> float:
        store.bm25 = Bm25(k1=0.0)
        await index(store, {("a", 1): ("crab crab crab", 1.0)})
        return (await store.text.search("x", "crab", 1)).hits[0].score

    assert on_store(body) == pytest.approx(math.log(0.5 / 1.5 + 1))


@given(st.text())
def test_any_text_is_a_document_and_any_string_a_query(text: str) -> None:
    async def body(store: Store) -> None:
        await index(store, {("a", 1): (text, 1.0)})
        hits = await store.text.search("x", text, 10)
        findable = bool(query_terms(text)) and any(True for _ in tokens(text))
        assert len(hits.hits) == int(findable)
        for start, end in store.text.spans(text, text):
            assert 0 <= start < end <= len(text)

    on_store(body)


@given(st.text(st.characters(categories=["L", "N", "M", "P", "Z"])))
def test_a_documents_own_words_find_it(text: str) -> None:
    words = set(tokens(text))

    async def body(store: Store) -> None:
        await index(store, {("a", 1): (text, 1.0)})
        for word in words:
            assert (await store.text.search("x", word, 1)).hits, word

    on_store(body)


def test_tokens_are_words_pairs_and_nothing_else() -> None:
    assert list(tokens("The QUICK fox_trot v2.1 a é")) == ["quick", "fox", "trot", "v2"]
    assert list(tokens("x" * 64 + " " + "y" * 65)) == ["x" * 64]
    assert list(tokens("数据库abc")) == ["数据", "据库", "库", "abc"]
    assert list(tokens("cafe\u0301 CAFÉ ＡＢ")) == ["café", "café", "ab"]
    assert list(tokens("हिन्दी")) == ["हिन्दी"]


def test_matched_words_are_marked_where_they_stand() -> None:
    text = "We deployed Cafe\u0301 数据库"
    spans = term_spans(text, query_terms("deploy café 据"), Analysis())
    assert [text[start:end] for start, end in spans] == ["deployed", "Cafe\u0301", "据"]


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        on_store(lambda store: store.text.search("x", "crab", -1))


def test_a_damaged_posting_or_document_is_named_and_not_guessed_at() -> None:
    async def damage(store: Store, key: bytes) -> None:
        await index(store, {("a", 1): ("crab", 1.0)})
        await store.put(Column.TEXT, store.prefix("idx", "text", "x") + key, b"junk")
        with pytest.raises(BadRecord):
            await store.text.search("x", "crab", 1)

    for key in (b"term/crab/doc/a/1", b"doc/doc/a/1", b"stats"):
        on_store(lambda store, key=key: damage(store, key))  # type: ignore[misc]


@pytest.mark.parametrize(
    "row",
    [
        Schema(text="packed-1"),
        Schema(text="keyed-1", tokeniser="other"),
        Schema(text="keyed-1", rebuilding=True),
    ],
)
def test_an_index_of_another_kind_asks_for_a_reindex_instead_of_answering(row: Schema) -> None:
    async def body(store: Store) -> None:
        await store.put(Column.CONFIG, store.key("schema"), encode(row))
        with pytest.raises(SchemaMismatch, match="reindex"):
            await store.text.search("x", "crab", 1)
        with pytest.raises(SchemaMismatch, match="reindex"):
            await index(store, {("a", 1): ("crab", 1.0)})
        await reindex(store)
        await index(store, {("a", 1): ("crab", 1.0)})
        assert len((await store.text.search("x", "crab", 1)).hits) == 1

    on_store(body)


def test_a_reindex_that_fails_halfway_leaves_the_store_asking_for_another() -> None:
    async def body(store: Store) -> None:
        await store.sessions.open("h", agent="A", created_by="me", title="crab")
        row = await store.get(Column.SESSION, store.key("session", "h", "meta"))
        await store.put(Column.SESSION, store.key("session", "h", "meta"), b"{damaged")
        with pytest.raises(BadRecord):
            await reindex(store)
        with pytest.raises(SchemaMismatch):
            await store.sessions.search("crab")
        await store.put(Column.SESSION, store.key("session", "h", "meta"), row or b"")
        await reindex(store)
        assert len((await store.sessions.search("crab")).hits) == 1

    on_store(body)


@given(st.text(st.characters(codec="ascii")))
def test_ascii_text_reads_the_same_beside_other_scripts(text: str) -> None:
    assert [*tokens(text), "é1"] == [*tokens(text + " é1")]
    assert [*query_terms(text), *query_terms("é1")] == query_terms(text + " é1")
    shorter = term_spans(text, query_terms(text), Analysis())
    assert shorter == [
        span for span in term_spans(text + " é1", query_terms(text), Analysis()) if span[1] <= len(text)
    ]
