"""A file is known by its content; what is not imported is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.importers.writing import SID, jsonl, line, meta, said, stream, user

from crabstore.importers import detect as detecting
from crabstore.importers.detect import Detected, Refused, detect


def of(data: bytes) -> Detected:
    return detect(lambda: stream(data))


def refused(data: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        of(data)
    return caught.value


TALK = {"messages": [{"role": "user", "content": "hi"}]}
CLAUDE = Detected("claude-code")
CODEX = Detected("codex")
MESSAGES = Detected("messages")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([user("u1", None, "hi")], CLAUDE),
        ([{"type": "summary", "summary": "x", "leafUuid": "u"}], CLAUDE),
        ([{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}], CLAUDE),
        ([line("novelty", "n1", None)], CLAUDE),
        ([meta(), said("user", "hi")], CODEX),
        ([{"id": "x", "timestamp": "2025-01-01T00:00:00Z", "instructions": None}], CODEX),
        ([{"record_type": "state"}], CODEX),
        ([{"session": {"id": "x"}, "items": []}], Detected("codex", document=True)),
        ([TALK], MESSAGES),
        ([{"role": "user", "content": "hi"}], MESSAGES),
        ([{"custom_id": "1", "body": TALK}], MESSAGES),
        ([{"custom_id": "1", "response": {"body": {"choices": []}}}], MESSAGES),
    ],
)
def test_lines_tell_their_format(rows: list[Any], expected: Detected) -> None:
    data = jsonl(rows)
    assert of(data) == expected
    assert of(b"\xef\xbb\xbf" + data) == expected
    assert of(b'\0\0"noise"\n{"cut":\n' + data) == expected
    assert of(b"\xff\xfe" + data.decode().encode("utf-16-le")) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([TALK, TALK], Detected("messages", document=True)),
        (TALK, Detected("messages", document=True)),
        ([{"role": "user", "content": "hi"}], Detected("messages", document=True)),
        ({"session": {"id": "x"}, "items": [{"type": "message"}]}, Detected("codex", document=True)),
    ],
)
def test_documents_tell_their_format(value: Any, expected: Detected) -> None:
    assert of(json.dumps(value, indent=2).encode()) == expected


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ([{"title": "x", "mapping": {}, "current_node": None}], "ChatGPT"),
        ({"conversations": [{"mapping": {}, "title": "x"}]}, "ChatGPT"),
        ([{"uuid": "x", "name": "", "chat_messages": []}], "Claude.ai"),
        ({"sessionId": "x", "projectHash": "y", "messages": []}, "Gemini"),
        ([{"conversations": [{"from": "human", "value": "x"}]}], "ShareGPT"),
        ({"messages": [{"from": "human", "value": "x"}]}, "ShareGPT"),
        ({"type": "thread.started", "thread_id": "x"}, "codex exec"),
        ({"type": "item.completed", "item": {}}, "codex exec"),
        ({"display": "hi", "timestamp": 1, "project": "/x"}, "prompt history"),
        ({"session_id": "x", "ts": 1, "text": "hi"}, "prompt history"),
        ({"id": "x", "thread_name": "y", "updated_at": "z"}, "session index"),
    ],
)
def test_known_formats_that_are_not_read_are_refused_by_name(value: Any, name: str) -> None:
    for data in (jsonl([value]), json.dumps(value, indent=2).encode()):
        assert name in refused(data).format
        assert name in str(refused(data))


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"", "empty"),
        (b"  \n\n", "empty"),
        (b"# Notes\n\nhello\n", "# Notes"),
        (b'{"name": "x", "version": "1"}\n', "name, version"),
        (b"42\n", "42"),
        (b"PK\x03\x04rest", "zip"),
        (b"SQLite format 3\0rest", "SQLite"),
        (b"CRMEM\0rest", "crabdb"),
        (b"\x89PNG\r\n", "PNG"),
    ],
)
def test_anything_else_is_refused_by_what_was_seen(data: bytes, seen: str) -> None:
    assert seen in refused(data).seen
    assert refused(data).format == ""


def test_a_file_may_begin_with_a_hundred_lines_that_do_not_tell() -> None:
    rows: list[Any] = [{"type": "whatever", "n": n} for n in range(100)]
    assert of(jsonl([*rows, user("u1", None, "hi")])) == CLAUDE


def test_documents_larger_than_the_head_are_known_by_their_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "_HEAD", 2000)
    filler: list[Any] = [{"title": "x", "mapping": {}, "current_node": None, "pad": "y" * 100}] * 50
    for value in (filler, {"conversations": filler}):
        for indent in (None, 1):
            assert "ChatGPT" in refused(json.dumps(value, indent=indent).encode()).format
    talks = [{"messages": [{"role": "user", "content": "z" * 100}]}] * 50
    assert of(json.dumps(talks, indent=1).encode()) == Detected("messages", document=True)


def test_a_broken_first_line_does_not_make_a_large_file_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "_HEAD", 2000)
    rows = [user(f"u{n}", None, "messages role content") for n in range(50)]
    assert of(b'{"type":"user","message":{"ro\n' + jsonl(rows)) == CLAUDE


def test_a_transcript_that_quotes_another_format_stays_itself() -> None:
    quoted = json.dumps(
        {"mapping": {}, "title": "x", "chat_messages": [], "sessionId": SID, "projectHash": "y"}
    )
    assert of(jsonl([user("u1", None, quoted)])) == CLAUDE
    tool = {
        "type": "tool_use",
        "id": "t",
        "name": "Write",
        "input": {"chat_messages": [], "mapping": {}, "title": 1},
    }
    assert of(jsonl([user("u1", None, [tool])])) == CLAUDE
