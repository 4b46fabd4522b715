"""Where the failure of a harness ends: contained, logged, reported, and never the run's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType

from ..events import HarnessFailed
from .base import Harness

__all__ = ["Attempt", "Guard", "Report"]

Report = Callable[[HarnessFailed], None]

_log = logging.getLogger("crabstore.runtime")


class Attempt:
    """A guarded call of a hook: ends what it raises, except a cancellation that was asked of this very task."""

    def __init__(self, harness: Harness, hook: str, report: Report) -> None:
        self._harness = harness
        self._hook = hook
        self._report = report
        self.error: BaseException | None = None
        """How it failed, if it did."""

    @property
    def shown(self) -> str:
        """The failure in a line, as a model is told of it."""
        return f"{type(self.error).__name__}: {self.error}"

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool:
        if error is None or not _is_the_harness_own(error):
            return False
        self.error = error
        _log.warning("harness %s failed in %s", self._harness.name, self._hook, exc_info=error)
        self._report(HarnessFailed(self._harness.name, self._hook, error))
        return True


class Guard:
    """Contains what harnesses raise and reports it."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def containing(self, harness: Harness, hook: str) -> Attempt:
        """A context in which a hook of `harness` may be called."""
        return Attempt(harness, hook, self._report)


def _is_the_harness_own(error: BaseException) -> bool:
    # A library inside a harness may leak a cancellation that nobody asked this task for: the run goes on.
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return isinstance(error, Exception)
