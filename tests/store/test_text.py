"""Ranked search over keys: the formula, the tokeniser, folding, filters, and a model by definition of it all."""

from __future__ import annotations

import asyncio
import math
import pydoc_data.topics
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Column
from crabstore.store.bm25 import Analysis, Bm25, Term, query_terms, tokens
from crabstore.store.errors import BadRecord, SchemaMismatch
from crabstore.store.keyed_text import KeyedText
from crabstore.store.records import encode
from crabstore.store.reindex import reindex
from crabstore.store.schema import Schema
from crabstore.store.testing.text import TextModel, agrees
from crabstore.store.text import Between, Scale, Where

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
        await store.text.index(batch, "x", key, text, weight=weight, attrs={"n": str(number)}, group=2)
        await store.commit(batch)


@settings(max_examples=150)
@given(documents, documents, st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 5))), queries)
def test_scores_are_those_of_the_definition_after_any_history(
    first: dict[tuple[str, int], tuple[str, float]],
    second: dict[tuple[str, int], tuple[str, float]],
    dropped: set[tuple[str, int]],
    query: str,
) -> None:
    async def body(store: Store) -> None:
        await index(store, first)
        await index(store, second)
        for group, number in dropped:
            key = store.key("doc", group, str(number))
            await store.transact(lambda batch, key=key: store.text.drop(batch, "x", key))  # type: ignore[misc]
        model = TextModel(3)
        for (group, number), (text, weight) in {**first, **second}.items():
            if (group, number) not in dropped:
                model.index(store.key("doc", group, str(number)), text, weight, {"n": str(number)})
        for where in ({}, {"n": Between("1", "4")}):
            await agrees(store, "x", model, query, where, limit=3)

    on_store(body)


def test_the_model_computes_the_published_formula() -> None:
    model = TextModel(3)
    model.index(b"local/doc/a/1", "crab sea crab", weight=2.0)
    model.index(b"local/doc/b/1", "sea")
    idf = math.log((2 - 1 + 0.5) / (1 + 0.5) + 1)
    gain = 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2))
    [(key, alone)] = model.search("crab", {})
    assert key == b"local/doc/a/1" and alone == pytest.approx(2.0 * idf * gain)
    [(_, _, score)] = model.rank("crab", {}, 1.0, 3.0)
    assert score == pytest.approx(2.0 * idf * gain + 3.0 * idf * gain)


def test_dropping_everything_leaves_only_zero_counters() -> None:
    async def body(store: Store) -> list[tuple[bytes, bytes]]:
        await index(store, {("a", 1): ("crab sea", 1.0), ("b", 1): ("crab", 1.0)})
        batch = store.batch()
        await store.text.drop_prefix(batch, "x", store.prefix("doc"))
        await store.commit(batch)
        return await store.scan(Column.TEXT, store.prefix())

    assert on_store(body) == [(b"local/idx/text/x/stats", b'{"docs":0,"length":0,"groups":0}')]


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


WORD_LIST = sorted(
    {word for topic in pydoc_data.topics.topics.values() for word in re.findall(r"[a-z]{2,}", topic.lower())}
)
SUFFIXES = [
    "",
    "s",
    "es",
    "ies",
    "ed",
    "ied",
    "ing",
    "ying",
    "ly",
    "ingly",
    "edly",
    "ment",
    "ness",
    "ational",
]


def test_every_word_is_reached_from_its_stem() -> None:
    for word in WORD_LIST + [word + suffix for word in WORD_LIST for suffix in SUFFIXES]:
        assert_reached(word)


@given(st.text("abcdefghijklmnopqrstuvwxyzéß0", min_size=1), st.sampled_from(SUFFIXES))
def test_any_letters_are_reached_from_their_stem(letters: str, suffix: str) -> None:
    assert_reached(letters + suffix)


def assert_reached(word: str) -> None:
    term, analysis = Term(word), Analysis()
    lookups = term.lookups(analysis)
    assert term.matches(word, analysis) and sum(map(word.startswith, lookups)) == 1, (word, lookups)
    assert not any(a != b and a.startswith(b) for a in lookups for b in lookups)


def test_irregular_forms_find_each_other() -> None:
    async def body(store: Store) -> list[int]:
        await index(store, {("a", 1): ("dying", 1.0), ("a", 2): ("ties", 1.0), ("a", 3): ("happiness", 1.0)})
        return [
            len((await store.text.search("x", word, 9)).hits) for word in ("die", "tying", "happy", "dye")
        ]

    assert on_store(body) == [1, 1, 1, 0]


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
        findable = bool(query_terms(text)) and bool(tokens(text))
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


def test_a_damaged_posting_or_document_is_named_and_not_guessed_at() -> None:
    async def damage(store: Store, key: bytes) -> None:
        await index(store, {("a", 1): ("crab", 1.0)})
        await store.put(Column.TEXT, store.prefix("idx", "text", "x") + key, b"junk")
        with pytest.raises(BadRecord):
            await store.text.rank("crab", [Scale("x")], 9)

    for key in (b"term/crab/doc/a/1", b"doc/doc/a/1", b"stats", b"group/doc/a"):
        on_store(lambda store, key=key: damage(store, key))  # type: ignore[misc]


@pytest.mark.parametrize(
    "row",
    [
        Schema(text="other"),
        Schema(text="keyed-2", tokeniser="other"),
        Schema(text="keyed-2", rebuilding=True),
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


def test_of_a_query_that_is_a_whole_document_the_first_words_count() -> None:
    words = [f"word{number}" for number in range(1000)]
    assert [term.text for term in query_terms(" ".join(words))] == words[:128]
