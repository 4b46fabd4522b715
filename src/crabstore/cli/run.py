"""`crabstore run`, `steer` and `cancel`: one message to an agent, and what can be said while it works."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from ..answers.failures import ExitCode, Refusal
from ..daemon.client import Client, path_of
from ..daemon.extra import require_extra
from .call import Call
from .console import one_line
from .daemon import Door, home_of, talking
from .telling import Ended, Telling, opened_session, start

__all__ = ["AgentOption", "SessionOption", "cancel", "run", "steer"]

AgentOption = Annotated[
    str,
    typer.Option(metavar="AGENT", help="Who answers in a new session: a name or an id; else the default."),
]
SessionOption = Annotated[
    str, typer.Option(metavar="HANDLE", help="Go on with this session; else a new one is opened.")
]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="Its handle, or enough of its beginning.")]


def run(
    call: Call,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to say; - reads it from stdin.")],
    agent: AgentOption = "",
    session: SessionOption = "",
) -> ExitCode | None:
    """Say something to an agent, and print its answer as it arrives."""
    require_extra()
    text = sys.stdin.read() if message == "-" else message
    if agent and session:
        raise Refusal(
            ExitCode.USAGE, "usage", "a session has its agent: --agent and --session exclude each other"
        )
    handle, ended = asyncio.run(_run(call, text, agent, session))
    if call.json:
        result = {"text": ended.text, "stop_reason": ended.stop_reason, "iterations": ended.iterations}
        call.answer({"run": {"session": handle, **result, "usage": ended.usage}}, lambda _: None)
    return ended.code


def steer(
    call: Call,
    session: Session,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to say; - reads it from stdin.")],
) -> ExitCode | None:
    """Say something to the run that is going on in a session: the model hears it before its next step."""
    require_extra()
    text = sys.stdin.read() if message == "-" else message
    document = asyncio.run(_ask(call, path_of("sessions", session, "steer"), {"message": text}))
    call.answer(document, lambda screen: screen.show("said"))
    return None


def cancel(call: Call, session: Session) -> ExitCode | None:
    """Stop what a session works on; its history stays valid."""
    require_extra()
    document = asyncio.run(_ask(call, path_of("sessions", session, "cancel"), None))
    done = document["cancelled"]
    was = isinstance(done, dict) and done["running"]
    call.answer(document, lambda screen: screen.show("cancelled" if was else "nothing was going on"))
    return None


async def _ask(call: Call, path: str, body: object) -> dict[str, object]:
    return await Client(home_of(call).socket).ask("POST", path, body)


async def _run(call: Call, message: str, agent: str, session: str) -> tuple[str, Ended]:
    async with talking(call) as door:
        handle = session or await opened_session(door, agent, message)
        if not session:
            call.note(f"session {one_line(handle)}")
        try:
            return handle, await Telling(call).follow(start(door, handle, message))
        except asyncio.CancelledError:
            await _stop(door, handle)
            raise


async def _stop(door: Door, handle: str) -> None:
    """Ctrl-C: the run ends, too, wherever it goes on."""
    await door.ask("POST", path_of("sessions", handle, "cancel"))
