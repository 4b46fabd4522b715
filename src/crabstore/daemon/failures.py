"""The runtime's errors, and a request's own, as they are reported; and the HTTP status of every kind of error."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..answers import failures as shared
from ..answers.failures import ExitCode, Failure, Refusal
from ..runtime import errors as run

__all__ = ["EXPECTED", "BadRequest", "explain", "status"]

EXPECTED = (*shared.EXPECTED, run.RunError)
"""What a request may end with. Anything else is a defect of this program."""


class BadRequest(Refusal):
    """A request that no handler can take, with the HTTP status that says why."""

    def __init__(self, status: int, kind: str, message: str, **data: object) -> None:
        super().__init__(ExitCode.USAGE, kind, message, **data)
        self.status = status


class _Rule(NamedTuple):
    error: type[run.RunError]
    code: ExitCode
    kind: str
    status: int
    words: Callable[[run.RunError], str] = str


_RULES = (
    _Rule(run.Busy, ExitCode.LOCKED, "session-busy", 409),
    _Rule(run.NotRunning, ExitCode.MISSING, "not-running", 409),
    _Rule(run.RuntimeClosed, ExitCode.LOCKED, "shutting-down", 503, lambda _: "the daemon is shutting down"),
    _Rule(run.UnknownModel, ExitCode.USAGE, "unknown-model", 400),
    _Rule(run.BadScript, ExitCode.USAGE, "bad-script", 400),
    _Rule(run.SdkMissing, ExitCode.USAGE, "sdk-missing", 400),
    _Rule(run.IncompleteReply, ExitCode.MODEL, "incomplete-reply", 502),
    _Rule(run.Unauthorized, ExitCode.MODEL, "provider-unauthorized", 502),
    _Rule(run.ContextTooLong, ExitCode.MODEL, "context-too-long", 502),
    _Rule(run.RequestRejected, ExitCode.MODEL, "provider-rejected", 502),
    _Rule(run.RateLimited, ExitCode.MODEL, "provider-rate-limited", 502),
    _Rule(run.ProviderUnavailable, ExitCode.MODEL, "provider-unavailable", 502),
    _Rule(run.BrokenStream, ExitCode.MODEL, "provider-broke-off", 502),
    _Rule(run.RunError, ExitCode.MODEL, "run-failed", 502),
)
"""The first rule that fits an error reports it."""

_STATUS = {
    ExitCode.USAGE: 400,
    ExitCode.PARTIAL: 400,
    ExitCode.MISSING: 404,
    ExitCode.LOCKED: 409,
    ExitCode.VERSION: 409,
}
_KINDS = {"name-taken": 409, "exists": 409, "ambiguous": 409, "disk-full": 507}


def explain(error: Exception) -> Failure:
    """`error`, which is one of EXPECTED, as it is reported."""
    if not isinstance(error, run.RunError):
        return shared.explain(error)
    rule = _rule(error)
    data = {"provider": error.provider} if isinstance(error, run.ProviderError) else {}
    return Failure(rule.code, rule.kind, rule.words(error), data)


def status(error: Exception) -> int:
    """The HTTP status of `error`, which is one of EXPECTED."""
    if isinstance(error, BadRequest):
        return error.status
    if isinstance(error, run.RunError):
        return _rule(error).status
    failure = shared.explain(error)
    return _KINDS.get(failure.kind) or _STATUS.get(failure.code, 500)


def _rule(error: run.RunError) -> _Rule:
    return next(rule for rule in _RULES if isinstance(error, rule.error))
