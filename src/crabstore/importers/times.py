"""Times as transcripts write them, as the store does: UTC RFC 3339 with six fractional digits. Pure.

Programs write ISO 8601 with and without a zone, with no to nine fractional digits, and epochs in seconds down to
nanoseconds. What is no time becomes "": an unknown time is never the present one.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone

from ..store.records import Json, rfc3339

__all__ = ["has_zone", "timestamp"]

_USUAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(?:\d{3}|\d{6})Z", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9})\d*)?)?)?\s*"
    r"([Zz]|[+-]\d{2}(?::?\d{2})?)?"
)
_EPOCH = re.compile(r"\d+(?:\.\d+)?")
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(value: Json) -> str:
    """`value` as UTC RFC 3339; "" for null, 0, and what is no time. Without a zone it is taken as UTC."""
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int | float):
        return _from_epoch(value)
    if not isinstance(value, str):
        return ""
    text = value.strip()
    if _USUAL.fullmatch(text) and (usual := _from_usual(text)):
        return usual
    if _EPOCH.fullmatch(text):
        return _from_epoch(float(text))
    match = _ISO.fullmatch(text)
    return _from_iso(match) if match else ""


def has_zone(value: Json) -> bool:
    """Whether a time says its zone; an epoch does by being one."""
    match = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    return match is None or match[8] is not None


def _from_epoch(value: float) -> str:
    """Seconds, or by their magnitude milli-, micro- or nanoseconds, since 1970."""
    try:
        seconds = float(value)
        if not math.isfinite(seconds):
            return ""
        while seconds > 1e11:
            seconds /= 1000
        return rfc3339(_EPOCH_START + timedelta(seconds=seconds)) if seconds > 0 else ""
    except (OverflowError, ValueError):
        return ""


def _from_usual(text: str) -> str:
    """What nearly every line of a transcript has, read by the interpreter itself; "" if that cannot."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # a leap second, or no time at all
        return ""
    return rfc3339(moment) if moment >= _EPOCH_START else ""


def _from_iso(match: re.Match[str]) -> str:
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        # A leap second has no place in datetime; as a duration it is the start of the next minute.
        moment = datetime(int(year), int(month), int(day), tzinfo=_zone(zone)) + timedelta(
            hours=_limited(hour, 23),
            minutes=_limited(minute, 59),
            seconds=_limited(second, 60),
            microseconds=int((fraction or "0")[:6].ljust(6, "0")),
        )
        return rfc3339(moment) if moment >= _EPOCH_START else ""
    except (OverflowError, ValueError):
        return ""


def _limited(digits: str | None, limit: int) -> int:
    number = int(digits or 0)
    if number > limit:
        raise ValueError(digits)
    return number


def _zone(zone: str | None) -> timezone:
    if not zone or zone in "Zz":
        return UTC
    digits = zone[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=_limited(digits[:2], 23), minutes=_limited(digits[2:], 59))
    return timezone(-offset if zone[0] == "-" else offset)
