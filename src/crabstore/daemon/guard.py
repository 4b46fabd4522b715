"""What stands before the application on each listener: who may ask at all, and how much may be sent.

A web page that a person happens to look at can send requests to 127.0.0.1, too: with its own origin, or, after
DNS rebinding, under a host name of its own. Neither is let through, nor is anybody without the token. Nothing
answers with CORS headers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..answers.failures import Refusal
from .api.operations import refusal
from .failures import BadRequest

__all__ = ["Guard"]

_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """Lets requests through to `app` that come with `token` (None: none is asked for) and from no web page.

    `max_body` is in bytes; `count` is told the status of every answer.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, max_body: int, count: Callable[[str], None]
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._max_body = max_body
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(str(message["status"]))
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._admit(headers)
            self._admit_size(headers.get("content-length", "0"))
        except Refusal as error:
            await refusal(error)(scope, receive, counted)
            return
        # Parts of a path may hold any text, slashes too: they are told apart as they were sent, and decoded later.
        raw = scope.get("raw_path") or scope["path"].encode()
        await self._app(
            {**scope, "path": raw.decode("ascii", errors="replace")}, self._bounded(receive), counted
        )

    def _admit(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _name(host) not in _HOSTS:
            raise BadRequest(403, "bad-host", f"this is {' or '.join(_HOSTS)}, and not {host!r}")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            raise BadRequest(403, "bad-origin", f"web pages of {origin!r} may not ask here")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise BadRequest(403, "bad-origin", "web pages of other sites may not ask here")
        if self._token is not None and not self._knows(headers.get("authorization", "")):
            problem = "send `Authorization: Bearer TOKEN`, with the token that stands in the file `token`"
            raise BadRequest(401, "bad-token", problem)

    def _knows(self, given: str) -> bool:
        scheme, _, token = given.partition(" ")
        same = secrets.compare_digest(token.strip().encode(), self._token or b"")
        return same and scheme.lower() == "bearer"

    def _admit_size(self, length: str) -> None:
        if not length.isdigit() or int(length) > self._max_body:
            raise self._too_large()

    def _bounded(self, receive: Receive) -> Receive:
        """`receive`, for a body that does not say how long it is."""
        left = self._max_body

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> BadRequest:
        return BadRequest(413, "too-large", f"a body may have {self._max_body:,} bytes", most=self._max_body)


def _name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
