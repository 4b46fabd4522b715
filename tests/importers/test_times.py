"""Every way in which programs write a time becomes the store's, and what is none becomes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabstore.importers.times import has_zone, timestamp
from crabstore.store.records import Json, rfc3339


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2025-06-14T11:00:00Z", "2025-06-14T11:00:00.000000Z"),
        ("2025-06-14T11:00:00.5Z", "2025-06-14T11:00:00.500000Z"),
        ("2025-06-14T11:00:00.123456789Z", "2025-06-14T11:00:00.123456Z"),
        ("2025-06-14T11:00:00,25Z", "2025-06-14T11:00:00.250000Z"),
        ("2025-06-14 11:00:00+02:00", "2025-06-14T09:00:00.000000Z"),
        ("2025-06-14T11:00:00-0530", "2025-06-14T16:30:00.000000Z"),
        ("2025-06-14T11:00:00+02", "2025-06-14T09:00:00.000000Z"),
        ("2025-06-14T11:00:00", "2025-06-14T11:00:00.000000Z"),
        ("2025-06-14t11:00:00z", "2025-06-14T11:00:00.000000Z"),
        ("2025-06-30T23:59:60Z", "2025-07-01T00:00:00.000000Z"),
        ("2025-06-14", "2025-06-14T00:00:00.000000Z"),
        (1714585031.148505, "2024-05-01T17:37:11.148505Z"),
        (1714585031148, "2024-05-01T17:37:11.148000Z"),
        (1714585031148505, "2024-05-01T17:37:11.148505Z"),
        ("1714585031", "2024-05-01T17:37:11.000000Z"),
    ],
)
def test_times_are_understood(value: Json, expected: str) -> None:
    assert timestamp(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        -5,
        True,
        "",
        "soon",
        "2025-13-01T00:00:00Z",
        "2025-06-14T25:00:00Z",
        [],
        {},
        float("inf"),
        float("nan"),
        10**500,
        "9" * 500,
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:00",
        "2025-06-14T1:0Z",
    ],
)
def test_what_is_no_time_is_no_time(value: Json) -> None:
    assert timestamp(value) == ""


def test_a_missing_zone_can_be_told() -> None:
    assert not has_zone("2025-06-14T11:00:00")
    assert has_zone("2025-06-14T11:00:00+01:00")
    assert has_zone(1714585031)


moments = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1))


@given(moments, st.integers(-14 * 60, 14 * 60))
def test_any_zone_gives_the_same_moment(moment: datetime, minutes: int) -> None:
    local = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert timestamp(local.isoformat()) == rfc3339(local)


@given(moments, moments)
def test_text_order_is_time_order(one: datetime, other: datetime) -> None:
    texts = [timestamp(moment.replace(tzinfo=UTC).isoformat()) for moment in (one, other)]
    assert (texts[0] < texts[1]) == (one < other)


@given(st.text(max_size=30) | st.floats() | st.integers())
def test_anything_is_answered_without_an_exception(value: Json) -> None:
    assert isinstance(timestamp(value), str)
