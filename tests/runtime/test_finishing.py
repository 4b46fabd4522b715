"""What was begun is finished before a cancellation goes on its way."""

from __future__ import annotations

import asyncio

import pytest

from crabstore.runtime.finishing import finished


def test_a_cancellation_waits_until_the_work_is_done() -> None:
    async def scenario() -> None:
        began, gate, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            began.set()
            await gate.wait()
            done.set()

        task = asyncio.ensure_future(finished(work()))
        await began.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(scenario())


def test_the_result_and_the_error_of_the_work_come_through() -> None:
    async def good() -> int:
        return 1

    async def bad() -> int:
        raise ValueError("no")

    async def scenario() -> None:
        assert await finished(good()) == 1
        with pytest.raises(ValueError, match="no"):
            await finished(bad())

    asyncio.run(scenario())


def test_an_error_of_the_work_is_not_hidden_by_a_cancellation() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def bad() -> None:
            await gate.wait()
            raise ValueError("no")

        task = asyncio.ensure_future(finished(bad()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(ValueError, match="no"):
            await task

    asyncio.run(scenario())
