"""What the two APIs refuse, as assertions: strict on purpose, stricter than the servers where their docs are."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["require_valid", "require_valid_anthropic", "require_valid_chat"]

_ID = re.compile(r"[a-zA-Z0-9_-]+")


def require_valid(kind: str, request: dict[str, Any]) -> None:
    """Check the body of a request to the API of this kind."""
    if kind == "anthropic":
        require_valid_anthropic(request["messages"])
        if _uses_tools(request["messages"]):
            assert request["tools"], "a history with calls wants tools"
    else:
        require_valid_chat(request["messages"])


def require_valid_anthropic(messages: list[dict[str, Any]]) -> None:
    """Roles alternate from the user on; each call is answered at the start of the very next message."""
    assert [message["role"] for message in messages] == [
        ("user", "assistant")[place % 2] for place in range(len(messages))
    ]
    used: set[str] = set()
    owed: list[str] = []
    for message in messages:
        assert set(message) == {"role", "content"}
        blocks = message["content"]
        assert isinstance(blocks, list) and blocks
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "user":
            assert sorted(results) == sorted(owed), "each call has one result, each result a call"
            assert kinds[: len(results)] == ["tool_result"] * len(results), "results come first"
            owed = []
        else:
            assert not results
            owed = [block["id"] for block in blocks if block["type"] == "tool_use"]
            assert len(set(owed)) == len(owed) and not used & set(owed), "ids are unique"
            used.update(owed)
        for block in blocks:
            _require_block(block)
    assert owed == [] and (not messages or messages[-1]["role"] == "user")


def _require_block(block: dict[str, Any]) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "text must not be blank"
        case "tool_use":
            assert isinstance(block["input"], dict)
            assert _ID.fullmatch(block["id"]) and _ID.fullmatch(block["name"])
        case "thinking":
            assert block["signature"]
        case "image":
            assert block["source"]["type"] in ("base64", "url")
    assert None not in block.values()


def require_valid_chat(messages: list[dict[str, Any]]) -> None:
    """The tool messages right behind an assistant answer its calls, each once; nothing else answers anything."""
    owed: set[str] = set()
    for message in messages:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in owed, "a result has a call right before it"
            owed.remove(message["tool_call_id"])
            assert isinstance(message["content"], str | list)
            continue
        assert not owed, f"calls without a result: {owed}"
        assert role in ("system", "user", "assistant")
        calls = message.get("tool_calls", [])
        assert message["content"] or (role == "assistant" and calls)
        assert role == "assistant" or not calls
        for call in calls:
            assert call["id"] and call["id"] not in owed
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            owed.add(call["id"])
    assert not owed
    assert not messages or messages[-1]["role"] in ("user", "tool")


def _uses_tools(messages: list[dict[str, Any]]) -> bool:
    return any(block["type"] == "tool_use" for message in messages for block in message["content"])
