"""Messages of every provider read as roles, texts and blocks; junk included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabstore.store.messages import (
    Document,
    HistoryEntry,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from crabstore.store.records import decode, encode, evolve

FORMATS = ("anthropic", "openai-chat", "openai-responses", "somebody-elses")

SECRET = "sk-very-secret"


def anthropic(role: str, content: Any, **fields: Any) -> HistoryEntry:
    return HistoryEntry(message={"role": role, "content": content}, format="anthropic", **fields)


def chat(**message: Any) -> HistoryEntry:
    return HistoryEntry(message=message, format="openai-chat")


def item(**message: Any) -> HistoryEntry:
    return HistoryEntry(message=message, format="openai-responses")


# -- roles --


@pytest.mark.parametrize(
    ("entry", "role"),
    [
        (anthropic("user", "hello"), "user"),
        (anthropic("user", [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]), "tool"),
        (
            anthropic("user", [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "x"}]),
            "user",
        ),
        (anthropic("user", []), "user"),
        (anthropic("assistant", None), "assistant"),
        (chat(role="developer", content="rules"), "system"),
        (chat(role="function", name="f", content="1"), "tool"),
        (chat(role="narrator", content="x"), "narrator"),
        (chat(content="x"), "other"),
        (item(type="message", role="user", content=[]), "user"),
        (item(role="developer", content="x"), "system"),
        (item(type="function_call", name="f", call_id="c", arguments="{}"), "assistant"),
        (item(type="local_shell_call", call_id="c"), "assistant"),
        (item(type="reasoning", summary=[]), "assistant"),
        (item(type="custom_tool_call_output", call_id="c", output="x"), "tool"),
        (item(type="ghost_snapshot"), "other"),
    ],
)
def test_role_follows_from_the_format(entry: HistoryEntry, role: str) -> None:
    assert entry.role == role


# -- blocks --


def test_anthropic_blocks_are_read_in_order() -> None:
    entry = anthropic(
        "assistant",
        [
            {"type": "thinking", "thinking": "hmm", "signature": "AAAA"},
            {"type": "redacted_thinking", "data": "AAAA"},
            {"type": "text", "text": "one"},
            "bare",
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": [{"type": "web_search_result"}],
            },
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            {
                "type": "document",
                "title": "Plan",
                "source": {"type": "base64", "media_type": "application/pdf"},
            },
            {"type": "hologram"},
            7,
        ],
    )
    assert entry.blocks == (
        Thinking("hmm"),
        Thinking(""),
        Text("one"),
        Text("bare"),
        ToolCall("t1", "Bash", {"command": "ls"}),
        ToolCall("s1", "web_search", {}),
        ToolResult("s1", ""),
        Image("image/png"),
        Document("Plan", "application/pdf"),
        Unknown("hologram"),
        Unknown(""),
    )
    assert entry.text == "one\nbare"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "a\nb"),
        ({"rows": 3}, '{"rows":3}'),
        (["bare"], "bare"),
    ],
)
def test_tool_result_text_is_flattened(content: Any, text: str) -> None:
    entry = anthropic(
        "user", [{"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True}]
    )
    assert entry.tool_results == (ToolResult("a", text, True),)


def test_chat_calls_come_from_the_message_and_keep_arguments_that_are_no_json() -> None:
    entry = chat(
        role="assistant",
        content=None,
        reasoning_content="let me see",
        tool_calls=[
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{broken"}},
            {"id": "c", "type": "custom", "custom": {"name": "h", "input": "free text"}},
            {"id": "d", "function": {"name": "i", "arguments": {"already": "object"}}},
            "junk",
        ],
        function_call={"name": "old", "arguments": "[]"},
    )
    assert entry.blocks[0] == Thinking("let me see")
    assert [(call.id, call.name, call.arguments) for call in entry.tool_calls] == [
        ("a", "f", {"x": 1}),
        ("b", "g", "{broken"),
        ("c", "h", "free text"),
        ("d", "i", {"already": "object"}),
        ("", "old", []),
    ]


def test_chat_parts_and_refusals_are_read() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA"}},
    ]
    assert chat(role="user", content=parts).blocks == (
        Text("look"),
        Image("image/png"),
        Image("", "https://example.org/a.png"),
        Document("a.pdf"),
        Unknown("input_audio"),
    )
    assert chat(role="assistant", content=None, refusal="No.").text == "No."


def test_chat_tool_message_is_one_result() -> None:
    assert chat(role="tool", tool_call_id="a", content="42").blocks == (ToolResult("a", "42"),)
    assert chat(role="function", name="f", content="42").blocks == (ToolResult("f", "42"),)


def test_responses_items_are_read() -> None:
    assert (
        item(type="message", role="assistant", content=[{"type": "output_text", "text": "hi"}]).text == "hi"
    )
    assert item(role="user", content="hi").text == "hi"
    reasoning = item(
        type="reasoning", summary=[{"type": "summary_text", "text": "so"}], encrypted_content="AAAA"
    )
    assert reasoning.blocks == (Thinking("so"),)
    call = item(type="function_call", call_id="c", id="fc_1", name="shell", arguments='{"cmd":["ls"]}')
    assert call.tool_calls == (ToolCall("c", "shell", {"cmd": ["ls"]}),)
    patch = item(type="custom_tool_call", call_id="c", name="apply_patch", input="[1]")
    assert patch.tool_calls == (ToolCall("c", "apply_patch", "[1]"),)
    search = item(type="web_search_call", id="ws_1", action={"type": "search", "query": "crab"})
    assert search.tool_calls == (ToolCall("ws_1", "web_search", {"type": "search", "query": "crab"}),)
    assert item(type="compaction", encrypted_content="AAAA").blocks == (Unknown("compaction"),)


@pytest.mark.parametrize(
    ("output", "text", "is_error"),
    [
        ("plain", "plain", False),
        ('{"output":"boom","metadata":{"exit_code":1}}', "boom", True),
        ('{"output":"fine","metadata":{"exit_code":0}}', "fine", False),
        ('{"output":"cut', '{"output":"cut', False),
        ([{"type": "input_text", "text": "part"}], "part", False),
        (None, "", False),
    ],
)
def test_responses_outputs_are_unwrapped(output: Any, text: str, is_error: bool) -> None:
    entry = item(type="function_call_output", call_id="c", output=output)
    assert entry.tool_results == (ToolResult("c", text, is_error),)


# -- what a search may find --


@pytest.mark.parametrize(
    "entry",
    [
        anthropic("user", [{"type": "tool_result", "tool_use_id": "a", "content": SECRET}]),
        anthropic("assistant", [{"type": "tool_use", "id": "a", "name": "Bash", "input": {"k": SECRET}}]),
        anthropic("assistant", [{"type": "thinking", "thinking": SECRET}]),
        anthropic("user", [{"type": "image", "source": {"data": SECRET}}]),
        anthropic("user", SECRET, mark="injected"),
        anthropic("user", f"hello <system-reminder>{SECRET}</system-reminder>"),
        anthropic("system", SECRET),
        chat(role="system", content=SECRET),
        chat(role="developer", content=SECRET),
        chat(role="tool", tool_call_id="a", content=SECRET),
        chat(role="assistant", tool_calls=[{"id": "a", "function": {"name": "f", "arguments": SECRET}}]),
        chat(role="user", content=f"see data:text/plain;base64,{SECRET.replace('-', '')}"),
        item(type="function_call", call_id="c", name="f", arguments=SECRET),
        item(type="function_call_output", call_id="c", output=SECRET),
        item(type="reasoning", summary=[{"type": "summary_text", "text": SECRET}]),
        item(type="custom_tool_call", call_id="c", name="f", input=SECRET),
    ],
)
def test_what_may_hold_a_secret_is_never_indexed(entry: HistoryEntry) -> None:
    assert SECRET not in entry.indexable()
    assert SECRET.replace("-", "") not in entry.indexable()


def test_words_of_users_and_assistants_are_indexed() -> None:
    assert anthropic("user", "why is it slow?").indexable() == "why is it slow?"
    assert chat(role="assistant", content="a lock").indexable() == "a lock"
    assert anthropic("user", "recap", mark="summary").indexable() == "recap"
    mixed = [
        {"type": "tool_result", "tool_use_id": "a", "content": SECRET},
        {"type": "text", "text": "and now?"},
    ]
    assert anthropic("user", mixed).indexable() == "and now?"


def test_wordless_tool_caller_is_indexed_by_function_names() -> None:
    calls = [
        {"type": "tool_use", "id": str(n), "name": name, "input": {}}
        for n, name in enumerate(("Read", "Grep"))
    ]
    assert anthropic("assistant", calls).indexable() == "Read Grep"
    assert anthropic("assistant", [{"type": "text", "text": "I look."}, *calls]).indexable() == "I look."


def test_reminder_is_cut_from_the_index_and_not_from_the_message() -> None:
    text = "before <system-reminder>noise</system-reminder>after <system-reminder>unclosed"
    entry = anthropic("user", text)
    assert entry.indexable() == "before after <system-reminder>unclosed"
    assert entry.message["content"] == text


def test_long_blobs_in_text_are_cut_from_the_index() -> None:
    assert anthropic("user", f"see {'A1b2' * 400}== there").indexable().split() == ["see", "there"]
    path = "src/" * 20 + "main.py"
    assert anthropic("user", path).indexable() == path


# -- the record --


def test_runtime_only_attributes_are_not_stored() -> None:
    entry = HistoryEntry.user("hi", id="1", sender="ada")
    entry.auto_injected = True
    stored = decode(HistoryEntry, encode(entry))
    assert stored == entry
    assert (entry.sender, entry.auto_injected) == ("ada", True)
    assert (stored.sender, stored.auto_injected) == ("", False)
    assert evolve(entry, active=False).sender == "ada"


def test_a_plain_entry_is_stored_without_its_defaults() -> None:
    entry = HistoryEntry.assistant("hi")
    assert encode(entry) == b'{"message":{"role":"assistant","content":"hi"},"format":"anthropic"}'


def test_marks_and_members_of_a_later_version_survive() -> None:
    row = b'{"message":{},"format":"future","mark":"new","confidence":0.5}'
    assert decode(HistoryEntry, encode(decode(HistoryEntry, row))).mark == "new"
    assert b'"confidence":0.5' in encode(decode(HistoryEntry, row))


# -- anything at all --

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["", "a", "[1]", "data:x;base64,AA", "\x00é中"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "id", "name", "input", "function", "output", "role"]),
            inner
            | st.sampled_from(
                ["text", "tool_use", "tool_result", "image", "document", "function_call", "user"]
            ),
            max_size=4,
        )
    ),
    max_leaves=12,
)
members = st.sampled_from(
    "role content type tool_calls function_call tool_call_id call_id output arguments input action summary "
    "reasoning_content refusal name id".split()
)
kinds = st.sampled_from(
    "user assistant tool system message reasoning function_call function_call_output web_search_call".split()
)
junk = st.dictionaries(members, json_values | kinds, max_size=6)


@given(junk, st.sampled_from(FORMATS))
def test_any_junk_is_read_without_an_exception(message: dict[str, Any], format_name: str) -> None:
    entry = HistoryEntry(message=message, format=format_name)
    assert isinstance(entry.role, str)
    assert entry.role
    assert isinstance(entry.text, str)
    assert isinstance(entry.indexable(), str)
    assert len(entry.tool_calls) + len(entry.tool_results) <= len(entry.blocks)


def test_arguments_nested_beyond_reason_are_kept_as_text() -> None:
    deep = "[" * 100_000
    entry = item(type="function_call", call_id="c", name="f", arguments=deep)
    assert entry.tool_calls[0].arguments == deep
    valid = "[" * 100_000 + "]" * 100_000
    assert item(type="function_call", call_id="c", name="f", arguments=valid).tool_calls[0].arguments == valid
