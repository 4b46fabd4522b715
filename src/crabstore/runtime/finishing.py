"""What was begun is finished, also when the task that began it is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["finished"]

T = TypeVar("T")


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. A cancellation is passed on, but only when `work` has come to its end.

    A store write is then never cut in the middle, whatever engine is below.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled() and task.exception() is not None:
            raise task.exception() from cancelled  # type: ignore[misc]
        raise cancelled
    return task.result()
