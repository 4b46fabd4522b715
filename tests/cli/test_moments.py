"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabstore.answers.failures import ExitCode, Refusal
from crabstore.cli.moments import since, until
from crabstore.store.records import rfc3339

NOW = datetime(2026, 3, 15, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("2026", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("2026-03", "2026-03-01T00:00", "2026-04-01T00:00"),
        ("2026-12", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("2024-02-29", "2024-02-29T00:00", "2024-03-01T00:00"),
        ("2026-03-01T14:00:00Z", "2026-03-01T14:00", "2026-03-01T14:00"),
        ("2026-03-01T14:00:00+02:00", "2026-03-01T12:00", "2026-03-01T12:00"),
        ("2026-03-01 14:00", "2026-03-01T14:00", "2026-03-01T14:00"),
        ("30m", "2026-03-15T12:00", "2026-03-15T12:00"),
        ("24h", "2026-03-14T12:30", "2026-03-14T12:30"),
        ("7d", "2026-03-08T12:30", "2026-03-08T12:30"),
        ("2w", "2026-03-01T12:30", "2026-03-01T12:30"),
    ],
)
def test_a_period_reaches_from_its_beginning_to_its_end(text: str, first: str, end: str) -> None:
    assert since(text, NOW) == f"{first}:00.000000Z"
    assert until(text, NOW) == f"{end}:00.000000Z"


def test_no_time_is_no_condition() -> None:
    assert since("", NOW) == until("", NOW) == ""


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-13", "2026-02-30", "0000", "9999-12-31x", "-7d", "7y", "999999d", " ", "9999"]
)
def test_what_is_no_time_is_a_usage_error_that_shows_the_forms(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        until(text, NOW)
    assert caught.value.failure.code == ExitCode.USAGE
    assert "--until" in str(caught.value) and "2026-03-01" in str(caught.value)


@given(st.dates(datetime(1970, 1, 1).date(), datetime(2999, 12, 30).date()))
def test_a_day_lies_between_its_own_ends(date: object) -> None:
    begin = datetime.fromisoformat(f"{date}T00:00:00+00:00")
    assert since(str(date), NOW) == rfc3339(begin)
    assert until(str(date), NOW) == rfc3339(begin + timedelta(days=1))
    month = str(date)[:7]
    assert since(month, NOW) <= since(str(date), NOW) < until(str(date), NOW) <= until(month, NOW)


@given(st.text(max_size=12))
def test_any_other_text_is_refused_and_nothing_else_happens(text: str) -> None:
    try:
        moment = since(text, NOW)
    except Refusal as error:
        assert error.failure.kind == "usage"
    else:
        assert moment == "" or datetime.fromisoformat(moment)
