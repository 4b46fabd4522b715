"""The same documents in both implementations: keyed over a volatile store, packed over a crabdb file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from crabstore.backends.crabdb import CrabBackend
from crabstore.backends.volatile import VolatileBackend
from crabstore.store.backend import Backend
from crabstore.store.batch import Batch, Column
from crabstore.store.text import Attrs, Between, Scale, Where

IX = "msg"
WORDS = (
    "deploy deployed deploying parser parsing parse tree trees run running runs dying die happy happiness "
    "東京 東京都 error errors café alpha beta gamma x1 y2 resolve_dirs resolveDirs"
).split()
QUERIES = [*WORDS, "par*", "de*", "東", "zzz", "the", ""]
Key = tuple[str, ...]
KEYS: list[Key] = [("session", f"s{session}", "msg", f"{at:04}") for session in range(5) for at in range(7)]


@dataclass(frozen=True)
class Doc:
    text: str
    weight: float = 1.0
    attrs: Attrs = field(default_factory=dict)


class Twins:
    """Does everything twice and compares every answer, scores to the last bit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keyed = VolatileBackend()

    async def open(self) -> Twins:
        self.packed = await CrabBackend.open(self.path)
        return self

    async def reopen(self) -> None:
        await self.packed.close()
        await self.open()

    async def index(self, docs: Mapping[Key, Doc], ix: str = IX) -> None:
        async def stage(store: Backend, batch: Batch) -> None:
            for key, doc in docs.items():
                await store.text.index(
                    batch, ix, store.key(*key), doc.text, weight=doc.weight, attrs=doc.attrs, group=2
                )

        await self._both(stage)

    async def drop(self, key: Key) -> None:
        await self._both(lambda store, batch: store.text.drop(batch, IX, store.key(*key)))

    async def drop_prefix(self, *parts: str) -> None:
        await self._both(lambda store, batch: store.text.drop_prefix(batch, IX, store.prefix(*parts)))

    async def compare(
        self, query: str, limit: int, where: Where | None, best: float = 1.0, whole: float = 2.0
    ) -> None:
        hits = [await store.text.search(IX, query, limit, where) for store in (self.keyed, self.packed)]
        assert hits[0] == hits[1]
        scales = [Scale(IX, best, whole), Scale("other")]
        ranked = [await store.text.rank(query, scales, limit, where) for store in (self.keyed, self.packed)]
        assert ranked[0] == ranked[1]

    async def compare_all(self) -> None:
        for query in QUERIES:
            await self.compare(query, 3, None)

    async def _both(self, stage: Callable[[Backend, Batch], Awaitable[None]]) -> None:
        for store in (self.keyed, self.packed):
            await store.transact(lambda batch, store=store: stage(store, batch))  # type: ignore[misc]


def a_doc(draw: Random) -> Doc:
    text = " ".join(draw.choices(WORDS, k=draw.choice([0, 1, 2, 5, 12, 40])))
    attrs = {"role": draw.choice(["user", "assistant", ""]), "p": draw.choice("abc"), "ts": a_time(draw)}
    return Doc(
        text, draw.choice([1.0, 1.5, 0.5, 0.0]), {name: value for name, value in attrs.items() if value}
    )


def a_time(draw: Random) -> str:
    if draw.random() < 0.05:
        return "some day"
    return f"2026-{draw.randrange(1, 13):02}-01T00:00:00.{draw.randrange(10):06}Z"


def a_where(draw: Random) -> Where | None:
    return draw.choice(
        [
            None,
            None,
            {"role": "user"},
            {"ts": Between("2026-03", "2026-08")},
            {"ts": Between(None, "2026-03-01T00:00:00.000004Z")},
            {"p": "a", "role": "assistant"},
            {"p": Between("b")},
            {"nothing": "x"},
            {"ts": "some day"},
        ]
    )


async def let_work(turns: int) -> None:
    """Let the task that seals and merges take some steps."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def segments(store: Backend) -> set[bytes]:
    """The segments that have rows, listed or not."""
    home = store.prefix("idx", "text", IX, "seg")
    return {key[len(home) :].split(b"/")[0] for key in await store.scan_keys(Column.TEXT, home)}
