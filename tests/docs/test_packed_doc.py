"""docs/packed.md says what the packed index writes: every row, every number, and a block byte for byte."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np

from crabstore.backends.crabdb import CrabBackend
from crabstore.backends.crabdb.packed import postings, rows, text, upkeep
from crabstore.store.batch import Column

PAGE = (Path(__file__).parents[2] / "docs" / "packed.md").read_text(encoding="utf-8")


def _patterns() -> list[re.Pattern[str]]:
    names = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    return [re.compile(re.sub(r"\\\{\w+\\\}", "[^\0]+", re.escape(name))) for name in names]


def test_the_table_is_exactly_what_is_written(tmp_path: Path) -> None:
    async def written() -> set[str]:
        store = await CrabBackend.open(tmp_path / "s.crmem")

        async def index(number: int) -> None:
            batch = store.batch()
            key = store.key("session", "s", "msg", f"{number:04}")
            await store.text.index(batch, "msg", key, "crab sea", group=2, attrs={"role": "user"})
            await store.commit(batch)

        async def drop(*, every: bool) -> None:
            batch = store.batch()
            if every:
                await store.text.drop_prefix(batch, "msg", store.prefix("session", "t"))
            else:
                await store.text.drop(batch, "msg", store.key("session", "s", "msg", "0000"))
            await store.commit(batch)

        for number in range(3):
            await index(number)
        found = set(await store.scan_keys(Column.TEXT, store.prefix()))
        for every in (False, True):
            for _ in store.text._at(b"msg").upkeep._seal():
                pass
            await drop(every=every)
            found |= set(await store.scan_keys(Column.TEXT, store.prefix()))
        for _ in store.text._at(b"msg").upkeep._seal():
            pass
        found |= set(await store.scan_keys(Column.TEXT, store.prefix()))
        await store.close()
        home = store.prefix("idx", "text", "msg")
        return {key[len(home) :].decode() for key in found}

    names, patterns = asyncio.run(written()), _patterns()
    assert not [name for name in names if not any(pattern.fullmatch(name) for pattern in patterns)]
    assert not [pattern.pattern for pattern in patterns if not any(map(pattern.fullmatch, names))]


def test_the_numbers_are_those_of_the_program() -> None:
    assert f"When {upkeep.SEAL:,} documents are recent" in PAGE
    assert upkeep.FANOUT == 8 and "Eight segments of one size" in PAGE and "each power of eight" in PAGE
    assert f"At most {postings.BLOCK:,} postings" in PAGE
    assert f"| {rows.KEYS} keys of documents" in PAGE
    assert f"at most {text._CACHED >> 20} MiB" in PAGE


def test_the_example_is_what_the_program_packs() -> None:
    [example] = re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    packed = bytes.fromhex(example)
    lists = postings.Postings(
        [b"crab", b"sea"],
        np.array([3, 1]),
        np.array([0, 2, 700, 1], np.uint32),
        np.array([1, 2, 1, 1], np.uint32),
    )
    assert postings.pack_block(lists) == packed
    block = postings.Block(b"key", packed)
    assert block.terms == [b"crab", b"sea"] and block.one(0)[0].tolist() == [0, 2, 700]
