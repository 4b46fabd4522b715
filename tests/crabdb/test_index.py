"""The ordered index against a sorted list."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabdb import index
from crabdb.index import Change, Index, SortedKeys, successor

KEYS = st.binary(min_size=1, max_size=4)


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_successor_is_the_least_bound_of_a_prefix(prefix: bytes, key: bytes) -> None:
    bound = successor(prefix)
    assert key.startswith(prefix) == (key >= prefix and (bound is None or key < bound))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, st.booleans()), max_size=30), max_size=8), KEYS, st.booleans())
def test_order_follows_the_live_keys(
    rounds: list[list[tuple[bytes, bool]]], low: bytes, reverse: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "CHUNK", 3)
        live: dict[bytes, bytes] = {}
        keys = SortedKeys([])
        for touched in rounds:
            for key, present in touched:
                if present:
                    live[key] = b""
                else:
                    live.pop(key, None)
            keys.reconcile([key for key, _ in touched], live)
            assert list(keys) == sorted(live)
            for limit in (None, 0, 2):
                for high in (None, b"\x90"):
                    found = sorted(key for key in live if key >= low and (high is None or key < high))
                    expected = found[::-1] if reverse else found
                    assert keys.between(low, high, limit, reverse) == expected[:limit]


def test_many_new_keys_one_at_a_time_keep_chunks_short() -> None:
    live: dict[bytes, bytes] = {}
    keys = SortedKeys([])
    for number in range(5000):
        key = b"%d" % (number * 7919 % 5000)
        live[key] = b""
        keys.reconcile([key], live)
    assert list(keys) == sorted(live)
    assert max(map(len, keys._chunks)) <= 2 * index.CHUNK
    assert keys._firsts == [chunk[0] for chunk in keys._chunks]


def test_restored_index_is_what_it_was() -> None:
    found = Index()
    olds: list[bytes | None] = []
    changes: list[Change] = [(0, b"a", None), (0, b"c", b"3"), (1, b"b", b"4")]
    found.apply([(0, b"a", b"1"), (1, b"b", b"22")], 100, [])
    before = [dict(live) for live in found.maps], found.live
    found.apply(changes, 200, olds)
    found.keys(0, b"", None, None, False)
    found.restore(changes, olds)
    assert ([dict(live) for live in found.maps], found.live) == before
    assert found.keys(0, b"", None, None, False) == [b"a"]
    assert found.keys(1, b"", None, None, True) == [b"b"]
