"""For every history, packed search gives the keys, the order and the float64 scores of the keyed one."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.store.bm25 import Analysis, Bm25

from .twins import IX, KEYS, QUERIES, Doc, Twins, a_doc, a_where, let_work, segments


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_any_history_of_operations_gives_the_same_answers(seed: int) -> None:
    async def run() -> None:
        draw = Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            twins = await Twins(Path(folder) / "s.crmem").open()
            for _ in range(80):
                await _step(twins, draw)
            await twins.packed.close()

    asyncio.run(run())


async def _step(twins: Twins, draw: Random) -> None:
    kind = draw.choices(
        ["index", "many", "drop", "drop prefix", "reopen", "purge", "work", "ask"],
        [30, 6, 6, 3, 4, 2, 6, 30],
    )[0]
    if kind == "index":
        await twins.index({draw.choice(KEYS): a_doc(draw)}, draw.choice([IX, IX, "other"]))
    elif kind == "many":
        await twins.index({key: a_doc(draw) for key in draw.sample(KEYS, 9)}, draw.choice([IX, IX, "other"]))
    elif kind == "drop":
        await twins.drop(draw.choice(KEYS))
    elif kind == "drop prefix":
        await twins.drop_prefix(*draw.choice(KEYS)[: draw.choice([1, 2, 2, 4])])
    elif kind == "reopen":
        await twins.reopen()
    elif kind == "purge":
        await twins.packed.text.purge()
    elif kind == "work":
        await let_work(draw.randrange(80))
    else:
        query = " ".join(draw.choices(QUERIES, k=draw.choice([1, 1, 2, 3])))
        best, whole = draw.choice([1.0, 0.0]), draw.choice([2.0, 0.5, 0.0])
        await twins.compare(query, draw.choice([0, 1, 2, 3, 5, 100]), a_where(draw), best, whole)


@pytest.mark.parametrize("bm25", [Bm25(k1=0.0), Bm25(b=0.0), Bm25(k1=2.0, b=1.0)])
@pytest.mark.parametrize("fold", [True, False])
def test_the_scorers_numbers_mean_the_same(tmp_path: Path, bm25: Bm25, fold: bool) -> None:
    async def run() -> None:
        draw = Random(7)
        twins = await Twins(tmp_path / "s.crmem").open()
        for store in (twins.keyed, twins.packed):
            store.bm25, store.analysis = bm25, Analysis(fold=fold)
        for _ in range(6):
            await twins.index({key: a_doc(draw) for key in draw.sample(KEYS, 9)})
            await let_work(draw.randrange(60))
            await twins.compare_all()
        await twins.packed.close()

    asyncio.run(run())


def test_equal_scores_are_cut_in_key_order_wherever_they_stand(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        draw = Random(3)
        for key in draw.sample(KEYS, len(KEYS)):
            await twins.index({key: Doc("tree")})
            await let_work(draw.randrange(30))
        for limit in range(1, len(KEYS)):
            await twins.compare("tree", limit, None)
        await twins.packed.close()

    asyncio.run(run())


def test_a_frequency_beyond_a_byte_counts_whole(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        texts = ["tree " * count for count in (254, 255, 256, 70_000, 1, 3)]
        await twins.index({key: Doc(text) for key, text in zip(KEYS, texts, strict=False)})
        await twins.compare("tree", 9, None)
        await let_work(200)
        assert len(await segments(twins.packed)) == 1
        await twins.compare("tree", 9, None)
        await twins.packed.close()

    asyncio.run(run())
