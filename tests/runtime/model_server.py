"""A model server on 127.0.0.1 for the real SDKs: it streams what a test says, and breaks off how a test says.

Plain asyncio, since no well-behaved server can be made to cut a stream in the middle of an event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Answer", "ModelServer", "anthropic_events", "chat_chunks", "serving"]


@dataclass
class Answer:
    """One HTTP answer: pieces of its body, and how it ends."""

    pieces: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ending: Literal["whole", "cut", "stall", "reset"] = "whole"

    @classmethod
    def error(cls, status: int, kind: str, message: str, **headers: str) -> Answer:
        body = json.dumps({"type": "error", "error": {"type": kind, "message": message, "code": kind}})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls([body.encode()], status, {"content-type": "application/json", **named})


class ModelServer:
    """Gives its answers in order, and keeps the requests."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.paths.append(request.split(" ")[1])
        self.headers.append(headers)
        self.requests.append(json.loads(body))
        return await self._answer(writer, self.answers.pop(0))

    async def _answer(self, writer: asyncio.StreamWriter, answer: Answer) -> bool:
        headers = {"content-type": "text/event-stream", **answer.headers, "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {answer.status} Answer\r\n{lines}\r\n".encode())
        for piece in answer.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if answer.ending == "whole":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        elif answer.ending == "stall":
            await asyncio.Event().wait()
        elif answer.ending == "reset":
            writer.transport.abort()
        return answer.ending == "whole"


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[ModelServer]:
    model = ModelServer(answers)
    server = await asyncio.start_server(model.handle, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield model
    finally:
        server.close()
        await model.close()
        await server.wait_closed()


def anthropic_events(
    text: str = "",
    calls: Iterable[tuple[str, str, str]] = (),
    *,
    thinking: str = "",
    stop_reason: str = "end_turn",
) -> list[bytes]:
    """The events of a message: thinking, text in two pieces, calls (id, name, raw JSON) in two pieces."""
    usage = {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "ping"},
    ]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "s"},
        ]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if text:
        halves = text[: len(text) // 2], text[len(text) // 2 :]
        blocks.append(
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": half} for half in halves])
        )
    for call_id, name, raw in calls:
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in (raw[:3], raw[3:])]
        blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": stop_reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def chat_chunks(
    text: str = "",
    calls: Iterable[tuple[str, str, str]] = (),
    *,
    finish: str = "stop",
) -> list[bytes]:
    """The chunks of an answer: its text in two pieces, its calls (id, name, raw JSON) in two pieces."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if text:
        deltas += [{"content": half} for half in (text[: len(text) // 2], text[len(text) // 2 :])]
    for index, (call_id, name, raw) in enumerate(calls):
        first = {"name": name, "arguments": raw[:3]}
        deltas.append(
            {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": first}]}
        )
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": raw[3:]}}]})
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas
    ]
    choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    usage = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    details = {"prompt_tokens_details": {"cached_tokens": 5}}
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**base, "choices": choice} for choice in choices]
    chunks.append({**base, "choices": [], "usage": {**usage, **details}})
    return [*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n"]
