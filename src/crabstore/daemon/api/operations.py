"""An operation: method, path, what it takes, and the function that answers. Routes and description come from it.

A query string and a body are read as records whose unknown members are errors; a body is JSON or MessagePack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ...answers.documents import Document
from ...answers.failures import ExitCode, Failure, failure_document
from ..application import Daemon
from ..failures import EXPECTED, BadRequest, explain, status
from ..params import Nothing, Params

__all__ = ["Ask", "Nothing", "Operation", "Operations", "Params", "refusal", "reply"]

_log = logging.getLogger("crabstore.daemon")

_ENCODER = msgspec.json.Encoder()
_PATIENCE = 60
"""Seconds that a body may take."""
_READERS: Mapping[str, Callable[..., Any]] = {
    "application/json": msgspec.json.decode,
    "application/msgpack": msgspec.msgpack.decode,
}


Q = TypeVar("Q", bound=Params)
B = TypeVar("B", bound=Params)


@dataclass(frozen=True)
class Ask(Generic[Q, B]):
    """One request, read."""

    path: Mapping[str, str]
    """The parts of the path, decoded: any text."""
    query: Q
    body: B
    last_event: int = -1
    """The number of the last event that a client which comes back has seen, -1 for none."""


Answer = Document | Response
Handler = Callable[[Daemon, Ask[Q, B]], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation(Generic[Q, B]):
    """One thing that can be asked."""

    method: str
    path: str
    handler: Handler[Q, B]
    query: type[Q]
    body: type[B]
    streams: bool
    """Whether it answers with a stream of events."""

    @property
    def name(self) -> str:
        """Unique; a client's function would be called so."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip()


@dataclass
class Operations:
    """A list of operations, filled by decorating functions."""

    all: list[Operation[Any, Any]] = field(default_factory=list)

    def add(
        self, method: str, path: str, query: type[Q], body: type[B], *, streams: bool = False
    ) -> Callable[[Handler[Q, B]], Handler[Q, B]]:
        """Register a function as the operation at `path`."""

        def register(handler: Handler[Q, B]) -> Handler[Q, B]:
            self.all.append(Operation(method, path, handler, query, body, streams))
            return handler

        return register

    def routes(self, daemon: Daemon) -> list[Route]:
        """The operations as starlette takes them."""
        return [
            Route(
                operation.path, _endpoint(operation, daemon), methods=[operation.method], name=operation.name
            )
            for operation in self.all
        ]


def reply(document: Document, code: int = 200) -> Response:
    """A JSON document."""
    headers = {"cache-control": "no-store"}
    return Response(_ENCODER.encode(document), code, headers, media_type="application/json")


def refusal(error: Exception) -> Response:
    """An error, which is one of EXPECTED."""
    return reply(failure_document(explain(error)), status(error))


def _endpoint(operation: Operation[Any, Any], daemon: Daemon) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            asked = await _read(operation, request)
            await daemon.turnstile.passed()
            answer = await operation.handler(daemon, asked)
        except EXPECTED as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # noqa: BLE001 - a defect ends its request, not the daemon; its traceback is logged
            _log.exception("%s %s failed", operation.method, operation.path)
            defect = Failure(ExitCode.SYSTEM, "defect", "this is a defect of crabstore; its log tells more")
            return reply(failure_document(defect), 500)
        return answer if isinstance(answer, Response) else reply(answer)

    return endpoint


async def _read(operation: Operation[Q, B], request: Request) -> Ask[Q, B]:
    try:
        query = msgspec.convert(dict(request.query_params), operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(400, "bad-query", f"the query string: {error}") from error
    path = {name: unquote(text) for name, text in request.path_params.items()}
    return Ask(path, query, await _body(operation, request), _last_event(request))


async def _body(operation: Operation[Q, B], request: Request) -> B:
    try:
        async with asyncio.timeout(_PATIENCE):
            data = await request.body()
    except TimeoutError as error:
        raise BadRequest(408, "too-slow", f"the body was not there after {_PATIENCE} seconds") from error
    if operation.body is Nothing or not data:
        return _convert(operation.body, msgspec.json.decode, b"{}")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _READERS:
        known = " or ".join(_READERS)
        raise BadRequest(415, "bad-content-type", f"a body must be {known}, not {kind or 'of no kind'}")
    return _convert(operation.body, _READERS[kind], data)


def _convert(kind: type[B], read: Callable[..., Any], data: bytes) -> B:
    try:
        body: B = read(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(400, "bad-body", f"the body: {error}") from error
    return body


def _last_event(request: Request) -> int:
    given = request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else -1
