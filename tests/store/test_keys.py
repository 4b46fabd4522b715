"""Keys are unambiguous, sort as intended, and never leave their realm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabstore.store import keys
from crabstore.store.errors import InvalidArgument

parts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(parts, min_size=1))
def test_splitting_a_key_gives_back_its_parts(some: list[str]) -> None:
    key = keys.join(*some)
    assert keys.split(key) == some
    assert key.count(b"/") == len(some) - 1


@given(st.lists(parts, min_size=1), st.lists(parts, min_size=1))
def test_different_parts_never_make_the_same_key(one: list[str], other: list[str]) -> None:
    assert (keys.join(*one) == keys.join(*other)) == (one == other)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/%"), min_size=1))
def test_ordinary_characters_stand_in_the_key_as_they_are(part: str) -> None:
    assert keys.join("local", part) == b"local/" + part.encode()


def test_an_empty_part_and_reserved_characters_are_encoded() -> None:
    assert keys.join("a", "", "b") == b"a/%/b"
    assert keys.join("a/b%\n\x7f") == b"a%2Fb%25%0A%7F"


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        keys.join("local", "\udcb2")


@given(st.binary(), st.binary())
def test_a_prefix_ends_below_every_key_that_does_not_start_with_it(prefix: bytes, key: bytes) -> None:
    end = keys.prefix_end(prefix)
    inside = key >= prefix and (end is None or key < end)
    assert inside == key.startswith(prefix)


def test_positions_sort_as_numbers() -> None:
    numbers = [0, 2, 10, 99, 100, 10**11]
    assert sorted(keys.position(number) for number in numbers) == [keys.position(n) for n in numbers]
