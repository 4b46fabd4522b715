"""Histories of one format continued by a provider of another. Pure, total, and never written back.

What both can say is carried over: words, tool calls, their results, images. What only the model that wrote it
can use, such as its reasoning, is left out. Entries of the wanted format come back as the very same objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ...store.messages import (
    Document,
    Format,
    HistoryEntry,
    Image,
    Text,
    ToolCall,
    ToolResult,
    repair,
)
from ...store.messages.wire import content_list, string
from ...store.records import Json, evolve

__all__ = ["as_object", "convert", "parsed", "safe_id", "safe_name"]

_Part = dict[str, Json]
_Translate = Callable[[HistoryEntry], Iterator[_Part]]
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
_MAX_ID = 40
"""Characters of a call's id that Chat Completions takes; the Messages API takes longer ones."""


def convert(entries: Sequence[HistoryEntry], format_name: Format) -> list[HistoryEntry]:
    """`entries` in `format_name`, valid there if they were valid before.

    "anthropic" and "openai-chat" can be converted to; for any other format the entries come back as they are.
    """
    translate = _TRANSLATIONS.get(format_name)
    if translate is None or all(entry.format == format_name for entry in entries):
        return list(entries)
    # Formats that are not known here were not repaired when they were loaded.
    return repair(_converted(entries, format_name, translate))


def _converted(
    entries: Iterable[HistoryEntry], format_name: Format, translate: _Translate
) -> Iterator[HistoryEntry]:
    for entry in entries:
        if entry.format == format_name:
            yield entry
        else:
            for message in translate(entry):
                yield evolve(entry, message=message, format=format_name)


# -- to the Messages API --


def _to_anthropic(entry: HistoryEntry) -> Iterator[_Part]:
    """A system entry keeps its role, which `anthropic.render` moves to where that API wants it."""
    role = entry.role if entry.role in ("assistant", "system") else "user"
    parts = list(_anthropic_parts(entry, role))
    if parts:
        yield {"role": role, "content": parts}


def _anthropic_parts(entry: HistoryEntry, role: str) -> Iterator[Json]:
    inline = _inline_images(entry.message)
    for block in entry.blocks:
        match block:
            case Text(text) if text.strip():
                yield {"type": "text", "text": text}
            case ToolCall(call_id, name, arguments) if role == "assistant" and call_id:
                call = {"type": "tool_use", "id": safe_id(call_id), "name": safe_name(name)}
                yield {**call, "input": as_object(arguments)}
            case ToolResult(call_id, text, is_error) if role == "user" and call_id:
                yield {
                    "type": "tool_result",
                    "tool_use_id": safe_id(call_id),
                    "content": text,
                    **({"is_error": True} if is_error else {}),
                }
            case Image(_, url) if role == "user":
                yield _anthropic_image(url or next(inline, ""))
            case Document(title):
                yield {"type": "text", "text": f"[document {title}]"}


def _anthropic_image(url: str) -> _Part:
    if not url:
        return {"type": "text", "text": "[image]"}
    media_type, data = _data_url(url)
    if not data:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


# -- to Chat Completions --


def _to_chat(entry: HistoryEntry) -> Iterator[_Part]:
    for block in entry.blocks:
        if isinstance(block, ToolResult) and block.call_id:
            text = f"Error: {block.text}" if block.is_error else block.text
            yield {"role": "tool", "tool_call_id": safe_id(block.call_id), "content": text}
    if entry.role == "assistant":
        yield from _chat_assistant(entry)
    elif parts := list(_chat_parts(entry)):
        role = "system" if entry.role == "system" else "user"
        yield {"role": role, "content": _joined(parts)}


def _chat_assistant(entry: HistoryEntry) -> Iterator[_Part]:
    calls: list[Json] = [_chat_call(call) for call in entry.tool_calls if call.id]
    message: _Part = {"role": "assistant", "content": entry.text or None}
    if calls:
        message["tool_calls"] = calls
    if calls or entry.text:
        yield message


def _chat_call(call: ToolCall) -> _Part:
    arguments = msgspec.json.encode(as_object(call.arguments)).decode()
    function: _Part = {"name": safe_name(call.name), "arguments": arguments}
    return {"id": safe_id(call.id), "type": "function", "function": function}


def _chat_parts(entry: HistoryEntry) -> Iterator[_Part]:
    inline = _inline_images(entry.message)
    for block in entry.blocks:
        match block:
            case Text(text) if text.strip():
                yield {"type": "text", "text": text}
            case Image(_, url) if entry.role != "system":
                found = url or next(inline, "")
                image: _Part = {"type": "image_url", "image_url": {"url": found}}
                yield image if found else {"type": "text", "text": "[image]"}
            case Document(title):
                yield {"type": "text", "text": f"[document {title}]"}


def _joined(parts: list[_Part]) -> Json:
    """Text alone as a string, which every compatible server takes."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(string(part["text"]) for part in parts)
    return list[Json](parts)


_TRANSLATIONS: dict[Format, _Translate] = {"anthropic": _to_anthropic, "openai-chat": _to_chat}


# -- what both need --


def safe_id(call_id: str) -> str:
    """`call_id` in characters and a length that every provider takes; the same for the same."""
    return _UNSAFE.sub("_", call_id)[-_MAX_ID:]


def safe_name(name: str) -> str:
    """A tool's name in characters and a length that every provider takes."""
    return _UNSAFE.sub("_", name)[:_MAX_NAME] or "unnamed"


def as_object(arguments: Json) -> dict[str, Json]:
    """Arguments as the object that providers insist on; anything else is wrapped in one."""
    if arguments is None or arguments == "":
        return {}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def parsed(arguments: str) -> Json:
    """Arguments as a model wrote them: the JSON value, no arguments at all as none, or the raw text."""
    if not arguments.strip():
        return {}
    try:
        value: Json = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return value


def _inline_images(message: _Part) -> Iterator[str]:
    """The images that stand in the message itself, as data URLs, in order."""
    for part in content_list(message.get("content")):
        if isinstance(part, dict) and (url := _inline_image(part)):
            yield url


def _inline_image(part: _Part) -> str:
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "base64":
        return f"data:{string(source.get('media_type'))};base64,{string(source.get('data'))}"
    where = part.get("image_url")
    url = string(where.get("url")) if isinstance(where, dict) else string(where)
    return url if url.startswith("data:") else ""


def _data_url(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; ("", "") for any other."""
    head, _, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64"):
        return "", ""
    return head[5:].split(";", 1)[0], data
