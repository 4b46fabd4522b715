"""The Messages API: a history as the messages of a request, a stream of events as a reply. Pure.

Whatever is rendered keeps that API's rules: it begins with the user, roles alternate, no text is blank, the
results of all calls open the message behind them, ids of calls are unique, and no reasoning goes back without its
signature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, cast

from ...store.messages import HistoryEntry, ToolCall
from ...store.messages.wire import content_list, string
from ...store.records import Json
from ..providers.protocol import ProviderEvent, Reply, TextDelta, ThinkingDelta, Usage
from ..tools import Tool
from .convert import as_object, convert, parsed, safe_name
from .memo import once

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
    turns: list[_Turn] = []
    for entry in convert(entries, "anthropic"):
        said = once(entry, _said)
        if said.role == "system":
            system.extend(string(block.get("text")) for block in said.blocks)
        elif said.blocks and turns and turns[-1].role == said.role:
            turns[-1] = _turn(said.role, turns[-1].blocks + said.blocks, turns[-1].calls + said.calls)
        elif said.blocks:
            turns.append(said)
    if turns and turns[0].role != "user":
        turns.insert(0, _turn("user", [_OPENING]))
    return Rendered("\n\n".join(filter(None, system)), list(_messages(turns)))


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


class _Turn(NamedTuple):
    """What one role says in a row."""

    role: str
    blocks: list[_Block]
    calls: tuple[str, ...]
    """The ids of the calls among the blocks."""
    message: dict[str, Json]
    """All of it as the API takes it. It is rendered once and shared by requests, so nobody may change it."""


def _turn(role: str, blocks: list[_Block], calls: tuple[str, ...] = ()) -> _Turn:
    """Results come first in what a user says."""
    if role == "user" and len(blocks) > 1:
        blocks = sorted(blocks, key=_after_results)
    return _Turn(role, blocks, calls, {"role": role, "content": cast("list[Json]", blocks)})


def _after_results(block: _Block) -> bool:
    return block["type"] != "tool_result"


def _said(entry: HistoryEntry) -> _Turn:
    """What the API takes back of an entry; a call's id only once."""
    role = string(entry.message.get("role"))
    role = role if role in ("user", "assistant") else "system"
    calls: list[str] = []
    blocks: list[_Block] = []
    for part in content_list(entry.message.get("content")):
        block: Json = {"type": "text", "text": part} if isinstance(part, str) else part
        sound = _taken(role, block) if isinstance(block, dict) else None
        if sound is None or string(sound.get("id")) in calls:
            continue
        if sound["type"] == "tool_use":
            calls.append(string(sound.get("id")))
        blocks.append(sound)
    return _turn(role, blocks, tuple(calls))


def _taken(role: str, block: _Block) -> _Block | None:
    reader = _READERS.get((role, string(block.get("type"))))
    return reader(block) if reader else None


def _text(block: _Block) -> _Block | None:
    text = string(block.get("text"))
    citations = {"citations": block["citations"]} if block.get("citations") else {}
    return {"type": "text", "text": text, **citations} if text.strip() else None


def _thinking(block: _Block) -> _Block | None:
    return _as_it_is(block) if string(block.get("signature")) else None


def _tool_use(block: _Block) -> _Block | None:
    call_id, name = _id(block.get("id")), safe_name(string(block.get("name")))
    call: _Block = {"type": "tool_use", "id": call_id, "name": name, "input": as_object(block.get("input"))}
    return call if call_id else None


def _tool_result(block: _Block) -> _Block | None:
    call_id = _id(block.get("tool_use_id"))
    result: _Block = {"type": "tool_result", "tool_use_id": call_id}
    if content := _result_content(block.get("content")):
        result["content"] = content
    if block.get("is_error") is True:
        result["is_error"] = True
    return result if call_id else None


def _result_content(content: Json) -> Json:
    """What may stand in a result; what else a program may have put there is left out."""
    if isinstance(content, str):
        return content
    parts = (part for part in content_list(content) if isinstance(part, dict))
    return [part for part in parts if part.get("type") in _IN_RESULTS]


def _as_it_is(block: _Block) -> _Block:
    """A request may carry few marks for the cache, and they are the provider's to set."""
    return {name: value for name, value in block.items() if value is not None and name != "cache_control"}


def _sourced(block: _Block) -> _Block | None:
    return _as_it_is(block) if isinstance(block.get("source"), dict) else None


def _id(value: Json) -> str:
    return _UNSAFE.sub("_", string(value))


_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_IN_RESULTS = ("text", "image", "document", "search_result")

_READERS: dict[tuple[str, str], Callable[[_Block], _Block | None]] = {
    ("system", "text"): _text,
    ("user", "text"): _text,
    ("user", "image"): _sourced,
    ("user", "document"): _sourced,
    ("user", "search_result"): _as_it_is,
    ("user", "tool_result"): _tool_result,
    ("assistant", "text"): _text,
    ("assistant", "thinking"): _thinking,
    ("assistant", "redacted_thinking"): _as_it_is,
    ("assistant", "tool_use"): _tool_use,
    **{
        ("assistant", kind): _as_it_is
        for kind in (
            *(
                "server_tool_use",
                "web_search_tool_result",
                "web_fetch_tool_result",
                "code_execution_tool_result",
            ),
            *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
            *("tool_search_tool_result", "mcp_tool_use", "mcp_tool_result"),
        )
    },
}
"""Who may say what. A block of a kind that is not here, in an import say, would have the whole history refused."""


def _messages(turns: Iterable[_Turn]) -> Iterator[dict[str, Json]]:
    """The turns' messages; calls that reuse an id are renamed, together with their results."""
    used: set[str] = set()
    renamed: dict[str, str] = {}
    for turn in turns:
        if turn.role == "assistant":
            renamed = _new_names(turn.calls, used) if turn.calls else {}
            used.update(turn.calls)
        if renamed:
            yield {"role": turn.role, "content": [_renamed(block, renamed) for block in turn.blocks]}
        else:
            yield turn.message


def _new_names(calls: Iterable[str], used: set[str]) -> dict[str, str]:
    """Names for those of `calls` that are used already; they are used then, too."""
    names: dict[str, str] = {}
    for call_id in filter(used.__contains__, calls):
        names[call_id] = next(name for n in count(2) if (name := f"{call_id}_{n}") not in used)
        used.add(names[call_id])
    return names


def _renamed(block: _Block, names: dict[str, str]) -> _Block:
    member = "tool_use_id" if block["type"] == "tool_result" else "id"
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
