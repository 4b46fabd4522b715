"""Chat Completions: a history as the messages of a request, a stream of chunks as a reply. Pure.

Whatever is rendered is what every compatible server takes: four roles, calls whose arguments are the text of a
JSON object, and no member that only one server knows.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ...store.messages import HistoryEntry, ToolCall
from ...store.messages.wire import content_list, string
from ...store.records import Json
from ..providers.protocol import ProviderEvent, Reply, TextDelta, ThinkingDelta, Usage
from ..tools import Tool
from .convert import as_object, convert, parsed, safe_name
from .memo import once

__all__ = ["ChunkStream", "render", "tool_choice", "tools"]

_Message = dict[str, Json]

_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def render(entries: Sequence[HistoryEntry], system: str = "") -> list[_Message]:
    """A repaired history of any formats, `system` before it."""
    opening: list[_Message] = [{"role": "system", "content": system}] if system else []
    told = (once(entry, _sound) for entry in convert(entries, "openai-chat"))
    return [*opening, *(message for message in told if message)]


def tools(offered: Iterable[Tool]) -> list[_Message]:
    """Tools as the API is told of them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in offered
    ]


def tool_choice(choice: Json) -> Json:
    """An agent's `tool_choice`: auto, none, any, a tool's name, or the API's own object."""
    if not isinstance(choice, str):
        return choice
    kinds = {"auto": "auto", "none": "none", "any": "required", "required": "required"}
    return kinds.get(choice) or {"type": "function", "function": {"name": choice}}


def _sound(entry: HistoryEntry) -> _Message | None:
    """A stored message as the API takes it back, or None if nothing is left of it."""
    message = entry.message
    role = string(message.get("role"))
    if role == "assistant":
        return _assistant(message)
    if role == "tool":
        call_id = string(message.get("tool_call_id"))
        answer = _flat(_content(message.get("content")))
        return {"role": "tool", "tool_call_id": call_id, "content": answer} if call_id else None
    content = _content(message.get("content"))
    if role in ("system", "developer"):
        role, content = "system", _flat(content)
    return {"role": role, "content": content} if content and role in ("user", "system") else None


def _assistant(message: _Message) -> _Message | None:
    content = _flat(_content(message.get("content"))) or string(message.get("refusal"))
    sound: _Message = {"role": "assistant", "content": content or None}
    if calls := list(_calls(message.get("tool_calls"))):
        sound["tool_calls"] = list[Json](calls)
    return sound if content or calls else None


def _content(content: Json) -> str | list[Json]:
    """Words as a string, parts as a list of what every server may be given."""
    if isinstance(content, str):
        return content if content.strip() else ""
    parts: Iterator[Json] = (
        {"type": "text", "text": part} if isinstance(part, str) else part for part in content_list(content)
    )
    known = [p for p in parts if isinstance(p, dict) and p.get("type") in _PARTS]
    return list[Json](p for p in known if p["type"] != "text" or string(p.get("text")).strip())


_PARTS = ("text", "refusal", "image_url", "input_audio", "file")


def _flat(content: str | list[Json]) -> str:
    """The words alone, as one string, where servers take nothing else."""
    if isinstance(content, str):
        return content
    parts = (part for part in content if isinstance(part, dict))
    return "\n".join(filter(None, (string(p.get("text")) or string(p.get("refusal")) for p in parts)))


def _calls(calls: Json) -> Iterator[_Message]:
    """The calls that can be answered: each has an id of its own."""
    seen = {""}
    for call in content_list(calls):
        if isinstance(call, dict) and string(call.get("id")) not in seen:
            seen.add(string(call.get("id")))
            yield _call(call)


def _call(call: _Message) -> _Message:
    """Servers that read the arguments of earlier calls refuse a whole history for one that is no JSON object."""
    if isinstance(call.get("custom"), dict):
        return call
    function = call.get("function")
    said = function if isinstance(function, dict) else {}
    raw = said.get("arguments")
    value = parsed(raw) if isinstance(raw, str) else raw
    whole = isinstance(raw, str) and raw.strip() and isinstance(value, dict)
    text = raw if whole else msgspec.json.encode(as_object(value)).decode()
    name = safe_name(string(said.get("name")))
    return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": text}}


# -- the stream --


@dataclass
class _Call:
    """A call on its way."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)


class ChunkStream:
    """Puts a reply together from the chunks of a stream; of several choices the first counts.

    `feed` raises KeyError, TypeError or ValueError for a chunk that makes no sense.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._finish = ""
        self._usage = Usage()

    def feed(self, chunk: _Message) -> Iterator[ProviderEvent]:
        """Take one chunk in; the deltas that it brings."""
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = _tokens(usage)
        for choice in content_list(chunk.get("choices"))[:1]:
            if not isinstance(choice, dict):
                raise TypeError(f"a choice is {choice!r}")
            self._finish = string(choice.get("finish_reason")) or self._finish
            if isinstance(delta := choice.get("delta"), dict):
                yield from self._deltas(delta)

    def reply(self) -> Reply | None:
        """The whole answer, or None if the stream did not come to its end."""
        if not self._finish:
            return None
        calls = tuple(self._called())
        text = "".join(self._text)
        message: _Message = {"role": "assistant", "content": text or None}
        if refusal := "".join(self._refusal):
            message["refusal"] = refusal
        if calls:
            message["tool_calls"] = [
                _stored(call, opened) for call, (_, opened) in zip(calls, self._sorted(), strict=True)
            ]
        reason = _REASONS.get(self._finish, self._finish)
        return Reply(message, calls, "tool_use" if calls and reason == "end_turn" else reason, self._usage)

    def _deltas(self, delta: _Message) -> Iterator[ProviderEvent]:
        reasoning = string(delta.get("reasoning_content")) or string(delta.get("reasoning"))
        if reasoning:
            yield ThinkingDelta(reasoning)
        for member, said in (("content", self._text), ("refusal", self._refusal)):
            if piece := string(delta.get(member)):
                said.append(piece)
                yield TextDelta(piece)
        for place, call in enumerate(content_list(delta.get("tool_calls"))):
            if not isinstance(call, dict):
                raise TypeError(f"a tool call is {call!r}")
            self._grow(call, place)

    def _grow(self, piece: _Message, place: int) -> None:
        index = piece.get("index")
        call = self._calls.setdefault(index if isinstance(index, int) else place, _Call())
        call.id = call.id or string(piece.get("id"))
        function = piece.get("function")
        if isinstance(function, dict):
            call.name = call.name or string(function.get("name"))
            call.pieces.append(string(function.get("arguments")))

    def _sorted(self) -> list[tuple[int, _Call]]:
        return sorted(self._calls.items())

    def _called(self) -> Iterator[ToolCall]:
        """The calls, each with an id that no other one has: some local servers give none, or one for all."""
        used: set[str] = set()
        for _, call in self._sorted():
            call_id = call.id if call.id and call.id not in used else f"call_{secrets.token_hex(8)}"
            used.add(call_id)
            yield ToolCall(call_id, call.name, parsed("".join(call.pieces)))


def _stored(call: ToolCall, opened: _Call) -> _Message:
    function: _Message = {"name": call.name, "arguments": "".join(opened.pieces)}
    return {"id": call.id, "type": "function", "function": function}


def _tokens(usage: _Message) -> Usage:
    """Cached tokens are counted inside of `prompt_tokens`; here they stand beside."""
    details = usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    return Usage(max(0, _count(usage, "prompt_tokens") - cached), _count(usage, "completion_tokens"), cached)


def _count(usage: _Message, member: str) -> int:
    count = usage.get(member)
    return count if isinstance(count, int) else 0
