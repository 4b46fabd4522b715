"""What a failed HTTP answer of a model server means, for every SDK alike. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ...store.records import Json
from ..errors import (
    BrokenStream,
    ContextTooLong,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
    Unauthorized,
)

__all__ = ["failure", "retry_after"]

_TOO_LONG = re.compile(
    r"prompt is too long|context[ _]length|context window|maximum context|exceeds? the (available )?context",
    re.I,
)
_STATUS = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "permission_error": 403,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "not_found_error": 404,
}
"""What an error that comes inside a stream would have been as a status."""


def failure(
    provider: str, status: int | None, why: str, body: object = None, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """The error for an answer with this status; one inside a stream (200 or None) is told by its body."""
    kind, code = _named(body)
    known = status if status is not None and status >= 400 else _STATUS.get(kind) or _STATUS.get(code)
    if known is None:
        return BrokenStream(provider, why, status)
    if known in (401, 403):
        return Unauthorized(provider, why, known)
    if known == 429 and "insufficient_quota" not in (kind, code):
        return RateLimited(provider, why, known, retry_after(headers or {}))
    if known == 413 or (known == 400 and (code == "context_length_exceeded" or _TOO_LONG.search(why))):
        return ContextTooLong(provider, why, known)
    if known == 408 or known >= 500:
        return ProviderUnavailable(provider, why, known)
    return RequestRejected(provider, why, known)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks to wait, None if it does not say or makes no sense."""
    milliseconds, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, scale in ((milliseconds, 0.001), (seconds, 1.0)):
        if text and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()):
            return float(text) * scale
    return _until(seconds) if seconds else None


def _until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (zoned - datetime.now(UTC)).total_seconds())


def _named(body: object) -> tuple[str, str]:
    """Type and code of the error in a body: `{"error": {"type", "code"}}`, or that object itself."""
    inner: object = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(inner, dict):
        return "", ""
    return _text(inner.get("type")), _text(inner.get("code"))


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
