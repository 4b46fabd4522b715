"""Histories of any origin as requests: valid for both APIs whatever stands in them, and the same words in both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.runtime.wire import anthropic, chat, convert
from crabstore.store.messages import HistoryEntry, repair
from crabstore.store.records import Json

from .validity import require_valid_anthropic, require_valid_chat

words = st.sampled_from(["", " ", "hello", "a longer text", "\n"])
ids = st.sampled_from(["a", "b", "toolu_1", "call:2/3", "", "x" * 60])
names = st.sampled_from(["read", "mcp.server/tool", "", "n" * 80])
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
pixels: dict[str, Json] = {"type": "base64", "media_type": "image/png", "data": "AAAA"}

anthropic_parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text, "citations": None}, words),
    st.builds(
        lambda call, name, value: {"type": "tool_use", "id": call, "name": name, "input": value},
        ids,
        names,
        junk,
    ),
    st.builds(lambda call, text: {"type": "tool_result", "tool_use_id": call, "content": text}, ids, words),
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, words, words),
    st.just({"type": "image", "source": pixels}),
    words,
    junk,
)
chat_calls = st.builds(
    lambda call, name, raw: {"id": call, "type": "function", "function": {"name": name, "arguments": raw}},
    ids,
    names,
    st.sampled_from(["{}", '{"a": 1}', "{broken", "", "[1]", "null"]),
)
chat_parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
    st.just({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
)


def entries_of(format: str, messages: st.SearchStrategy[dict[str, Json]]) -> st.SearchStrategy[HistoryEntry]:
    return messages.map(lambda message: HistoryEntry(message=message, format=format))


anthropic_entries = entries_of(
    "anthropic",
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant"]),
            "content": words | st.lists(anthropic_parts, max_size=4),
        }
    ),
)
chat_entries = entries_of(
    "openai-chat",
    st.one_of(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "system", "developer"]),
                "content": words | st.lists(chat_parts, max_size=3),
            }
        ),
        st.fixed_dictionaries(
            {"role": st.just("assistant"), "content": words | st.none()},
            optional={"tool_calls": st.lists(chat_calls, max_size=3), "reasoning_content": words},
        ),
        st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": ids, "content": words}),
    ),
)
response_entries = entries_of(
    "openai-responses",
    st.one_of(
        st.builds(
            lambda role, text: {
                "type": "message",
                "role": role,
                "content": [{"type": "output_text", "text": text}],
            },
            st.sampled_from(["user", "assistant"]),
            words,
        ),
        st.builds(
            lambda call, name: {"type": "function_call", "call_id": call, "name": name, "arguments": "{}"},
            ids,
            names,
        ),
        st.builds(
            lambda call, text: {"type": "function_call_output", "call_id": call, "output": text}, ids, words
        ),
        st.builds(
            lambda text: {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}, words
        ),
    ),
)
strange_entries = entries_of(
    "of-another-world",
    st.fixed_dictionaries({}, optional={"role": words, "content": junk, "type": words}),
)
histories = st.lists(anthropic_entries | chat_entries | response_entries | strange_entries, max_size=8)


def closed(entries: list[HistoryEntry], format: str) -> list[HistoryEntry]:
    """As a run asks: what was loaded, and a person's words behind it."""
    return [*repair(entries), HistoryEntry.user("next", format=format)]


@settings(max_examples=300, deadline=None)
@given(histories)
def test_any_history_is_valid_for_the_messages_api(entries: list[HistoryEntry]) -> None:
    rendered = anthropic.render(closed(entries, "anthropic"))
    require_valid_anthropic(rendered.messages)


@settings(max_examples=300, deadline=None)
@given(histories)
def test_any_history_is_valid_for_chat_completions(entries: list[HistoryEntry]) -> None:
    require_valid_chat(chat.render(closed(entries, "openai-chat"), "be brief"))


@given(st.lists(chat_entries, max_size=8))
def test_entries_of_the_wanted_format_come_back_as_they_are(entries: list[HistoryEntry]) -> None:
    converted = convert(entries, "openai-chat")
    assert all(before is after for before, after in zip(entries, converted, strict=True))


@settings(deadline=None)
@given(histories)
def test_a_conversion_changes_no_stored_entry(entries: list[HistoryEntry]) -> None:
    before = [HistoryEntry(message=dict(entry.message), format=entry.format) for entry in entries]
    convert(entries, "anthropic")
    anthropic.render(repair(entries))
    chat.render(repair(entries))
    assert entries == before


CONVERSATION: list[HistoryEntry] = [
    HistoryEntry.user("look at a"),
    HistoryEntry(
        message={
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
            ],
        },
        format="anthropic",
    ),
    HistoryEntry(
        message={
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "gone", "is_error": True},
                {"type": "text", "text": "hurry"},
                {"type": "image", "source": pixels},
            ],
        },
        format="anthropic",
    ),
]


def test_a_conversation_of_the_messages_api_reads_the_same_in_chat_completions() -> None:
    assert chat.render(CONVERSATION) == [
        {"role": "user", "content": "look at a"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "Error: gone"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hurry"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
    ]


def test_a_conversation_of_chat_completions_reads_the_same_in_the_messages_api() -> None:
    entries = [
        HistoryEntry(message=message, format="openai-chat")
        for message in chat.render(CONVERSATION, "be brief")
    ]
    rendered = anthropic.render(entries)
    assert rendered.system == "be brief"
    assert rendered.messages == [
        {"role": "user", "content": [{"type": "text", "text": "look at a"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "Error: gone"},
                {"type": "text", "text": "hurry"},
                {"type": "image", "source": pixels},
            ],
        },
    ]


def test_ids_that_a_model_used_twice_are_told_apart_with_their_results() -> None:
    turn: list[dict[str, Json]] = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
    ]
    entries = [HistoryEntry(message=dict(message), format="anthropic") for message in (*turn, *turn)]
    messages = anthropic.render([HistoryEntry.user("go"), *entries]).messages
    require_valid_anthropic(messages)


@pytest.mark.parametrize(
    ("choice", "messages_api", "chat_completions"),
    [
        ("auto", {"type": "auto"}, "auto"),
        ("none", {"type": "none"}, "none"),
        ("any", {"type": "any"}, "required"),
        ("required", {"type": "any"}, "required"),
        ("read", {"type": "tool", "name": "read"}, {"type": "function", "function": {"name": "read"}}),
        ({"type": "own"}, {"type": "own"}, {"type": "own"}),
    ],
)
def test_a_tool_choice_means_the_same_everywhere(
    choice: Json, messages_api: Json, chat_completions: Json
) -> None:
    assert anthropic.tool_choice(choice) == messages_api
    assert chat.tool_choice(choice) == chat_completions
