"""What is packed reads back as it was; what was not packed is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.backends.crabdb.packed.arrays import Ints, Reader, narrowed, pack_array, pack_strings
from crabstore.backends.crabdb.packed.columns import Column, merged_column, pack_column, read_column
from crabstore.backends.crabdb.packed.postings import Block, Postings, blocks, joined, pack_block
from crabstore.store.errors import BadRecord
from crabstore.store.text import Between, passes

terms = st.text("abcdefgé東", min_size=1, max_size=6).map(str.encode)
one_list = st.dictionaries(
    st.integers(0, 9) | st.integers(0, 70_000) | st.integers(0, 2**32 - 1),
    st.integers(1, 3) | st.integers(250, 2**32 - 1),
    min_size=1,
    max_size=40,
)
times = st.integers(0, 10**6).map(lambda at: f"2026-03-01T00:00:{at % 60:02}.{at:06}Z")
words = st.sampled_from(["", "a", "b", "user", "2026-03", "2026-03-01T00:00:00.000000", "\0", "é", "zz"])
columns = st.lists(st.none() | words, max_size=30) | st.lists(st.none() | times, max_size=30)


def _postings(lists: dict[bytes, dict[int, int]]) -> Postings:
    ordered = sorted(lists)
    flat = [posting for term in ordered for posting in sorted(lists[term].items())]
    return Postings(
        ordered,
        np.array([len(lists[term]) for term in ordered], np.int64),
        np.array([doc for doc, _ in flat], np.uint32),
        np.array([tf for _, tf in flat], np.uint32),
    )


@settings(deadline=None)
@given(st.dictionaries(terms, one_list, min_size=1, max_size=12))
def test_postings_read_back_from_their_blocks(lists: dict[bytes, dict[int, int]]) -> None:
    postings = _postings(lists)
    packed = [pack_block(part) for part in blocks(postings)]
    read = [Block(b"key", value) for value in packed]
    whole = joined([block.all() for block in read])
    assert whole.docs.tolist() == postings.docs.tolist()
    assert whole.tfs.tolist() == postings.tfs.tolist()
    found: dict[bytes, dict[int, int]] = {}
    for block in read:
        for at, term in enumerate(block.terms):
            docs, tfs = block.one(at)
            found.setdefault(term, {}).update(zip(docs.tolist(), tfs.tolist(), strict=True))
    assert found == lists


@settings(deadline=None)
@given(st.dictionaries(terms, one_list, min_size=1, max_size=5), st.data())
def test_a_block_that_is_cut_short_is_refused(
    lists: dict[bytes, dict[int, int]], data: st.DataObject
) -> None:
    value = pack_block(next(blocks(_postings(lists))))
    cut = data.draw(st.integers(0, len(value) - 1))
    try:
        terms = Block(b"key", value[:cut]).terms
    except BadRecord:
        return
    # Only what stands last, a term, can be shorter without the lists disagreeing: the store's checksums tell that.
    assert cut >= len(value) - len(terms[-1]) - 1


@settings(deadline=None)
@given(columns, words | times, st.none() | words | times, st.none() | words | times)
def test_a_column_answers_as_its_values_do(
    values: list[str | None], equal: str, since: str | None, until: str | None
) -> None:
    column = read_column(b"key", pack_column(values))
    assert column.values() == values
    for condition in (equal, Between(since, until)):
        expected = [value is not None and passes({"x": value}, {"x": condition}) for value in values]
        assert column.matches(condition).tolist() == expected


@settings(deadline=None)
@given(st.lists(columns, min_size=1, max_size=4))
def test_merged_columns_hold_what_each_gave(parts: list[list[str | None]]) -> None:
    total = sum(map(len, parts))
    places = np.random.default_rng(total).permutation(total)
    given_parts: list[tuple[Column | None, Ints, Ints]] = []
    expected: list[str | None] = [None] * total
    start = 0
    for values in parts:
        kept = np.arange(len(values))
        new = places[start : start + len(values)]
        start += len(values)
        column = None if not any(values) and len(values) % 2 else read_column(b"key", pack_column(values))
        for at, place in enumerate(new.tolist()):
            expected[place] = values[at] if column else None
        given_parts.append((column, kept, new))
    assert read_column(b"key", merged_column(given_parts, total)).values() == expected


def test_a_word_that_no_document_has_any_more_leaves_the_column() -> None:
    column = read_column(b"key", pack_column(["secret", "plain", None]))
    merged = merged_column([(column, np.array([1, 2]), np.array([0, 1]))], 2)
    assert read_column(b"key", merged).values() == ["plain", None]
    assert b"secret" not in merged


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_strings_read_back(strings: list[bytes]) -> None:
    assert Reader(b"key", pack_strings(strings)).strings() == strings


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_numbers_read_back_in_the_width_they_need(numbers: list[int]) -> None:
    packed = pack_array(narrowed(np.array(numbers, np.int64)))
    assert Reader(b"key", packed).numbers().tolist() == numbers


@pytest.mark.parametrize("value", [b"", b"\x09\x01\x00\x00\x00\x01", b"\x00\xff\xff\xff\xff\x01", b"\x05"])
def test_what_is_no_array_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(BadRecord, match="this key"):
        Reader(b"this key", value).array()


@pytest.mark.parametrize("value", [b"", b"\x02", b"\x00\x01\x00\x00\x00\x02\x00\x00\x00ab"])
def test_what_is_no_column_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(BadRecord, match="this key"):
        read_column(b"this key", value)
