"""The operations as an application: routes, the description of them, and errors that no operation answers."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..application import Daemon
from ..failures import BadRequest
from . import agents, commits, memory, runs, search, sessions, upkeep
from .description import describe
from .operations import Operations, refusal, reply

__all__ = ["LOCAL", "OPERATIONS", "build"]

OPERATIONS = Operations(
    [
        operation
        for module in (upkeep, agents, sessions, runs, search, memory)
        for operation in module.operations.all
    ]
)
"""Everything that can be asked."""

LOCAL = Operations([*OPERATIONS.all, *commits.operations.all])
"""The same, and what only the socket offers."""


def build(daemon: Daemon, operations: Operations) -> Starlette:
    """The application that answers `operations`."""
    description = describe(operations)

    async def show_description(request: Request) -> Response:
        return reply(description)

    app = Starlette(
        routes=[Route("/openapi.json", show_description, methods=["GET"]), *operations.routes(daemon)],
        exception_handlers={HTTPException: _no_operation},
    )
    app.router.redirect_slashes = False
    return app


async def _no_operation(request: Request, error: Exception) -> Response:
    known = isinstance(error, HTTPException) and error.status_code == 405
    if known:
        problem = f"{request.method} cannot be asked of this path: /openapi.json says what can"
        return refusal(BadRequest(405, "bad-method", problem))
    return refusal(
        BadRequest(404, "no-such-path", "there is nothing at this path: /openapi.json says what is")
    )
