"""Provider messages read as neutral blocks. Total: whatever JSON a message holds, nothing here raises.

Three shapes are known: `anthropic` (Messages API), `openai-chat` (Chat Completions), `openai-responses` (one
item of the Responses API). A message in any other shape is read as a mixture of the first two, which is what most
others imitate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ..records import Json
from .blocks import Block, Document, Image, Text, Thinking, ToolCall, ToolResult, Unknown

__all__ = ["content_list", "read_blocks", "read_role", "string"]

_BESIDE_CONTENT = frozenset(("reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"))
"""Members of a message that hold what others put into its content."""
_ROLES = {"developer": "system", "function": "tool", "human": "user", "model": "assistant"}


def read_role(format_name: str, message: dict[str, Json]) -> str:
    """Who speaks: user, assistant, system, tool, or whatever else the message says ("other" if nothing)."""
    role = string(message.get("role"))
    if format_name == "openai-responses" and not role:
        return _item_role(string(message.get("type")))
    if role == "user" and _only_results(message):
        return "tool"
    return _ROLES.get(role, role) or "other"


def read_blocks(format_name: str, message: dict[str, Json]) -> tuple[Block, ...]:
    """The blocks of `message`, in its order."""
    if format_name == "openai-responses":
        return tuple(_item_blocks(message))
    if string(message.get("role")) in ("tool", "function"):
        return (_chat_result(message),)
    blocks = tuple(_content(message.get("content")))
    if _BESIDE_CONTENT.isdisjoint(message):
        return blocks
    return (*_reasoning_field(message), *blocks, *_chat_extras(message))


def content_list(content: Json) -> list[Json]:
    """The content of a message as a list, which providers let it be a string, a list or nothing."""
    if content is None or content == "":
        return []
    return content if isinstance(content, list) else [content]


def string(value: Json) -> str:
    """`value` if it is a string, else ""."""
    return value if isinstance(value, str) else ""


# -- parts: the elements of a content list, of Anthropic and OpenAI alike --


def _content(content: Json) -> list[Block]:
    return [_part(part) for part in content_list(content)]


def _part(part: Json) -> Block:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        return Unknown()
    kind = string(part.get("type")) or ("text" if "text" in part else "")
    if kind.endswith("tool_result"):  # server tools have their own: web_search_tool_result, ...
        return _result(part)
    reader = _PARTS.get(kind)
    return reader(part) if reader else Unknown(kind)


def _text(part: dict[str, Json]) -> Text:
    return Text(string(part.get("text")) or string(part.get("refusal")))


def _thinking(part: dict[str, Json]) -> Thinking:
    return Thinking(string(part.get("thinking")) or string(part.get("text")))


def _call(part: dict[str, Json]) -> ToolCall:
    return ToolCall(string(part.get("id")), string(part.get("name")), part.get("input"))


def _result(part: dict[str, Json]) -> ToolResult:
    answer = _flat_text(part.get("content"))
    return ToolResult(string(part.get("tool_use_id")), answer, part.get("is_error") is True)


def _image(part: dict[str, Json]) -> Image:
    source = part.get("source")
    if isinstance(source, dict):
        return Image(string(source.get("media_type")), string(source.get("url")))
    where = part.get("image_url")
    url = string(where.get("url")) if isinstance(where, dict) else string(where)
    if url.startswith("data:"):
        return Image(url[5:].split(",", 1)[0].split(";", 1)[0][:128])
    return Image("", url)


def _document(part: dict[str, Json]) -> Document:
    source = part.get("source")
    media_type = string(source.get("media_type")) if isinstance(source, dict) else ""
    inner = part.get("file")
    names = inner if isinstance(inner, dict) else part
    return Document(string(part.get("title")) or string(names.get("filename")), media_type)


_PARTS: dict[str, Callable[[dict[str, Json]], Block]] = {
    **dict.fromkeys(
        ("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"), _text
    ),
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning"), _thinking),
    **dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use"), _call),
    **dict.fromkeys(("image", "image_url", "input_image", "computer_screenshot"), _image),
    **dict.fromkeys(("document", "file", "input_file"), _document),
}


def _flat_text(content: Json) -> str:
    """The text in a tool's answer: a string, a list of parts, or a structure that is shown as JSON."""
    if isinstance(content, dict) and "type" not in content:
        return _as_json(content)
    texts = [block.text for block in _content(content) if isinstance(block, Text)]
    return "\n".join(texts)


def _as_json(value: Json) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _parse(value: Json) -> Json:
    """Tool arguments as a JSON value; text that is no JSON stays text."""
    if not isinstance(value, str):
        return value
    try:
        parsed: Json = msgspec.json.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return value
    return parsed


def _only_results(message: dict[str, Json]) -> bool:
    content = message.get("content")
    if not isinstance(content, list) or not content:
        return False
    return all(isinstance(part, dict) and part.get("type") == "tool_result" for part in content)


# -- openai-chat: calls, results and reasoning are members of the message, not parts --


def _chat_result(message: dict[str, Json]) -> ToolResult:
    call_id = string(message.get("tool_call_id")) or string(message.get("name"))
    return ToolResult(call_id, _flat_text(message.get("content")), message.get("is_error") is True)


def _reasoning_field(message: dict[str, Json]) -> Iterator[Block]:
    for name in ("reasoning_content", "reasoning"):
        if text := string(message.get(name)):
            yield Thinking(text)
            return


def _chat_extras(message: dict[str, Json]) -> Iterator[Block]:
    if text := string(message.get("refusal")):
        yield Text(text)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield _chat_call(call)
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield ToolCall("", string(legacy.get("name")), _parse(legacy.get("arguments")))


def _chat_call(call: dict[str, Json]) -> ToolCall:
    function = call.get("function")
    if isinstance(function, dict):
        arguments = _parse(function.get("arguments"))
        return ToolCall(string(call.get("id")), string(function.get("name")), arguments)
    custom = call.get("custom")
    inner = custom if isinstance(custom, dict) else call
    arguments = _parse(inner.get("input", inner.get("arguments")))
    return ToolCall(string(call.get("id")), string(inner.get("name")), arguments)


# -- openai-responses: a message is one item --


def _item_role(kind: str) -> str:
    if kind.endswith("_output"):
        return "tool"
    if kind.endswith("_call") or kind in ("reasoning", "message"):
        return "assistant"
    return "other"


def _item_blocks(item: dict[str, Json]) -> Iterator[Block]:
    kind = string(item.get("type"))
    if kind == "message" or (not kind and "role" in item):
        yield from _content(item.get("content"))
    elif kind == "reasoning":
        yield _reasoning(item)
    elif kind.endswith("_output"):
        yield _item_result(item)
    elif kind.endswith("_call"):
        yield _item_call(kind, item)
    else:
        yield Unknown(kind)


def _reasoning(item: dict[str, Json]) -> Thinking:
    parts = [*_content(item.get("summary")), *_content(item.get("content"))]
    return Thinking("\n".join(part.text for part in parts if isinstance(part, Text)))


def _item_call(kind: str, item: dict[str, Json]) -> ToolCall:
    call_id = string(item.get("call_id")) or string(item.get("id"))
    name = string(item.get("name")) or kind.removesuffix("_call")
    for member in ("arguments", "input", "action"):
        if member in item:
            raw = member == "input"  # a custom tool's input is free text, also where it looks like JSON
            return ToolCall(call_id, name, item[member] if raw else _parse(item[member]))
    return ToolCall(call_id, name, None)


def _item_result(item: dict[str, Json]) -> ToolResult:
    call_id = string(item.get("call_id")) or string(item.get("id"))
    output = item.get("output")
    wrapped = _unwrap(output)
    if wrapped is None:
        return ToolResult(call_id, _flat_text(output))
    metadata = wrapped.get("metadata")
    code = metadata.get("exit_code") if isinstance(metadata, dict) else None
    return ToolResult(call_id, _flat_text(wrapped.get("output")), isinstance(code, int) and code != 0)


def _unwrap(output: Json) -> dict[str, Json] | None:
    """The object in an output that is itself JSON text: `{"output": ..., "metadata": {"exit_code": ...}}`."""
    if not isinstance(output, str) or not output.startswith('{"output"'):
        return None
    parsed = _parse(output)
    return parsed if isinstance(parsed, dict) else None
