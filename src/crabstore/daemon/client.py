"""A client of the daemon on its Unix socket: one connection a request, streams included.

Cheap to import, since every command of the command line may need it. A connection is never used twice: what was
sent over one that the other side had just closed could not be told from what was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import h11
import msgspec

from ..answers.documents import Document
from ..answers.failures import ExitCode, Refusal

__all__ = ["Client", "Event", "path_of", "refused"]

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    id: int
    """-1 if it has none."""
    kind: str
    data: Document


class Client:
    """Asks the daemon behind `socket`. Raises Refusal for what the daemon refuses, or if it goes away."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def reachable(self) -> bool:
        """Whether a daemon takes connections there: a socket may be left of a dead one."""
        try:
            _, writer = await self._connected()
        except Refusal:
            return False
        writer.close()
        return True

    async def ask(self, method: str, path: str, body: object = None) -> Document:
        """The answer to one request; `body` is sent as MessagePack."""
        async with self._exchange(method, path, body, {}) as answer:
            return await answer.document()

    async def stream(
        self, method: str, path: str, body: object = None, *, after: int = -1
    ) -> AsyncGenerator[Event, None]:
        """The events that a request is answered with, behind the one with the number `after`.

        Close it (`aclosing`) where it is not read to its end.
        """
        headers = {} if after < 0 else {"last-event-id": str(after)}
        async with (
            self._exchange(method, path, body, headers) as answer,
            aclosing(answer.events()) as events,
        ):
            async for event in events:
                yield event

    @asynccontextmanager
    async def _exchange(
        self, method: str, path: str, body: object, headers: Mapping[str, str]
    ) -> AsyncIterator[_Answer]:
        reader, writer = await self._connected()
        try:
            answer = _Answer(reader)
            writer.write(answer.request(method, path, body, headers))
            await writer.drain()
            await answer.begin()
            yield answer
        except (ConnectionError, h11.RemoteProtocolError) as error:
            problem = (
                f"the daemon at {self._socket} went away before it had answered: nobody knows what was done"
            )
            raise Refusal(ExitCode.SYSTEM, "daemon-gone", problem) from error
        finally:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_unix_connection(self._socket)
        except OSError as error:
            problem = (
                f"no daemon serves {self._socket.parent}, so nothing is going on there: `crabstore serve`"
            )
            raise Refusal(ExitCode.MISSING, "no-daemon", problem) from error


def path_of(*parts: str) -> str:
    """The path of these parts, which may be any text."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class _Answer:
    """One request and its answer."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._http = h11.Connection(h11.CLIENT)
        self._status = 0

    def request(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        """The bytes of the request."""
        data = b"" if body is None else msgspec.msgpack.encode(body)
        given = {"host": "localhost", "connection": "close", "content-length": str(len(data)), **headers}
        if data:
            given["content-type"] = "application/msgpack"
        events = (
            h11.Request(method=method, target=path, headers=list(given.items())),
            h11.Data(data),
            h11.EndOfMessage(),
        )
        return b"".join(self._http.send(event) or b"" for event in events)

    async def begin(self) -> None:
        """Read up to the body. Raises Refusal if that is an error."""
        response = await self._next()
        while isinstance(response, h11.InformationalResponse):
            response = await self._next()
        assert isinstance(response, h11.Response)
        if response.status_code >= 400:
            raise refused(await self.document())

    async def document(self) -> Document:
        """The whole body."""
        document: Document = msgspec.json.decode(b"".join([piece async for piece in self._pieces()]))
        return document

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of the body as they arrive."""
        held = b""
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                *whole, held = (held + piece).split(b"\n\n")
                for block in whole:
                    yield _event(block)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_CHUNK))
        return event


def _event(block: bytes) -> Event:
    members = dict(line.split(b": ", 1) for line in block.split(b"\n"))
    number = int(members.get(b"id", b"-1"))
    return Event(number, members[b"event"].decode(), msgspec.json.decode(members[b"data"]))


class _Error(msgspec.Struct):
    kind: str
    exit: int
    message: str


def refused(document: Document) -> Refusal:
    """The error that an answer tells, as whoever asked would have found it."""
    members = document["error"]
    assert isinstance(members, dict)
    error = msgspec.convert(members, _Error)
    data = {name: value for name, value in members.items() if name not in _Error.__struct_fields__}
    return Refusal(ExitCode(error.exit), error.kind, error.message, **data)
