"""Opening a store by URL: which engine an address means, and handing the judgement numbers to the store.

``:memory:`` is the volatile backend; a path, or ``crabdb:`` and a path, is a crabdb file; any other scheme is
looked up among the installed packages' entry points of the group ``crabstore.backends``, whose value is an
async callable ``(location, *, create, read_only) -> Backend``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from .backends.crabdb import CrabBackend
from .backends.volatile import VolatileBackend
from .store.backend import Backend
from .store.bm25 import Analysis, Bm25
from .store.errors import InvalidArgument
from .store.schema import require_keyspace
from .store.session_index import Redact
from .store.weights import Weights

__all__ = ["BackendFactory", "Opening", "Settings", "file_of", "open"]

GROUP = "crabstore.backends"
MEMORY = ":memory:"

# A scheme of one letter is a drive, and so a path.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://)?(.*)", re.DOTALL)


class BackendFactory(Protocol):
    """What an entry point of the group ``crabstore.backends`` names."""

    def __call__(self, location: str, *, create: bool, read_only: bool) -> Awaitable[Backend]:
        """Open the store at `location`, which is the URL without its scheme."""


@dataclass(frozen=True)
class Settings:
    """The judgement numbers that a store is asked for."""

    bm25: Bm25
    analysis: Analysis
    weights: Weights
    redact: Redact | None


class Opening:
    """A store that is being opened: await it, or enter it with ``async with``, which also closes it."""

    def __init__(self, url: str, settings: Settings, *, create: bool, read_only: bool) -> None:
        self._url = url
        self._settings = settings
        self._create = create
        self._read_only = read_only
        self._store: Backend | None = None

    def __await__(self) -> Generator[None, None, Backend]:
        return self._open().__await__()

    async def __aenter__(self) -> Backend:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()

    async def _open(self) -> Backend:
        store = await _connect(self._url, create=self._create, read_only=self._read_only)
        store.bm25, store.analysis = self._settings.bm25, self._settings.analysis
        store.weights, store.redact = self._settings.weights, self._settings.redact
        try:
            await require_keyspace(store)
        except BaseException:
            await store.close()
            raise
        return store


def open(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    bm25: Bm25 | None = None,
    analysis: Analysis | None = None,
    weights: Weights | None = None,
    redact: Redact | None = None,
) -> Opening:
    """The store at `url`, to be awaited or entered.

    With `create`, a store that is not there is made; its directory must exist. `read_only` opens beside a
    live writer and never writes. Raises InvalidArgument for an unknown scheme, SchemaMismatch for a store of a
    newer version, and what the engine raises (`crabdb.CrabDBError`, OSError).
    """
    settings = Settings(bm25 or Bm25(), analysis or Analysis(), weights or Weights(), redact)
    return Opening(os.fspath(url), settings, create=create and not read_only, read_only=read_only)


async def _connect(url: str, *, create: bool, read_only: bool) -> Backend:
    if url == MEMORY:
        return VolatileBackend()
    path = file_of(url)
    if path is not None:
        return await CrabBackend.open(path, create=create, read_only=read_only)
    scheme, _, location = url.partition(":")
    return await _factory(scheme)(location.removeprefix("//"), create=create, read_only=read_only)


def file_of(url: str) -> str | None:
    """The path of the crabdb file that a URL means; None if it means another engine."""
    match = _URL.fullmatch(url)
    if url == MEMORY or (match and match[1] != "crabdb"):
        return None
    return match[2] if match else url


def _factory(scheme: str) -> BackendFactory:
    # A path needs none of it, and importing it takes longer than opening one.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if scheme not in found:
        known = ", ".join(sorted(["crabdb", *found]))
        raise InvalidArgument("store URL scheme", scheme, f"no installed backend has it; there are: {known}")
    factory: BackendFactory = found[scheme].load()
    return factory
