"""Packed search at the sizes that it really has: seals of a thousand, lists over several blocks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from crabstore.backends.crabdb import CrabBackend
from crabstore.backends.volatile import VolatileBackend
from crabstore.store.backend import Backend
from crabstore.store.batch import Column
from crabstore.store.text import Between, Scale, Where

WHERES: list[Where | None] = [None, {"role": "user"}, {"ts": Between("2026-02", "2026-04")}]


def test_thousands_of_documents_answer_as_the_specification_does(tmp_path: Path) -> None:
    async def run() -> None:
        keyed, packed = VolatileBackend(), await CrabBackend.open(tmp_path / "s.crmem")
        for store in (keyed, packed):
            await _fill(store, Random(5))
        await asyncio.sleep(0)
        manifest = await packed.get_many(*_segments(packed))
        assert any(manifest), "something was sealed"
        for query in ("w1", "w2 w77", "w300 w301 w1", "w9*", "nothing"):
            for where in WHERES:
                found = await packed.text.search("msg", query, 20, where)
                assert found == await keyed.text.search("msg", query, 20, where)
                scales = [Scale("msg", 1.0, 2.0)]
                ranked = await packed.text.rank(query, scales, 20, where)
                assert ranked == await keyed.text.rank(query, scales, 20, where)
        await packed.close()

    asyncio.run(run())


def _segments(store: CrabBackend) -> tuple[Column, list[bytes]]:
    return Column.TEXT, [store.key("idx", "text", "msg", "segs")]


async def _fill(store: Backend, draw: Random) -> None:
    for first in range(0, 9000, 300):
        batch = store.batch()
        for number in range(first, first + 300):
            words = " ".join(f"w{int(draw.paretovariate(0.7))}" for _ in range(6))
            attrs = {
                "role": draw.choice(["user", "bot"]),
                "ts": f"2026-{1 + number % 5:02}-01T00:00:00.000000Z",
            }
            key = store.key("session", f"s{number % 90}", "msg", f"{number:06}")
            await store.text.index(batch, "msg", key, f"{words} w1", attrs=attrs, group=2)
        await store.commit(batch)
        await asyncio.sleep(0)
