"""A provider that plays a file of turns: for demos and tests, without a model and without a network.

A script is a JSON list of turns, or an object `{"turns": [...], "repeat": true}`. Each session plays it from the
start, one turn an answer. A turn, every member optional:

    {"text": "Hello", "thinking": "...", "calls": [{"name": "read", "arguments": {"path": "x"}}],
     "wait": "gate", "pause": 0.5, "error": "rate_limited", "retry_after": 2, "break": true,
     "stop_reason": "max_tokens", "usage": {"input_tokens": 10, "output_tokens": 3}}

`text` may be a list: its deltas. `wait` holds the turn, after its text, until `release("gate")` is called; `pause`
until so many seconds went by. `error` (rate_limited, unavailable, rejected, unauthorized, context_too_long) fails
instead of answering, `break` breaks off after the text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

import msgspec

from ...store.messages import Format, ToolCall
from ...store.records import Json
from ..clock import Clock
from ..errors import (
    BadScript,
    BrokenStream,
    ContextTooLong,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
    Unauthorized,
)
from ..wire import assistant_message
from .protocol import ProviderEvent, Reply, Request, TextDelta, ThinkingDelta, Usage

__all__ = ["Script", "ScriptedCall", "ScriptedProvider", "ScriptedTurn"]

_NAME = "scripted"

_ERRORS: dict[str, Callable[[str], ProviderError]] = {
    "rate_limited": lambda why: RateLimited(_NAME, why),
    "unavailable": lambda why: ProviderUnavailable(_NAME, why, 529),
    "rejected": lambda why: RequestRejected(_NAME, why, 400),
    "unauthorized": lambda why: Unauthorized(_NAME, why, 401),
    "context_too_long": lambda why: ContextTooLong(_NAME, why, 400),
}


class ScriptedCall(msgspec.Struct, forbid_unknown_fields=True):
    """A tool call of a turn; without an id it gets one that no other call of the session has."""

    name: str
    arguments: Json = {}
    id: str = ""


class ScriptedTurn(msgspec.Struct, forbid_unknown_fields=True, rename={"breaks": "break"}):
    """One answer of the script (see the module)."""

    text: str | list[str] = ""
    thinking: str = ""
    calls: list[ScriptedCall] = []
    wait: str = ""
    pause: float = 0.0
    error: str = ""
    retry_after: float | None = None
    breaks: bool = False
    stop_reason: str = ""
    usage: dict[str, int] = {}


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """Turns, and whether they begin anew when they are over."""

    turns: list[ScriptedTurn]
    repeat: bool = False


class ScriptedProvider:
    """Plays a script to each session, and keeps what it was asked."""

    def __init__(
        self,
        turns: Iterable[ScriptedTurn] | Script,
        *,
        format: Format = "anthropic",
        clock: Clock | None = None,
        name: str = "in memory",
    ) -> None:
        self.script = turns if isinstance(turns, Script) else Script(list(turns))
        self.requests: list[Request] = []
        """Every request so far."""
        self._format = format
        self._clock = clock or Clock()
        self._name = name
        self._played: dict[str, int] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._require_sound()

    @classmethod
    def parse(
        cls, data: bytes | str, *, format: Format = "anthropic", name: str = "in memory"
    ) -> ScriptedProvider:
        """The provider of a script file's content. Raises BadScript."""
        try:
            script = msgspec.json.decode(data, type=list[ScriptedTurn] | Script)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadScript(name, str(error)) from error
        return cls(script, format=format, name=name)

    @property
    def format(self) -> Format:
        """Of the messages that it writes."""
        return self._format

    def release(self, gate: str) -> None:
        """Let every turn go on that waits for `gate`, or will."""
        self._gate(gate).set()

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        """The next turn of the session's script. Raises the turn's error, or BadScript after the last turn."""
        self.requests.append(request)
        number, turn = self._next(request.session)
        if turn.error:
            raise _failure(turn)
        for event in _deltas(turn):
            yield event
        if turn.wait:
            await self._gate(turn.wait).wait()
        if turn.pause:
            await self._clock.sleep(turn.pause)
        if turn.breaks:
            raise BrokenStream(_NAME, "the script breaks off here")
        yield self._reply(number, turn)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _next(self, session: str) -> tuple[int, ScriptedTurn]:
        number = self._played.get(session, 0)
        turns = self.script.turns
        if not turns or (number >= len(turns) and not self.script.repeat):
            raise BadScript(
                self._name, f"has no turn number {number + 1}, which session {session!r} asks for"
            )
        self._played[session] = number + 1
        return number, turns[number % len(turns)]

    def _reply(self, number: int, turn: ScriptedTurn) -> Reply:
        calls = tuple(
            ToolCall(call.id or f"call_{number}_{place}", call.name, call.arguments)
            for place, call in enumerate(turn.calls)
        )
        message = assistant_message(self._format, "".join(_chunks(turn)), calls)
        reason = turn.stop_reason or ("tool_use" if calls else "end_turn")
        return Reply(message, calls, reason, Usage(**turn.usage))

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    def _require_sound(self) -> None:
        for number, turn in enumerate(self.script.turns, start=1):
            if turn.error and turn.error not in _ERRORS:
                known = ", ".join(_ERRORS)
                raise BadScript(self._name, f"turn {number} has the error {turn.error!r}; known are {known}")
            if unknown := set(turn.usage) - set(Usage.__dataclass_fields__):
                raise BadScript(self._name, f"turn {number} has an unknown usage {sorted(unknown)}")


def _failure(turn: ScriptedTurn) -> ProviderError:
    why = "".join(_chunks(turn)) or "the script says so"
    if turn.error == "rate_limited":
        return RateLimited(_NAME, why, retry_after=turn.retry_after)
    return _ERRORS[turn.error](why)


def _chunks(turn: ScriptedTurn) -> list[str]:
    return [turn.text] if isinstance(turn.text, str) else turn.text


def _deltas(turn: ScriptedTurn) -> Iterator[ProviderEvent]:
    if turn.thinking:
        yield ThinkingDelta(turn.thinking)
    for chunk in filter(None, _chunks(turn)):
        yield TextDelta(chunk)
