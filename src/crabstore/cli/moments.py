"""Times as people type them, as the store writes them. Pure: the present is an argument."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..answers.failures import ExitCode, Refusal
from ..store.records import rfc3339

__all__ = ["since", "until"]

_AGO = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERIOD = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")


def since(text: str, now: datetime) -> str:
    """The earliest time that `text` means: a period counts from its beginning. Raises Refusal."""
    return _moment("--since", text, now, end=False)


def until(text: str, now: datetime) -> str:
    """The first time after what `text` means: a period is part of it as a whole. Raises Refusal."""
    return _moment("--until", text, now, end=True)


def _moment(option: str, text: str, now: datetime, *, end: bool) -> str:
    try:
        return rfc3339(_read(text, now, end=end)) if text else ""
    except (ValueError, OverflowError) as error:
        raise Refusal(
            ExitCode.USAGE,
            "usage",
            f"{option} {text!r} is no time: say a year, a month or a day (2026, 2026-03, 2026-03-01), "
            "a time (2026-03-01T14:00:00Z), or how long ago (30m, 24h, 7d, 2w)",
        ) from error


def _read(text: str, now: datetime, *, end: bool) -> datetime:
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    if period := _PERIOD.fullmatch(text):
        return _period(*period.groups(), end=end)
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _period(year: str, month: str | None, day: str | None, *, end: bool) -> datetime:
    """The beginning of a year, a month or a day in UTC, or its end."""
    first = datetime(int(year), int(month or 1), int(day or 1), tzinfo=UTC)
    if not end:
        return first
    if day:
        return first + timedelta(days=1)
    return datetime(
        first.year + (not month or first.month == 12), (first.month % 12 + 1) if month else 1, 1, tzinfo=UTC
    )
