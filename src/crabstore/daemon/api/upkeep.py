"""The daemon itself, and the store as a whole: health, metrics, durability, compaction, indexes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from importlib.metadata import version

import msgspec
from starlette.responses import Response, StreamingResponse

from ...answers.documents import Document
from ...answers.failures import failure_document
from ...answers.upkeep import rewrite
from ...store.reindex import reindex
from ..application import Daemon
from ..failures import EXPECTED, explain
from ..metrics import CONTENT_TYPE, exposition, gauge
from .operations import Ask, Nothing, Operations, Params

__all__ = ["operations"]

operations = Operations()

VERSION = version("crabstore")


class Erasing(Params, frozen=True):
    """With `erase`, torn tails and damaged originals that were saved beside the store go, too."""

    erase: bool = False


@operations.add("GET", "/v1/health", Nothing, Nothing)
async def health(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Whether the daemon works, since when, and whether its configuration is the one in the file."""
    return {
        "status": "shutting-down" if daemon.closing else "ok",
        "version": VERSION,
        "pid": os.getpid(),
        "home": str(daemon.home.path),
        "seconds": round(daemon.clock.monotonic() - daemon.began, 3),
        "working": len(daemon.runtime.live()),
        "store": {"size": daemon.store.db.stats().size, "not_synced": _not_synced(daemon)},
        "config_error": daemon.config_error,
    }


@operations.add("GET", "/metrics", Nothing, Nothing)
async def metrics(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Response:
    """Numbers for Prometheus."""
    return Response(_page(daemon), headers={"content-type": CONTENT_TYPE})


@operations.add("POST", "/v1/reload", Nothing, Nothing)
async def reload(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Read the configuration again, as SIGHUP does; one that cannot be used changes nothing."""
    daemon.reload()
    return {"reloaded": {"path": str(daemon.home.config)}}


@operations.add("POST", "/v1/store/sync", Nothing, Nothing)
async def sync_store(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """Answer when what was written before survives a power cut."""
    await daemon.store.sync()
    return {"synced": {"size": daemon.store.db.stats().durable}}


@operations.add("POST", "/v1/store/checkpoint", Nothing, Nothing)
async def checkpoint_store(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> Document:
    """As sync, and make the next start fast, if that is worth it."""
    await daemon.store.checkpoint()
    return {"synced": {"size": daemon.store.db.stats().durable}}


@operations.add("POST", "/v1/store/compact", Nothing, Erasing)
async def compact_store(daemon: Daemon, ask: Ask[Nothing, Erasing]) -> Document:
    """Rewrite the file without its dead bytes."""
    return (await rewrite(daemon.store, erase=ask.body.erase)).document()


@operations.add("POST", "/v1/store/reindex", Nothing, Nothing, streams=True)
async def reindex_store(daemon: Daemon, ask: Ask[Nothing, Nothing]) -> StreamingResponse:
    """Build every index anew: a stream of `progress`, then `result` or `error`. Until then no search answers."""
    return StreamingResponse(_reindexing(daemon), media_type="text/event-stream")


def _page(daemon: Daemon) -> str:
    stats, live = daemon.store.db.stats(), daemon.runtime.live()
    return exposition(
        daemon.lag.lines(),
        daemon.ended.lines(),
        daemon.requests.lines(),
        gauge("crabstore_sessions_working", "Sessions that have work.", len(live)),
        gauge(
            "crabstore_runs_waiting", "Jobs behind the one of their session.", sum(s.waiting for s in live)
        ),
        gauge("crabstore_store_size_bytes", "The store's file.", stats.size),
        gauge("crabstore_store_live_bytes", "Records that can be read.", stats.live),
        gauge("crabstore_store_dead_bytes", "What a compaction would drop.", stats.dead),
        gauge("crabstore_store_keys", "Keys in the store.", stats.keys),
        gauge("crabstore_store_unsynced_bytes", "What a power cut would take.", _not_synced(daemon)),
        gauge("crabstore_store_compactions", "Compactions since the start.", stats.compactions),
        gauge("crabstore_up_seconds", "Since the start.", daemon.clock.monotonic() - daemon.began),
    )


def _not_synced(daemon: Daemon) -> int:
    stats = daemon.store.db.stats()
    return stats.size - stats.durable


async def _reindexing(daemon: Daemon) -> AsyncIterator[bytes]:
    told: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue()
    work = asyncio.create_task(reindex(daemon.store, lambda done, total: told.put_nowait((done, total))))
    work.add_done_callback(lambda _: told.put_nowait(None))
    done = 0
    while (step := await told.get()) is not None:
        done = step[0]
        yield _event("progress", {"done": step[0], "total": step[1]})
    try:
        await work
    except EXPECTED as error:
        yield _event("error", failure_document(explain(error)))
    else:
        yield _event("result", {"sessions": done})


def _event(kind: str, data: Document) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))
