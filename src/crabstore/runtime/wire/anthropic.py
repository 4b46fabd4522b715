"""The Messages API: a history as the messages of a request, a stream of events as a reply. Pure.

Whatever is rendered keeps that API's rules: it begins with the user, roles alternate, no text is blank, the
results of all calls open the message behind them, ids of calls are unique, and no reasoning goes back without its
signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...store.messages import HistoryEntry, ToolCall
from ...store.messages.wire import content_list, string
from ...store.records import Json
from ..providers.protocol import ProviderEvent, Reply, TextDelta, ThinkingDelta, Usage
from ..tools import Tool
from .convert import as_object, convert, parsed

__all__ = ["MessageStream", "Rendered", "render", "tool_choice", "tools"]

_Block = dict[str, Json]

_OPENING: _Block = {"type": "text", "text": "(The conversation begins here.)"}


@dataclass(frozen=True)
class Rendered:
    """A history as a request carries it."""

    system: str
    """What system messages within the history say."""
    messages: list[dict[str, Json]]

    @property
    def uses_tools(self) -> bool:
        """Whether a call or a result stands in it: the API then wants to be told of tools."""
        blocks = (block for message in self.messages for block in content_list(message["content"]))
        return any(isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks)


def render(entries: Sequence[HistoryEntry]) -> Rendered:
    """A repaired history of any formats."""
    system: list[str] = []
    turns: list[tuple[str, list[_Block]]] = []
    for entry in convert(entries, "anthropic"):
        role = string(entry.message.get("role"))
        content = list(_sound(entry.message.get("content")))
        if role not in ("user", "assistant"):
            system.extend(string(block.get("text")) for block in content)
        elif content and turns and turns[-1][0] == role:
            turns[-1][1].extend(content)
        elif content:
            turns.append((role, content))
    if turns and turns[0][0] != "user":
        turns.insert(0, ("user", [_OPENING]))
    return Rendered("\n\n".join(filter(None, system)), _unique(turns))


def tools(offered: Iterable[Tool]) -> list[dict[str, Json]]:
    """Tools as the API is told of them."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in offered
    ]


def tool_choice(choice: Json) -> Json:
    """An agent's `tool_choice`: auto, none, any, a tool's name, or the API's own object."""
    if not isinstance(choice, str):
        return choice
    kinds = {"auto": "auto", "none": "none", "any": "any", "required": "any"}
    return {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": choice}


def _sound(content: Json) -> Iterator[_Block]:
    """The blocks of a message that the API takes back."""
    for part in content_list(content):
        block: Json = {"type": "text", "text": part} if isinstance(part, str) else part
        if isinstance(block, dict) and _is_sound(block):
            yield _with_object_input({name: value for name, value in block.items() if value is not None})


def _is_sound(block: _Block) -> bool:
    match block.get("type"):
        case "text":
            return bool(string(block.get("text")).strip())
        case "thinking":
            return bool(string(block.get("signature")))
    return bool(block.get("type"))


def _with_object_input(block: _Block) -> _Block:
    if block["type"] != "tool_use" or isinstance(block.get("input"), dict):
        return block
    return {**block, "input": as_object(block.get("input"))}


def _unique(turns: list[tuple[str, list[_Block]]]) -> list[dict[str, Json]]:
    """The turns as messages: results first, and calls that reuse an id renamed together with their results."""
    used: set[str] = set()
    renamed: dict[str, str] = {}
    messages: list[dict[str, Json]] = []
    for role, blocks in turns:
        if role == "assistant":
            renamed = _new_names(blocks, used)
            content = [_renamed(block, "id", renamed) for block in blocks]
        else:
            content = [_renamed(block, "tool_use_id", renamed) for block in blocks]
            content.sort(key=lambda block: block["type"] != "tool_result")
        messages.append({"role": role, "content": list[Json](content)})
    return messages


def _new_names(blocks: list[_Block], used: set[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for block in blocks:
        if block["type"] == "tool_use":
            call_id = string(block.get("id"))
            if call_id in used:
                names[call_id] = f"{call_id}_{len(used)}"
            used.add(names.get(call_id, call_id))
    return names


def _renamed(block: _Block, member: str, names: dict[str, str]) -> _Block:
    call_id = string(block.get(member))
    return {**block, member: names[call_id]} if call_id in names else block


# -- the stream --


@dataclass
class _Open:
    """A content block on its way, and the pieces of a call's arguments."""

    block: _Block
    arguments: list[str] = field(default_factory=list)


class MessageStream:
    """Puts a reply together from the events of a stream.

    `feed` raises KeyError, TypeError or ValueError for an event that makes no sense.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Open] = {}
        self._usage: dict[str, int] = {}
        self._stop_reason = ""
        self._ended = False

    def feed(self, event: dict[str, Json]) -> ProviderEvent | None:
        """Take one event in; the delta that it brings, if any."""
        match event["type"]:
            case "message_start":
                self._count(_object(_object(event["message"]).get("usage")))
            case "content_block_start":
                self._blocks[_index(event)] = _Open(dict(_object(event["content_block"])))
            case "content_block_delta":
                return self._delta(self._blocks[_index(event)], _object(event["delta"]))
            case "message_delta":
                self._stop_reason = string(_object(event["delta"]).get("stop_reason"))
                self._count(_object(event.get("usage")))
            case "message_stop":
                self._ended = True
        return None

    def reply(self) -> Reply | None:
        """The whole answer, or None if the stream did not come to its end."""
        if not self._ended:
            return None
        content: list[Json] = []
        calls: list[ToolCall] = []
        for _, opened in sorted(self._blocks.items()):
            block: _Block = {name: value for name, value in opened.block.items() if value is not None}
            if block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
                arguments = _arguments(opened)
                block["input"] = as_object(arguments)
                if block["type"] == "tool_use":
                    calls.append(ToolCall(string(block.get("id")), string(block.get("name")), arguments))
            if block.get("type") != "text" or block.get("text"):
                content.append(block)
        message: dict[str, Json] = {"role": "assistant", "content": content}
        return Reply(message, tuple(calls), self._stop_reason or "end_turn", self._tokens())

    def _delta(self, opened: _Open, delta: _Block) -> ProviderEvent | None:
        match delta["type"]:
            case "text_delta":
                return TextDelta(_grow(opened.block, "text", delta))
            case "thinking_delta":
                return ThinkingDelta(_grow(opened.block, "thinking", delta))
            case "signature_delta":
                _grow(opened.block, "signature", delta)
            case "input_json_delta":
                opened.arguments.append(string(delta["partial_json"]))
            case "citations_delta":
                opened.block["citations"] = [
                    *content_list(opened.block.get("citations")),
                    delta["citation"],
                ]
        return None

    def _count(self, usage: _Block) -> None:
        self._usage.update({name: count for name, count in usage.items() if isinstance(count, int)})

    def _tokens(self) -> Usage:
        get = self._usage.get
        return Usage(
            get("input_tokens", 0),
            get("output_tokens", 0),
            get("cache_read_input_tokens", 0),
            get("cache_creation_input_tokens", 0),
        )


def _arguments(opened: _Open) -> Json:
    """What stands in the pieces, or the input of the block itself; raw text where it is no JSON object."""
    raw = "".join(opened.arguments)
    return parsed(raw) if raw else opened.block.get("input")


def _grow(block: _Block, member: str, delta: _Block) -> str:
    piece = string(delta[member])
    block[member] = string(block.get(member)) + piece
    return piece


def _index(event: _Block) -> int:
    index = event["index"]
    if not isinstance(index, int):
        raise TypeError(f"the index of a block is {index!r}")
    return index


def _object(value: Json) -> _Block:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} stands where an object should")
    return value
