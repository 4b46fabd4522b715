"""What the contract's cases are made of: a fresh store each, its contents, errors that must be raised."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..backend import Backend
from ..batch import Column

__all__ = ["HOSTILE_NAMES", "Contract", "case", "contents", "raises", "raises_now"]

P = ParamSpec("P")
C = TypeVar("C", bound="Contract")
Contents = dict[Column, list[tuple[bytes, bytes]]]

HOSTILE_NAMES = ["a", "a/b", "a%2Fb", "a b", "%", "_", "ünï", "a/", "数据", "'; drop", "*", "a" * 128]


class Contract(ABC):
    """Cases that need nothing but a way to open a fresh store."""

    @abstractmethod
    async def open_store(self) -> Backend:
        """A fresh, empty store."""


async def contents(store: Backend) -> Contents:
    """Every key and value of a store, by column: what two equal stores agree on."""
    return {col: await store.scan(col, store.prefix()) for col in Column}


def case(test: Callable[[C, Backend], Awaitable[None]]) -> Callable[[C], None]:
    """A test that is given a fresh store on an event loop of its own."""

    @wraps(test)
    def run(self: C) -> None:
        async def body() -> None:
            store = await self.open_store()
            try:
                await test(self, store)
            finally:
                await store.close()

        asyncio.run(body())

    del run.__wrapped__  # a test runner must see a test without parameters
    return run


async def raises(
    error: type[Exception], call: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
) -> None:
    try:
        await call(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def raises_now(error: type[Exception], call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        call(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
