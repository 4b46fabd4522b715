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
from ..text import Between, Hit, Scale, Where, group_of, passes
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
        return sorted(ranked.values(), key=lambda item: (-item[2], item[0] + b"/"))

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
    """Assert that the index answers this query as the model does: searching, and ranking groups."""
    wanted = model.search(query, where)
    found = await store.text.search(ix, query, limit, where)
    assert _pairs(found.hits) == wanted[:limit], (query, where)
    assert found.complete is (len(wanted) <= limit), (query, where)
    for best, whole in ((1.0, 2.0), (1.0, 0.0), (0.0, 1.0), (0.7, 0.3)):
        ranked = [(group, score, (key,)) for group, key, score in model.rank(query, where, best, whole)]
        for cut in (limit, len(ranked)):
            top = await store.text.rank(query, [Scale(ix, best, whole)], cut, where)
            assert [(hit.group, hit.score, hit.best) for hit in top.hits] == ranked[:cut], (query, where)
            assert top.complete is (len(ranked) <= cut), (query, where)


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
        for limit in (0, 9):
            ranked = await store.text.rank("crab deploy sea", [Scale(IX, 1.0, 1.0)], limit)
            assert ranked.hits == [] and ranked.complete

    @case
    async def test_a_busy_group_counts_once_and_stands_for_its_best_document(self, store: Backend) -> None:
        async def stage(batch: Batch) -> None:
            for number in range(40):
                key = store.key("doc", "busy", str(number))
                await store.text.index(batch, IX, key, "crab " * (1 + number % 4), group=GROUP)
            await store.text.index(batch, IX, store.key("doc", "quiet", "0"), "one crab at sea", group=GROUP)

        await store.transact(stage)
        ranked = await store.text.rank("crab", [Scale(IX)], 2)
        assert [hit.best for hit in ranked.hits] == [
            (store.key("doc", "busy", "11"),),
            (store.key("doc", "quiet", "0"),),
        ]
        assert ranked.complete and not (await store.text.rank("crab", [Scale(IX)], 1)).complete

    @case
    async def test_groups_are_ranked_by_the_sum_of_what_several_indexes_hold_of_them(
        self, store: Backend
    ) -> None:
        models, random = {"one": TextModel(GROUP + 1), "two": TextModel(GROUP + 1)}, Random(6)
        scales = [Scale("one", 1.0, 2.0), Scale("two", 0.5, 0.0)]
        for step in range(20):
            ix = random.choice(list(models))
            await store.transact(partial(_change, store, models[ix], random, ix=ix))
            for query in random.sample(QUERIES, 2 + step % 3):
                where = random.choice(WHERES)
                wanted = _summed([models[s.ix].rank(query, where, s.best, s.whole) for s in scales])
                for limit in (2, 99):
                    found = await store.text.rank(query, scales, limit, where)
                    assert [(hit.group, hit.score, hit.best) for hit in found.hits] == wanted[:limit]
                    assert found.complete is (len(wanted) <= limit)

    @case
    async def test_documents_of_no_group_are_searched_and_not_ranked(self, store: Backend) -> None:
        await store.transact(lambda batch: store.text.index(batch, IX, store.key("doc", "a"), "crab"))
        assert len((await store.text.search(IX, "crab", 9)).hits) == 1
        assert (await store.text.rank("crab", [Scale(IX, 1.0, 1.0)], 9)).hits == []

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
    async def test_a_negative_limit_a_weight_that_is_none_and_a_query_that_is_no_text_are_refused(
        self, store: Backend
    ) -> None:
        key = store.key("doc", "a", "1")
        for weight in (-1.0, float("nan"), float("inf")):
            await raises(InvalidArgument, store.text.index, store.batch(), IX, key, "crab", weight=weight)
        await raises(InvalidArgument, store.text.search, IX, "crab", -1)
        await raises(InvalidArgument, store.text.search, IX, b"crab", 1)  # type: ignore[arg-type]
        await raises(InvalidArgument, store.text.rank, "crab", [Scale(IX)], -1)
        await raises(InvalidArgument, store.text.rank, None, [Scale(IX)], 1)  # type: ignore[arg-type]


async def _change(store: Backend, model: TextModel, random: Random, batch: Batch, ix: str = IX) -> None:
    """Index, replace or drop a few documents, in the store and in the model alike."""
    for _ in range(random.randint(1, 6)):
        group, number = random.choice(["a", "a!", "b", "c/d"]), str(random.randint(0, 9))
        key = store.key("doc", group, number)
        match random.randint(0, 9):
            case 0:
                await store.text.drop_prefix(batch, ix, store.prefix("doc", group))
                model.drop_prefix(store.prefix("doc", group))
            case 1 | 2:
                await store.text.drop(batch, ix, key)
                model.docs.pop(key, None)
            case _:
                text = " ".join(random.choices(WORDS, k=random.randint(0, 12)))
                weight = random.choice([0.5, 1.0, 1.3])
                attrs = {"role": random.choice(["user", "bot"]), "ts": number}
                await store.text.index(batch, ix, key, text, weight=weight, attrs=attrs, group=GROUP)
                model.index(key, text, weight, attrs)


def _pairs(hits: Sequence[Hit]) -> list[tuple[bytes, float]]:
    return [(hit.key, hit.score) for hit in hits]


def _summed(
    rankings: Sequence[list[tuple[bytes, bytes, float]]],
) -> list[tuple[bytes, float, tuple[bytes | None, ...]]]:
    """Groups with the sum of their scores and the best document in each ranking, best first."""
    scores: dict[bytes, float] = {}
    best: dict[bytes, list[bytes | None]] = {}
    for at, ranking in enumerate(rankings):
        for group, key, score in ranking:
            scores[group] = scores.get(group, 0.0) + score
            best.setdefault(group, [None] * len(rankings))[at] = key
    ranked = sorted(scores, key=lambda group: (-scores[group], group + b"/"))
    return [(group, scores[group], tuple(best[group])) for group in ranked]
