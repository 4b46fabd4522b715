"""Text search: every implementation gives the keys and, to the last bit, the scores of the definition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from ..backend import Backend
from ..batch import Batch
from ..bm25 import Analysis, Bm25, Term, query_terms, tokens
from ..errors import InvalidArgument
from ..text import Between, Hit, Where, group_of, passes
from .cases import Contract, case, raises

__all__ = ["TextContract", "TextModel", "agrees"]

IX = "contract"
GROUP = 2
WORDS = (
    "deploy deployed deployment dying die crab crabs sea error errors run running ran numpy x1 数据".split()
)
QUERIES = [
    "deploy",
    "crab sea",
    "dep* crab",
    "errors running die",
    "r*",
    "数 numpy",
    "zzz",
    "",
    "sea sea x1 crabs",
]
HOSTILE_TEXTS = [
    *(
        "",
        " ",
        "\x00",
        "*",
        '"',
        "(",
        "one\udcb2two",
        "\ud800",
        "🎉",
        "cafe\u0301 CAFÉ",
        "数据库abc",
        "数",
        "שלום",
    ),
    *(
        "resolve_dirs",
        "resolveDirs",
        "RESOLVE-DIRS",
        "a/b.c",
        "%2F",
        "x" * 70,
        "x" * 64,
        "İSTANBUL ½ ﬁne",
        "the of",
    ),
]
WHERES: list[Where] = [
    {},
    {"role": "user"},
    {"ts": Between("3", "7")},
    {"role": "bot", "ts": Between(until="5")},
]


@dataclass(frozen=True)
class _Doc:
    words: list[str]
    weight: float
    attrs: dict[str, str]


@dataclass
class TextModel:
    """An index by its definition: every document is read for every term, and nothing is kept."""

    parts: int
    """How many parts of a key name its group, the realm counted; 1 for an index without groups."""
    analysis: Analysis = field(default_factory=Analysis)
    bm25: Bm25 = field(default_factory=Bm25)
    docs: dict[bytes, _Doc] = field(default_factory=dict)

    def index(self, key: bytes, text: str, weight: float = 1.0, attrs: dict[str, str] | None = None) -> None:
        """Take the document in, in place of what stood under its key."""
        self.docs.pop(key, None)
        if words := list(tokens(text)):
            self.docs[key] = _Doc(words, weight, attrs or {})

    def drop_prefix(self, prefix: bytes) -> None:
        """Take every document out whose key begins so."""
        self.docs = {key: doc for key, doc in self.docs.items() if not key.startswith(prefix)}

    def search(self, query: str, where: Where) -> list[tuple[bytes, float]]:
        """Every document that matches with its score, best first."""
        scores: dict[bytes, float] = {}
        average = sum(len(doc.words) for doc in self.docs.values()) / max(1, len(self.docs))
        for term in query_terms(query):
            tf = {key: self._frequency(term, [doc]) for key, doc in self.docs.items()}
            idf = self.bm25.idf(len(self.docs), sum(count > 0 for count in tf.values()))
            for key, doc in self._passing(where):
                if tf[key]:
                    gain = self.bm25.gain(tf[key], len(doc.words), average)
                    scores[key] = scores.get(key, 0.0) + doc.weight * idf * gain
        return sorted(scores.items(), key=lambda item: (-item[1], item[0]))

    def rank(self, query: str, where: Where, best: float, whole: float) -> list[tuple[bytes, bytes, float]]:
        """Every group that matches, best first: its key, its best document's key, its score."""
        ranked: dict[bytes, tuple[bytes, bytes, float]] = {}
        for key, score in self.search(query, where):
            group = group_of(key, self.parts)
            if group not in ranked:
                ranked[group] = (group, key, best * score + whole * self._whole(query, where, group))
        return sorted(ranked.values(), key=lambda item: (-item[2], item[0]))

    def _whole(self, query: str, where: Where, group: bytes) -> float:
        groups: dict[bytes, list[_Doc]] = {}
        for key, doc in self.docs.items():
            groups.setdefault(group_of(key, self.parts), []).append(doc)
        average = sum(len(doc.words) for doc in self.docs.values()) / len(groups)
        length = sum(len(doc.words) for doc in groups[group])
        passing = [doc for key, doc in self._passing(where) if group_of(key, self.parts) == group]
        score = 0.0
        for term in query_terms(query):
            df = sum(self._frequency(term, docs) > 0 for docs in groups.values())
            if tf := self._frequency(term, passing):
                score = score + self.bm25.idf(len(groups), df) * self.bm25.gain(tf, length, average)
        return score

    def _frequency(self, term: Term, docs: Iterable[_Doc]) -> int:
        return sum(term.matches(word, self.analysis) for doc in docs for word in doc.words)

    def _passing(self, where: Where) -> list[tuple[bytes, _Doc]]:
        return [(key, doc) for key, doc in self.docs.items() if passes(doc.attrs, where)]


async def agrees(store: Backend, ix: str, model: TextModel, query: str, where: Where, *, limit: int) -> None:
    """Assert that the index answers this query as the model does: searching, ranking, and looking up groups."""
    wanted = model.search(query, where)
    found = await store.text.search(ix, query, limit, where)
    assert _pairs(found.hits) == wanted[:limit], (query, where)
    assert found.complete is (len(wanted) <= limit), (query, where)
    assert [hit.attrs for hit in found.hits] == [model.docs[key].attrs for key, _ in wanted[:limit]]
    for best, whole in ((1.0, 2.0), (1.0, 0.0), (0.0, 1.0), (0.7, 0.3)):
        ranked = model.rank(query, where, best, whole)
        ranking = await store.text.rank(ix, query, where, best=best, whole=whole)
        top = ranking.top(limit)
        assert _pairs(top.hits) == [(key, score) for _, key, score in ranked[:limit]], (query, where)
        assert top.complete is (len(ranked) <= limit), (query, where)
        assert _pairs(ranking.top(len(ranked)).hits) == [(key, score) for _, key, score in ranked]
        named = ranking.of([group for group, _, _ in reversed(ranked)] + [b"local/none/0", b"local/none"])
        assert named[-2:] == [None, None]
        assert _pairs(named) == [(key, score) for _, key, score in reversed(ranked)], (query, where)


class TextContract(Contract):
    """Ranked search."""

    @case
    async def test_documents_and_groups_score_as_defined_after_any_history(self, store: Backend) -> None:
        random, model = Random(4), TextModel(GROUP + 1)
        for step in range(30):
            await store.transact(partial(_change, store, model, random))
            for query in QUERIES if step % 5 == 4 else random.sample(QUERIES, 2):
                await agrees(store, IX, model, query, random.choice(WHERES), limit=random.choice([1, 3, 50]))
        await store.transact(lambda batch: store.text.drop_prefix(batch, IX, store.prefix("doc")))
        assert (await store.text.search(IX, "crab deploy sea", 9)).hits == []
        ranking = await store.text.rank(IX, "crab deploy sea", best=1.0, whole=1.0)
        assert ranking.top(9).hits == [] and ranking.top(0).complete

    @case
    async def test_a_busy_group_counts_once_and_stands_for_its_best_document(self, store: Backend) -> None:
        async def stage(batch: Batch) -> None:
            for number in range(40):
                key = store.key("doc", "busy", str(number))
                await store.text.index(batch, IX, key, "crab " * (1 + number % 4), group=GROUP)
            await store.text.index(batch, IX, store.key("doc", "quiet", "0"), "one crab at sea", group=GROUP)

        await store.transact(stage)
        ranking = await store.text.rank(IX, "crab", best=1.0, whole=0.0)
        assert [hit.key for hit in ranking.top(5).hits] == [
            store.key("doc", "busy", "11"),
            store.key("doc", "quiet", "0"),
        ]
        assert ranking.top(2).complete and not ranking.top(1).complete
        [none] = ranking.of([store.key("doc", "absent")])
        assert none is None

    @case
    async def test_documents_of_no_group_are_searched_and_not_ranked(self, store: Backend) -> None:
        await store.transact(lambda batch: store.text.index(batch, IX, store.key("doc", "a"), "crab"))
        assert len((await store.text.search(IX, "crab", 9)).hits) == 1
        assert (await store.text.rank(IX, "crab", best=1.0, whole=1.0)).top(9).hits == []

    @case
    async def test_groups_are_counted_exactly_when_writers_meet(self, store: Backend) -> None:
        model = TextModel(GROUP + 1)

        async def write(number: int) -> None:
            key = store.key("doc", str(number % 3), str(number))
            await store.transact(partial(store.text.index, ix=IX, key=key, text="crab sea", group=GROUP))
            if number % 2:
                await store.transact(partial(store.text.drop, ix=IX, key=key))

        await asyncio.gather(*(write(number) for number in range(24)))
        for number in range(0, 24, 2):
            model.index(store.key("doc", str(number % 3), str(number)), "crab sea")
        await agrees(store, IX, model, "crab", {}, limit=9)

    @case
    async def test_the_store_is_asked_for_its_numbers(self, store: Backend) -> None:
        store.bm25, store.analysis = Bm25(k1=0.5, b=0.2), Analysis(fold=False)
        model, random = TextModel(GROUP + 1, store.analysis, store.bm25), Random(9)
        for _ in range(5):
            await store.transact(partial(_change, store, model, random))
        for query in QUERIES:
            await agrees(store, IX, model, query, {}, limit=4)

    @case
    async def test_any_text_is_a_document_and_any_string_a_query(self, store: Backend) -> None:
        model = TextModel(GROUP + 1)
        for number, text in enumerate(HOSTILE_TEXTS):
            key = store.key("doc", "any", str(number))
            await store.transact(partial(store.text.index, ix=IX, key=key, text=text, group=GROUP))
            model.index(key, text)
        for query in HOSTILE_TEXTS:
            await agrees(store, IX, model, query, {}, limit=99)

    @case
    async def test_a_negative_limit_and_a_query_that_is_no_text_are_refused(self, store: Backend) -> None:
        ranking = await store.text.rank(IX, "crab", best=1.0, whole=1.0)
        await raises(InvalidArgument, store.text.search, IX, "crab", -1)
        await raises(InvalidArgument, store.text.search, IX, b"crab", 1)  # type: ignore[arg-type]
        await raises(InvalidArgument, store.text.rank, IX, None, best=1.0, whole=1.0)  # type: ignore[arg-type]
        try:
            ranking.top(-1)
        except InvalidArgument:
            return
        raise AssertionError("InvalidArgument was not raised")


async def _change(store: Backend, model: TextModel, random: Random, batch: Batch) -> None:
    """Index, replace or drop a few documents, in the store and in the model alike."""
    for _ in range(random.randint(1, 6)):
        group, number = random.choice(["a", "a!", "b", "c/d"]), str(random.randint(0, 9))
        key = store.key("doc", group, number)
        match random.randint(0, 9):
            case 0:
                await store.text.drop_prefix(batch, IX, store.prefix("doc", group))
                model.drop_prefix(store.prefix("doc", group))
            case 1 | 2:
                await store.text.drop(batch, IX, key)
                model.docs.pop(key, None)
            case _:
                text = " ".join(random.choices(WORDS, k=random.randint(0, 12)))
                weight = random.choice([0.5, 1.0, 1.3])
                attrs = {"role": random.choice(["user", "bot"]), "ts": number}
                await store.text.index(batch, IX, key, text, weight=weight, attrs=attrs, group=GROUP)
                model.index(key, text, weight, attrs)


def _pairs(hits: Sequence[Hit | None]) -> list[tuple[bytes, float]]:
    return [(hit.key, hit.score) for hit in hits if hit is not None]
