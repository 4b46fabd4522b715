"""Sealing, merging, sweeping and forgetting: what they leave, whom they wait for, and what an append costs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from crabstore.backends.crabdb import CrabBackend
from crabstore.store.batch import Column

from .twins import IX, KEYS, Doc, Key, Twins, a_doc, let_work, segments


async def _fill(twins: Twins, draw: Random, rounds: int) -> None:
    for _ in range(rounds):
        await twins.index({key: a_doc(draw) for key in draw.sample(KEYS, 4)})
        await let_work(60)


async def _value_of_every_row(store: CrabBackend) -> bytes:
    return b"".join(key + value for key, value in await store.scan(Column.TEXT, store.prefix()))


def test_a_purge_leaves_no_word_that_only_forgotten_documents_had(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        await _fill(twins, Random(1), 8)
        secret = Doc("hunter2 tree", attrs={"p": "classified", "role": "mole"})
        await twins.index({KEYS[0]: secret, KEYS[1]: secret})
        await let_work(60)
        await twins.drop(KEYS[0])
        await twins.drop(KEYS[1])
        await twins.packed.text.purge()
        rows = await _value_of_every_row(twins.packed)
        assert b"tree" in rows
        assert not [word for word in (b"hunter2", b"classified", b"mole") if word in rows]
        await twins.compare_all()
        await twins.packed.close()

    asyncio.run(run())


def test_a_search_goes_on_over_segments_that_are_merged_away_under_it(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        await twins.index({key: Doc("tree " + "run " * at) for at, key in enumerate(KEYS[:30])})
        await let_work(400)
        await twins.index({key: Doc("tree run") for key in KEYS[:6]})
        await let_work(400)
        await twins.reopen()
        before = await segments(twins.packed)
        search = asyncio.create_task(twins.packed.text.search(IX, "tree run", 9))
        await asyncio.sleep(0)  # it has read one segment and let others run
        assert len(before) > 1 and not search.done()
        await twins.drop(KEYS[10])
        await twins.packed.text.purge()
        assert await search == await twins.keyed.text.search(IX, "tree run", 9)
        del search
        await twins.packed.text.purge()
        assert before - await segments(twins.packed)
        await twins.packed.close()

    asyncio.run(run())


def test_a_writer_that_never_yields_waits_for_what_has_fallen_behind(tmp_path: Path) -> None:
    async def run() -> None:
        store = await CrabBackend.open(tmp_path / "s.crmem")
        most = 0
        for number in range(200):
            batch = store.batch()
            await store.text.index(batch, IX, store.key("session", "s", "msg", f"{number:04}"), "tree")
            await store.commit(batch)
            most = max(most, len(await store.scan_keys(Column.TEXT, store.prefix("idx", "text", IX, "new"))))
        assert most <= 4 * 6  # four seals of what conftest.py sets
        await store.close()

    asyncio.run(run())


def test_a_segment_of_which_everything_died_leaves_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        await twins.index({key: Doc("tree") for key in KEYS[:6]})
        await let_work(60)
        await twins.drop_prefix("session")
        await twins.packed.text.purge()
        rows = await twins.packed.scan_keys(Column.TEXT, twins.packed.prefix())
        assert rows == [twins.packed.key("idx", "text", IX, "segs")]
        await twins.packed.close()

    asyncio.run(run())


def test_there_are_never_more_segments_than_a_few_of_each_size(tmp_path: Path) -> None:
    async def run() -> None:
        store = await CrabBackend.open(tmp_path / "s.crmem")
        for number in range(500):
            batch = store.batch()
            await store.text.index(batch, IX, store.key("session", "s", "msg", f"{number:04}"), "tree")
            await store.commit(batch)
        await let_work(2000)
        # 6, 18, 54, 162 and 486 documents, two of each at most: the third makes them one of the next size.
        assert len(await segments(store)) <= 2 * 5
        await store.close()

    asyncio.run(run())


def test_an_append_writes_one_row_whatever_stands_in_the_index(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        for rounds in (1, 12):
            await _fill(twins, Random(rounds), rounds)
            store = twins.packed
            batch = store.batch()
            await store.text.index(batch, IX, store.key(*KEYS[0]), "tree run happy", group=2)
            assert list(batch.writes) == [
                (Column.TEXT, store.prefix("idx", "text", IX, "new") + _own(KEYS[0]))
            ]
        await twins.packed.close()

    asyncio.run(run())


def test_a_message_without_a_word_writes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        await _fill(twins, Random(4), 5)
        store = twins.packed
        batch = store.batch()
        await store.text.index(batch, IX, store.key("session", "new", "msg", "0"), "?!", group=2)
        assert not batch
        await store.close()

    asyncio.run(run())


def test_a_follower_sees_what_was_committed_when_it_refreshes(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        follower: CrabBackend | None = None
        draw = Random(2)
        for _ in range(10):
            await _fill(twins, draw, 2)
            if follower is None:
                follower = await CrabBackend.open(twins.path, read_only=True)
            await follower.refresh()
            for query in ("tree", "run happy"):
                assert await follower.text.search(IX, query, 9) == await twins.packed.text.search(
                    IX, query, 9
                )
        assert follower is not None
        await follower.close()
        await twins.packed.close()

    asyncio.run(run())


def test_searches_beside_the_work_are_right_after_each_step_of_it(tmp_path: Path) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        draw = Random(8)
        for _ in range(14):
            await twins.index({key: a_doc(draw) for key in draw.sample(KEYS, 7)})
            for _ in range(12):
                await let_work(3)
                await twins.compare(draw.choice(["tree", "run", "deploy happy"]), 3, None)
        await twins.packed.close()

    asyncio.run(run())


def _own(key: Key) -> bytes:
    return "/".join(key).encode()
