"""The loop of a run: ask the model, store its answer, answer its tool calls, ask again, until it is done.

Everything is stored as it happens, before it is told, so the run may be killed between any two steps: what is
loaded afterwards is a history that `repair` makes valid. Names no backend, no SDK and no harness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ..store.messages import Format, HistoryEntry, ToolCall
from ..store.records import Json, evolve
from ..store.session_records import Done, ToolResultEvent, ToolStart, ToolStartCall
from .clock import Clock
from .errors import ContextTooLong, RunError
from .finishing import finished
from .harness import Context, Scope
from .providers.protocol import Provider, Reply, Request, Usage
from .recorder import Recorder
from .retries import Asking
from .run import RunResult
from .steering import Steering
from .wire import convert, tool_message

__all__ = ["Loop"]

PARTIAL = "partial"
"""The mark of an answer that was cut off: by a cancel, or because the provider failed for good."""


class Loop:
    """One run of one agent in one session."""

    def __init__(
        self,
        *,
        context: Context,
        scope: Scope,
        provider: Provider,
        model: str,
        history: Sequence[HistoryEntry],
        steering: Steering,
        recorder: Recorder,
        asking: Asking,
        clock: Clock,
        compact: Callable[[], Awaitable[list[HistoryEntry]]] | None = None,
    ) -> None:
        self._context = context
        self._scope = scope
        self._provider = provider
        self._model = model
        self._history = convert(history, provider.format)
        self._steering = steering
        self._recorder = recorder
        self._asking = asking
        self._clock = clock
        self._compact = compact
        self._heard: list[HistoryEntry] = []
        self._iterations = 0
        self._usage = Usage()
        self._text = ""

    async def run(self, message: HistoryEntry, stored: Callable[[], object]) -> RunResult:
        """Answer `message`, and call `stored` when it is. Raises RunError, and whatever the store raises."""
        failure: RunError | None = None
        try:
            await self._hear(message, stored)
            reason = await self._iterate()
        except asyncio.CancelledError:
            reason = "cancelled"
        except RunError as error:
            reason, failure = "error", error
        with suppress(asyncio.CancelledError):  # too late: the run is over
            await finished(self._end(reason))
        if failure is not None:
            raise failure
        return RunResult(self._text, reason, self._iterations, self._usage)

    async def _iterate(self) -> str:
        """Step by step to the end; why it ended."""
        while self._iterations < self._scope.agent.max_iterations:
            while (steered := self._steering.first()) is not None:
                await self._hear(steered, self._steering.drop)
            if self._iterations + 1 == self._scope.agent.max_iterations:
                self._steering.open = False  # the model takes no step after this one
            reply = await self._step()
            if reply.stop_reason != "pause_turn" and not reply.calls and self._steering.closed_for_now():
                return reply.stop_reason
        return "max_iterations"

    async def _step(self) -> Reply:
        """One answer of the model, and the answers to its calls."""
        _end_if_cancelled()
        reply = await self._reply()
        self._iterations += 1
        self._usage += reply.usage
        entry = HistoryEntry(message=reply.message, format=self._provider.format)
        self._text = entry.text
        if entry.blocks:
            self._history.append(await self._recorder.message(entry))
        if reply.calls:
            await self._recorder.event(ToolStart(ts=self._clock.now(), calls=_started(reply.calls)))
        for call in reply.calls:
            await self._answer(call)
        return reply

    async def _reply(self) -> Reply:
        """The model's answer; where the context is too long for it, and that is wanted, to a shorter one."""
        try:
            return await self._asking.reply(self._request())
        except ContextTooLong:
            if self._compact is None:
                raise
        shorter, self._compact = await self._compact(), None
        # The summary holds what people said in this run, but the model should read it in their own words.
        self._history = convert([*shorter, *self._heard], self._provider.format)
        return await self._asking.reply(self._request())

    async def _answer(self, call: ToolCall) -> None:
        began = self._clock.monotonic()
        output = await self._scope.dispatch(self._context, call)
        duration = round((self._clock.monotonic() - began) * 1000)
        message = tool_message(self._provider.format, call.id, output)
        result = HistoryEntry(message=message, format=self._provider.format)
        self._history.append(await self._recorder.message(result))
        await self._recorder.event(
            ToolResultEvent(ts=self._clock.now(), call_id=call.id, duration_ms=duration)
        )
        _end_if_cancelled()

    async def _hear(self, entry: HistoryEntry, stored: Callable[[], object]) -> None:
        """Store what a person says, and put before it what the harnesses add for this run only."""
        said = await self._recorder.message(_in_format(entry, self._provider.format), stored)
        injected = await self._scope.preprocess(self._context, said)
        self._heard += [*injected, said]
        self._history += convert([*injected, said], self._provider.format)

    def _request(self) -> Request:
        agent = self._scope.agent
        return Request(
            model=self._model,
            entries=tuple(self._history),
            system=self._scope.system,
            tools=self._scope.tools,
            tool_choice=self._tool_choice(),
            max_tokens=agent.max_tokens,
            thinking=agent.thinking,
            thinking_budget=agent.thinking_budget,
            session=self._context.session.handle,
        )

    def _tool_choice(self) -> Json:
        """The agent's; a forced tool only in the first step, or the model could never come to an end."""
        choice = self._scope.agent.tool_choice
        return choice if not self._iterations or choice == "none" else "auto"

    async def _keep_partial(self) -> None:
        """What the model had said when it was cut off stays in the history, marked."""
        if text := self._asking.partial:
            self._text = text
            entry = HistoryEntry.assistant(text, format=self._provider.format)
            entry.mark = PARTIAL
            await self._recorder.message(entry)

    async def _end(self, reason: str) -> None:
        await self._keep_partial()
        await self._recorder.event(
            Done(
                ts=self._clock.now(),
                model=self._scope.agent.model,
                iterations=self._iterations,
                stop_reason=reason,
                usage=self._usage.members(),
            )
        )
        await self._recorder.sync()


def _end_if_cancelled() -> None:
    """A harness may have swallowed the cancellation that was meant for the run."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _in_format(entry: HistoryEntry, format_name: Format) -> HistoryEntry:
    """A message of plain text has the same shape everywhere: it is stored as the session's own."""
    plain = isinstance(entry.message.get("content"), str)
    return evolve(entry, format=format_name) if plain and entry.format != format_name else entry


def _started(calls: Sequence[ToolCall]) -> list[ToolStartCall]:
    return [ToolStartCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls]
