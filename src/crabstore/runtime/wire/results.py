"""What the runtime itself writes in a provider's format: a tool's answer, and an assistant's message. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...store.messages import Format, ToolCall
from ...store.records import Json
from ..tools import ToolOutput
from .convert import as_object

__all__ = ["assistant_message", "tool_message"]


def tool_message(format_name: Format, call_id: str, output: ToolOutput) -> dict[str, Json]:
    """The message that answers the call `call_id`; each call's answer is a message of its own."""
    if format_name == "anthropic":
        result: dict[str, Json] = {"type": "tool_result", "tool_use_id": call_id, "content": output.text}
        if output.is_error:
            result["is_error"] = True
        return {"role": "user", "content": [result]}
    # Chat Completions cannot say that an answer is an error, so its text has to.
    text = f"Error: {output.text}" if output.is_error else output.text
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def assistant_message(format_name: Format, text: str, calls: Sequence[ToolCall]) -> dict[str, Json]:
    """What a model says, of text and calls alone."""
    if format_name == "anthropic":
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        return {"role": "assistant", "content": [*content, *map(_tool_use, calls)]}
    message: dict[str, Json] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [_chat_call(call) for call in calls]
    return message


def _tool_use(call: ToolCall) -> dict[str, Json]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": as_object(call.arguments)}


def _chat_call(call: ToolCall) -> dict[str, Json]:
    text = call.arguments
    arguments = text if isinstance(text, str) else msgspec.json.encode(text).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
