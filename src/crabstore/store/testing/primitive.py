"""The five methods, and what is provided over them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product

from ..backend import Backend
from ..batch import Batch, Column
from ..errors import Conflict, InvalidArgument, OutsideRealm, WrongLoop
from .cases import Contract, case, contents, raises, raises_now

__all__ = ["PrimitiveContract"]

HOSTILE_KEYS = [
    b"\x00",
    b"\x00\x00",
    b"\xff",
    b"\xff\xff",
    b"a",
    b"a\x00",
    b"a/",
    b"a/b",
    b"ab",
    b"b%",
    b"\n",
]


class PrimitiveContract(Contract):
    """The five methods, pages, and batches."""

    @case
    async def test_a_value_put_is_read_back_and_a_later_put_replaces_it(self, store: Backend) -> None:
        key = store.key("k")
        assert await store.get(Column.CONFIG, key) is None
        for value in (b"one", b"", bytes(range(256)) * 300):
            await store.put(Column.CONFIG, key, value)
            assert await store.get(Column.CONFIG, key) == value
            assert await store.scan(Column.CONFIG, store.prefix()) == [(key, value)]

    @case
    async def test_delete_says_whether_there_was_something(self, store: Backend) -> None:
        key = store.key("k")
        assert await store.delete(Column.CONFIG, key) is False
        await store.put(Column.CONFIG, key, b"")
        assert await store.delete(Column.CONFIG, key) is True
        assert await store.get(Column.CONFIG, key) is None
        assert await store.delete(Column.CONFIG, key) is False

    @case
    async def test_columns_are_hard_partitions(self, store: Backend) -> None:
        for col in Column:
            await store.put(col, store.key("same"), col.name.encode())
        for col in Column:
            assert await store.scan(col, store.prefix()) == [(store.key("same"), col.name.encode())]

    @case
    async def test_scans_ascend_in_byte_order_whatever_the_bytes(self, store: Backend) -> None:
        keys = [store.prefix() + tail for tail in HOSTILE_KEYS]
        for key in reversed(keys):
            await store.put(Column.TEXT, key, key[::-1])
        assert await store.scan_keys(Column.TEXT, store.prefix()) == sorted(keys)
        for prefix in [store.prefix(), *keys]:
            under = sorted(key for key in keys if key.startswith(prefix))
            assert await store.scan_keys(Column.TEXT, prefix) == under
            assert await store.scan(Column.TEXT, prefix) == [(key, key[::-1]) for key in under]

    @case
    async def test_a_page_is_a_slice_of_the_scan(self, store: Backend) -> None:
        keys = sorted(store.prefix("p") + tail for tail in HOSTILE_KEYS)
        outside = [store.key("o"), store.key("p"), store.key("q")]
        for key in keys + outside:
            await store.put(Column.TEXT, key, key + b"!")
        prefix = store.prefix("p")
        starts = [None, prefix, *outside, *keys, keys[3] + b"\x01"]
        for after, limit, reverse in product(starts, (None, 0, 1, 3, 100), (False, True)):
            ordered = sorted(keys, reverse=reverse)
            if after is not None:
                ordered = [key for key in ordered if (key < after if reverse else key > after)]
            bounds = {"after": after, "limit": limit, "reverse": reverse}
            wanted = ordered[:limit]
            assert await store.page_keys(Column.TEXT, prefix, **bounds) == wanted, bounds  # type: ignore[arg-type]
            rows = await store.page(Column.TEXT, prefix, **bounds)  # type: ignore[arg-type]
            assert rows == [(key, key + b"!") for key in wanted], bounds

    @case
    async def test_many_gets_answer_in_the_order_asked(self, store: Backend) -> None:
        await store.put(Column.TEXT, store.key("a"), b"1")
        await store.put(Column.TEXT, store.key("c"), b"")
        keys = [store.key(part) for part in ("c", "b", "a", "c")]
        assert await store.get_many(Column.TEXT, keys) == [b"", None, b"1", b""]

    @case
    async def test_bad_input_is_refused_and_changes_nothing(self, store: Backend) -> None:
        key = store.key("k")
        await store.put(Column.CONFIG, key, b"v")
        before = await contents(store)
        text: bytes = "text"  # type: ignore[assignment]
        calls: list[tuple[type[Exception], Callable[[], Awaitable[object]]]] = [
            (OutsideRealm, lambda: store.get(Column.CONFIG, b"elsewhere/k")),
            (OutsideRealm, lambda: store.put(Column.CONFIG, b"elsewhere/k", b"v")),
            (OutsideRealm, lambda: store.put(Column.CONFIG, b"localk", b"v")),
            (OutsideRealm, lambda: store.delete(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.scan_keys(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.scan(Column.CONFIG, b"loca")),
            (OutsideRealm, lambda: store.page(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.page_keys(Column.CONFIG, b"")),
            (OutsideRealm, lambda: store.get_many(Column.CONFIG, [key, b"k"])),
            (InvalidArgument, lambda: store.get(Column.CONFIG, text)),
            (InvalidArgument, lambda: store.put(Column.CONFIG, key, text)),
            (InvalidArgument, lambda: store.put(Column.CONFIG, text, b"v")),
            (InvalidArgument, lambda: store.page(Column.CONFIG, store.prefix(), limit=-1)),
            (InvalidArgument, lambda: store.page_keys(Column.CONFIG, store.prefix(), limit=-1)),
        ]
        for error, call in calls:
            await raises(error, call)
        batch = store.batch()
        for wrong in (text, b"elsewhere"):
            raises_now(InvalidArgument, batch.put, Column.CONFIG, wrong, b"v")
            raises_now(InvalidArgument, batch.delete, Column.CONFIG, wrong)
            raises_now(InvalidArgument, batch.expect, Column.CONFIG, wrong, None)
            raises_now(InvalidArgument, batch.add, Column.CONFIG, wrong, {"n": 1})
        raises_now(InvalidArgument, batch.put, Column.CONFIG, key, text)
        await store.commit(batch)
        assert await contents(store) == before

    @case
    async def test_a_second_event_loop_is_refused(self, store: Backend) -> None:
        await store.put(Column.CONFIG, store.key("k"), b"v")

        async def elsewhere() -> None:
            await raises(WrongLoop, store.get, Column.CONFIG, store.key("k"))

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await store.get(Column.CONFIG, store.key("k")) == b"v"

    @case
    async def test_a_batch_writes_everything_it_staged(self, store: Backend) -> None:
        a, b, c = (store.key(part) for part in "abc")
        await store.put(Column.CONFIG, a, b"old")
        batch = store.batch()
        batch.put(Column.CONFIG, b, b"1")
        batch.put(Column.TEXT, b, b"2")
        batch.put(Column.CONFIG, b, b"3")
        batch.put(Column.CONFIG, c, b"4")
        batch.delete(Column.CONFIG, c)
        batch.delete(Column.CONFIG, a)
        assert await store.get(Column.CONFIG, b) is None
        assert await batch.get(Column.CONFIG, b) == b"3"
        assert await batch.get(Column.CONFIG, a) is None
        assert await batch.scan_keys(Column.CONFIG, store.prefix()) == [b]
        await store.commit(batch)
        assert await store.scan(Column.CONFIG, store.prefix()) == [(b, b"3")]
        assert await store.scan(Column.TEXT, store.prefix()) == [(b, b"2")]

    @case
    async def test_a_failed_expectation_writes_nothing(self, store: Backend) -> None:
        a, b = store.key("a"), store.key("b")
        await store.put(Column.CONFIG, a, b"now")
        before = await contents(store)
        for expected in (None, b"", b"then"):
            batch = store.batch()
            batch.put(Column.CONFIG, b, b"1")
            batch.delete(Column.CONFIG, a)
            batch.add(Column.CONFIG, store.key("n"), {"n": 1})
            batch.expect(Column.CONFIG, a, expected)
            await raises(Conflict, store.commit, batch)
            assert await contents(store) == before
        batch = store.batch()
        batch.expect(Column.CONFIG, a, b"now")
        batch.expect(Column.CONFIG, b, None)
        batch.put(Column.CONFIG, b, b"1")
        await store.commit(batch)
        assert await store.get(Column.CONFIG, b) == b"1"

    @case
    async def test_counters_add_up_and_never_conflict(self, store: Backend) -> None:
        key = store.key("counters")

        async def raise_both(by: int) -> None:
            batch = store.batch()
            batch.add(Column.TEXT, key, {"docs": 1})
            batch.add(Column.TEXT, key, {"length": by})
            await store.commit(batch)

        await asyncio.gather(*(raise_both(by) for by in range(20)))
        assert await store.get(Column.TEXT, key) == b'{"docs":20,"length":190}'
        batch = store.batch()
        batch.put(Column.TEXT, key, b'{"docs":1}')
        batch.add(Column.TEXT, key, {"docs": -1})
        assert await batch.get(Column.TEXT, key) == b'{"docs":0}'
        await store.commit(batch)
        assert await store.get(Column.TEXT, key) == b'{"docs":0}'

    @case
    async def test_conflicting_transactions_all_go_through(self, store: Backend) -> None:
        key = store.key("list")

        async def append(item: int) -> None:
            async def stage(batch: Batch) -> None:
                old = await batch.get(Column.CONFIG, key)
                await asyncio.sleep(0)
                batch.expect(Column.CONFIG, key, old)
                batch.put(Column.CONFIG, key, (old or b"") + bytes([item]))

            await store.transact(stage)

        await asyncio.gather(*(append(item) for item in range(20)))
        assert sorted(await store.get(Column.CONFIG, key) or b"") == list(range(20))
