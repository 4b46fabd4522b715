"""KVStorage: the one primitive. Five abstract async methods, and everything that is provided over them.

Names no backend and does no I/O of its own. What a subclass inherits is correct over its five methods; an
engine that can do better (a bounded scan, a transaction) overrides that one method and nothing else.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, wraps
from itertools import count, islice
from typing import TypeVar

from . import keys
from .batch import Batch, Column
from .errors import Conflict, InvalidArgument, OutsideRealm, WrongLoop
from .records import Record, decode, encode

__all__ = ["Batch", "Column", "KVStorage"]

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_MAX_ATTEMPTS = 1000
"""A conflict means that another commit went through, so retrying always ends; a broken engine must end too."""

_SLICE = 4096
"""Keys removed in one commit."""


class KVStorage(ABC):
    """A store of bytes under ordered keys in columns.

    Required: `get`, `put`, `delete`, `scan_keys`, `scan`. Provided: `realm`, `key`, `prefix`, `get_json`,
    `put_json`, `get_many`, `page`, `page_keys`, `batch`, `commit`, `transact`,
    `delete_prefix`, `sync`, `checkpoint`, `close`.

    A store belongs to one event loop. Every call is checked before it reaches the engine: a key outside the
    realm raises OutsideRealm, another loop WrongLoop, a wrong type InvalidArgument, whoever wrote the engine.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        # The realm is a boundary, so it is enforced here once rather than remembered by every engine's author.
        super().__init_subclass__(**kwargs)
        _guard_methods(cls)

    # -- required ---------------------------------------------------------------------------------------

    @abstractmethod
    async def get(self, col: Column, key: bytes) -> bytes | None:
        """The value under `key`, or None."""

    @abstractmethod
    async def put(self, col: Column, key: bytes, value: bytes) -> None:
        """Write `value` under `key`, replacing what was there."""

    @abstractmethod
    async def delete(self, col: Column, key: bytes) -> bool:
        """Remove `key`; whether it was there."""

    @abstractmethod
    async def scan_keys(self, col: Column, prefix: bytes) -> list[bytes]:
        """Every key that starts with `prefix`, ascending as bytes. Reads no value."""

    @abstractmethod
    async def scan(self, col: Column, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Every key that starts with `prefix` with its value, ascending as bytes."""

    # -- provided: keys and records -----------------------------------------------------------------------

    def realm(self) -> str:
        """What every key of this store opens with."""
        return "local"

    def key(self, *parts: str) -> bytes:
        """The key of these parts in this realm (see `keys.quote` for what is encoded)."""
        return self._root + keys.join(*parts)

    def prefix(self, *parts: str) -> bytes:
        """What every key below these parts starts with; it ends in ``/``, so no part is another's prefix."""
        return self._root + keys.join(*parts) + b"/" if parts else self._root

    def parts(self, key: bytes) -> list[str]:
        """The parts of which `key` makes a key, the realm left out."""
        return keys.split(key[len(self._root) :])

    async def get_json(self, col: Column, key: bytes, cls: type[R]) -> R | None:
        """The record under `key`, or None. Raises BadRecord if it is no `cls`."""
        value = await self.get(col, key)
        return None if value is None else decode(cls, value, key)

    async def put_json(self, col: Column, key: bytes, record: Record) -> None:
        """Write `record` under `key`."""
        await self.put(col, key, encode(record))

    # -- provided: what an engine may do better -----------------------------------------------------------

    async def get_many(self, col: Column, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values under `keys`, in their order, None where there is none."""
        return [await self.get(col, key) for key in keys]

    async def page_keys(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """At most `limit` keys under `prefix`, in byte order or `reverse`, from `after` on, itself excluded."""
        return _bounded(await self.scan_keys(col, prefix), lambda key: key, after, limit, reverse)

    async def page(
        self,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """As `page_keys`, with the values."""
        return _bounded(await self.scan(col, prefix), lambda row: row[0], after, limit, reverse)

    async def commit(self, batch: Batch) -> None:
        """Write the whole batch. Raises Conflict, and writes nothing, if an expectation does not hold.

        This default serialises commits within the process and writes in staged order; a crash in the middle
        leaves the writes so far. An engine with transactions overrides it and makes it all or nothing.
        """
        async with self._commit_lock:
            for (col, key), old in batch.expected.items():
                found = await self.get(col, key)
                if found != old:
                    raise Conflict(col, key, old, found)
            writes = batch.resolved({slot: await self.get(*slot) for slot in batch.added})
            for (col, key), value in writes.items():
                await (self.delete(col, key) if value is None else self.put(col, key, value))

    async def sync(self) -> None:
        """What was written before this call survives a power loss afterwards. Nothing to do by default."""

    async def checkpoint(self) -> None:
        """`sync`, and whatever makes the next opening fast. Nothing to do by default."""

    async def close(self) -> None:
        """Let go of files and connections; the store is not used afterwards. Nothing to do by default."""

    # -- provided: compound operations --------------------------------------------------------------------

    def batch(self) -> Batch:
        """An empty batch to stage into."""
        return Batch(self)

    async def transact(self, stage: Callable[[Batch], Awaitable[T]]) -> T:
        """Stage into a fresh batch and commit it; on Conflict read again and retry. What `stage` returned."""
        for attempt in count(1):
            batch = self.batch()
            result = await stage(batch)
            try:
                await self.commit(batch)
            except Conflict:
                if attempt == _MAX_ATTEMPTS:
                    raise
            else:
                return result
        raise AssertionError("count() does not end")

    async def delete_prefix(self, col: Column, prefix: bytes) -> None:
        """Remove every key under `prefix`, in commits of bounded size."""
        while doomed := await self.page_keys(col, prefix, limit=_SLICE):
            batch = self.batch()
            for key in doomed:
                batch.delete(col, key)
            await self.commit(batch)
            await asyncio.sleep(0)

    # -- the guard ----------------------------------------------------------------------------------------

    @cached_property
    def _root(self) -> bytes:
        return keys.join(self.realm()) + b"/"

    @cached_property
    def _commit_lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    def _admit(self, col: Column, key: bytes) -> None:
        if not isinstance(col, Column):
            raise InvalidArgument("column", col, "must be a crabstore.Column")
        if not isinstance(key, bytes):
            raise InvalidArgument("key", key, "must be bytes")
        if not key.startswith(self._root):
            raise OutsideRealm(key, self.realm())
        self._admit_loop()

    def _admit_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise WrongLoop
            self._loop = loop


_Method = Callable[..., Awaitable[object]]


def _guard_key(method: _Method) -> _Method:
    @wraps(method)
    async def call(self: KVStorage, col: Column, key: bytes, *args: object, **kwargs: object) -> object:
        self._admit(col, key)
        return await method(self, col, key, *args, **kwargs)

    return call


def _guard_value(method: _Method) -> _Method:
    @wraps(method)
    async def call(self: KVStorage, col: Column, key: bytes, value: bytes) -> object:
        if not isinstance(value, bytes):
            raise InvalidArgument("value", value, "must be bytes")
        self._admit(col, key)
        return await method(self, col, key, value)

    return call


def _guard_keys(method: _Method) -> _Method:
    @wraps(method)
    async def call(self: KVStorage, col: Column, keys: Sequence[bytes]) -> object:
        for key in keys:
            self._admit(col, key)
        return await method(self, col, keys)

    return call


def _guard_page(method: _Method) -> _Method:
    @wraps(method)
    async def call(
        self: KVStorage,
        col: Column,
        prefix: bytes,
        *,
        after: bytes | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> object:
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidArgument("limit", limit, "must be a whole number, not negative")
        if after is not None and not isinstance(after, bytes):
            raise InvalidArgument("after", after, "must be bytes")
        self._admit(col, prefix)
        return await method(self, col, prefix, after=after, limit=limit, reverse=reverse)

    return call


def _guard_loop(method: _Method) -> _Method:
    @wraps(method)
    async def call(self: KVStorage, *args: object) -> object:
        self._admit_loop()
        return await method(self, *args)

    return call


_GUARDS: dict[str, Callable[[_Method], _Method]] = {
    "get": _guard_key,
    "put": _guard_value,
    "delete": _guard_key,
    "scan_keys": _guard_key,
    "scan": _guard_key,
    "get_many": _guard_keys,
    "page": _guard_page,
    "page_keys": _guard_page,
    "commit": _guard_loop,
}


def _guard_methods(cls: type) -> None:
    """Put a guard before each method that `cls` itself defines."""
    for name, guard in _GUARDS.items():
        method = cls.__dict__.get(name)
        if method is not None and not getattr(method, "__isabstractmethod__", False):
            setattr(cls, name, guard(method))


_guard_methods(KVStorage)


def _bounded(
    rows: list[T], key: Callable[[T], bytes], after: bytes | None, limit: int | None, reverse: bool
) -> list[T]:
    """The page of `rows`, which ascend by `key`."""
    ordered = reversed(rows) if reverse else iter(rows)
    if after is not None:
        ordered = (row for row in ordered if (key(row) < after if reverse else key(row) > after))
    return list(islice(ordered, limit))
