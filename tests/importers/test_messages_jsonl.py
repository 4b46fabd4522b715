"""API messages without ids or times become sessions that the same file always becomes."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import pytest
from tests.importers.writing import entries, facts, problems, read_messages

from crabstore.importers import messages_jsonl

ASKED = {"role": "user", "content": "Why is the sea salty?"}
ANSWERED = {"role": "assistant", "content": "Rivers carry it there."}
TALK = {"messages": [ASKED, ANSWERED]}


def sessions(rows: list[Any], path: str = "talks.jsonl") -> list[str]:
    return list(facts(read_messages(rows, path)))


def test_a_conversation_a_line_is_a_session_a_line() -> None:
    other = {"messages": [ASKED]}
    events = read_messages([TALK, other])
    first, second = facts(events).values()
    assert (first.title, first.created_at) == ("Why is the sea salty?", "2026-01-01T00:00:00.000000Z")
    assert [entry.message for entry in entries(events, first.original_id)] == [ASKED, ANSWERED]
    assert [entry.id for entry in entries(events, first.original_id)] == ["0", "1"]
    assert len(entries(events, second.original_id)) == 1


def test_a_conversation_is_known_by_its_content_wherever_it_stands() -> None:
    assert sessions([TALK]) == sessions([TALK | {"parallel_tool_calls": False}], "elsewhere.jsonl")
    assert sessions(
        [{"messages": [{"content": m["content"], "role": m["role"]} for m in TALK["messages"]]}]
    ) == sessions([TALK])
    assert sessions([TALK, {"messages": [ASKED]}])[0] == sessions([TALK])[0]


def test_equal_conversations_in_one_file_are_several() -> None:
    names = sessions([TALK, TALK, TALK])
    assert len(set(names)) == 3
    assert sessions([TALK, TALK]) == names[:2]


def test_bare_messages_are_one_session_known_by_path_and_start() -> None:
    events = read_messages([ASKED, ANSWERED])
    (only,) = facts(events).values()
    assert only.title == "Why is the sea salty?"
    assert [entry.id for entry in entries(events)] == ["line-1", "line-2"]
    assert sessions([ASKED, ANSWERED, ASKED]) == [only.original_id]
    assert sessions([ASKED], "other.jsonl") != [only.original_id]


@pytest.mark.parametrize(
    ("row", "texts"),
    [
        (
            {"custom_id": "1", "method": "POST", "url": "/v1", "body": TALK},
            ["Why is the sea salty?", "Rivers carry it there."],
        ),
        (
            {"custom_id": "1", "response": {"body": {"choices": [{"message": ANSWERED}]}}},
            ["Rivers carry it there."],
        ),
        (
            {"custom_id": "1", "result": {"type": "succeeded", "message": ANSWERED}},
            ["Rivers carry it there."],
        ),
        ({"model": "m", "system": "Be brief.", "messages": [ASKED]}, ["Be brief.", "Why is the sea salty?"]),
        (
            {"system": [{"type": "text", "text": "Be brief."}], "messages": [ASKED]},
            ["Be brief.", "Why is the sea salty?"],
        ),
    ],
)
def test_every_shape_of_line_is_read(row: dict[str, Any], texts: list[str]) -> None:
    assert [entry.text for entry in entries(read_messages([row]))] == texts


def test_the_format_is_anthropics_only_where_its_blocks_stand() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    chat = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{}"}}],
    }
    assert {entry.format for entry in entries(read_messages([{"messages": [ASKED, call]}]))} == {"anthropic"}
    assert {entry.format for entry in entries(read_messages([{"messages": [ASKED, chat]}]))} == {
        "openai-chat"
    }
    assert [entry.format for entry in entries(read_messages([ASKED, call]))] == ["openai-chat", "anthropic"]
    assert entries(read_messages([{"messages": [chat]}]))[0].tool_calls[0].name == "f"


def test_a_conversation_without_a_person_has_a_title() -> None:
    talk = {
        "messages": [{"role": "system", "content": ""}, {"role": "assistant", "content": "You're great!"}]
    }
    assert [session.title for session in facts(read_messages([talk])).values()] == ["You're great!"]


def test_what_is_no_conversation_is_reported() -> None:
    rows = [TALK, {"prompt": "x", "completion": "y"}, {"messages": ["junk", ASKED]}, {"messages": []}]
    events = read_messages(rows)
    assert [(problem.line, problem.note) for problem in problems(events)] == [
        (2, False),
        (3, False),
        (4, True),
    ]
    assert "prompt, completion" in problems(events)[0].reason
    assert len(facts(events)) == 2


def test_a_file_that_is_one_array_is_read() -> None:
    def document(value: Any) -> list[Any]:
        data = json.dumps(value, indent=2).encode()
        return list(messages_jsonl.read_document(data, PurePath("talks.json"), "2026-01-01T00:00:00.000000Z"))

    assert len(facts(document([TALK, {"messages": [ASKED]}]))) == 2
    assert len(facts(document([ASKED, ANSWERED]))) == 1
    assert len(entries(document(TALK))) == 2
    assert list(facts(document([TALK]))) == sessions([TALK])
    assert len(problems(document([TALK, 7]))) == 1
