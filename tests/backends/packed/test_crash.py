"""A crash at any write, of a commit, a seal, a merge or a sweep, leaves an index that is right and goes on."""

from __future__ import annotations

import asyncio
from errno import ENOSPC
from pathlib import Path
from random import Random

import pytest

from crabdb import CrabDB, DiskFull, Options
from crabstore.backends.crabdb import CrabBackend
from crabstore.backends.crabdb.packed.rows import Manifest
from crabstore.backends.volatile import VolatileBackend
from crabstore.store.batch import Column
from crabstore.store.errors import BadRecord
from crabstore.store.text import Scale

from .twins import IX, KEYS, Doc, Key, Twins, a_doc, let_work, segments

# A file that is only ever appended to: its first so many bytes are what a crash at that moment leaves.
APPENDING = Options(maintenance="caller", compact_min=1 << 40)


class Crashes:
    """A store, and after each of its commits the size of its file and the documents that it holds."""

    def __init__(self, db: CrabDB) -> None:
        self.store = CrabBackend(db)
        self.docs: dict[Key, Doc] = {}
        self.moments: list[tuple[int, dict[Key, Doc]]] = []
        self.data = b""
        commit = db.commit

        def watched(*args: object, **kwargs: object) -> None:
            commit(*args, **kwargs)  # type: ignore[arg-type]
            self.moments.append((db.stats().size, dict(self.docs)))

        db.commit = watched  # type: ignore[method-assign]

    async def index(self, docs: dict[Key, Doc]) -> None:
        batch = self.store.batch()
        for key, doc in docs.items():
            await self.store.text.index(
                batch, IX, self.store.key(*key), doc.text, weight=doc.weight, attrs=doc.attrs, group=2
            )
        self.docs = self.docs | docs
        await self.store.commit(batch)

    async def drop_session(self, name: str) -> None:
        batch = self.store.batch()
        await self.store.text.drop_prefix(batch, IX, self.store.prefix("session", name))
        self.docs = {key: doc for key, doc in self.docs.items() if key[1] != name}
        await self.store.commit(batch)


async def _history(path: Path) -> Crashes:
    """Seals, merges and sweeps with documents replaced and dropped in the middle of them."""
    draw = Random(11)
    crashes = Crashes(CrabDB.open(path, options=APPENDING))
    for number in range(60):
        await crashes.index({key: a_doc(draw) for key in draw.sample(KEYS, 2)})
        if number % 17 == 16:
            await crashes.drop_session(f"s{draw.randrange(5)}")
        await let_work(draw.randrange(14))
    await let_work(400)
    crashes.data = path.read_bytes()  # closing would write a snapshot and the header
    await crashes.store.close()
    return crashes


async def _expect(store: CrabBackend, docs: dict[Key, Doc]) -> None:
    keyed = VolatileBackend()
    batch = keyed.batch()
    for key, doc in docs.items():
        await keyed.text.index(
            batch, IX, keyed.key(*key), doc.text, weight=doc.weight, attrs=doc.attrs, group=2
        )
    await keyed.commit(batch)
    for query in ("tree run", "happy", "deploy", "par*"):
        assert await store.text.search(IX, query, 100) == await keyed.text.search(IX, query, 100)
        scales = [Scale(IX, 1.0, 2.0)]
        assert await store.text.rank(query, scales, 9) == await keyed.text.rank(query, scales, 9)


def test_a_crash_after_any_commit_leaves_the_documents_of_that_moment(tmp_path: Path) -> None:
    async def run() -> None:
        path, copy = tmp_path / "s.crmem", tmp_path / "copy.crmem"
        crashes = await _history(path)
        assert len(crashes.moments) > 300
        for size, docs in crashes.moments:
            copy.write_bytes(crashes.data[:size])
            store = await CrabBackend.open(copy)
            await _expect(store, docs)
            await store.close()

    asyncio.run(run())


def test_a_store_that_crashed_in_the_middle_of_a_merge_goes_on_and_leaves_no_rows_behind(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        path, copy = tmp_path / "s.crmem", tmp_path / "copy.crmem"
        crashes = await _history(path)
        for size, docs in crashes.moments[5::23]:
            copy.write_bytes(crashes.data[:size])
            store = await CrabBackend.open(copy)
            await store.text.purge()
            await _expect(store, docs)
            listed = await store.get_json(*_manifest(store), Manifest)
            assert listed is not None
            assert {int(name) for name in await segments(store)} == {row.id for row in listed.segments}
            await store.close()

    asyncio.run(run())


def test_a_failing_write_in_the_middle_of_a_seal_is_tried_again_and_nobody_is_told_wrong(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        twins = await Twins(tmp_path / "s.crmem").open()
        draw = Random(5)
        commit = twins.packed.db.commit
        for number in range(12):
            await twins.index({key: a_doc(draw) for key in draw.sample(KEYS, 6)})
            left = number % 7

            def failing(*args: object, **kwargs: object) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise DiskFull(tmp_path, OSError(ENOSPC, "no room"))
                commit(*args, **kwargs)  # type: ignore[arg-type]

            twins.packed.db.commit = failing  # type: ignore[method-assign]
            await let_work(40)
            twins.packed.db.commit = commit  # type: ignore[method-assign]
            await twins.compare_all()
        stopped = twins.packed.text.trouble
        assert isinstance(stopped, DiskFull)
        await twins.index({KEYS[0]: Doc("tree")})
        await let_work(400)
        assert twins.packed.text.trouble is None
        await twins.compare_all()
        await twins.packed.close()

    asyncio.run(run())


def test_a_missing_row_of_a_segment_is_named_and_reindex_is_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        crashes = await _history(tmp_path / "s.crmem")
        store = await CrabBackend.open(crashes.store.db.path)
        listed = await store.get_json(*_manifest(store), Manifest)
        assert listed is not None
        first = f"{listed.segments[0].id:08}"
        await store.delete_prefix(Column.TEXT, store.prefix("idx", "text", IX, "seg", first, "post"))
        with pytest.raises(BadRecord, match="reindex"):
            await store.text.search(IX, "tree", 9)
        await store.close()

    asyncio.run(run())


def _manifest(store: CrabBackend) -> tuple[Column, bytes]:
    return Column.TEXT, store.key("idx", "text", IX, "segs")
