"""Codex rollouts of every generation become sessions in which everything is said once."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import pytest
from tests.importers.writing import (
    ROLLOUT,
    entries,
    event,
    facts,
    inactive,
    item,
    jsonl,
    meta,
    notice,
    problems,
    read_codex,
    rollout,
    said,
    stream,
    title,
    turn,
)

from crabstore.importers import codex

# Version 7 ids: the first digits are the time.
BEFORE = "019c8a40-0000-7000-8000-000000000001"
PARENT = "019c8a3f-0000-7000-8000-000000000000"
AFTER = "019c8a4d-f931-7323-8939-64390c636ca9"


def told(rows: list[Any]) -> list[tuple[str, str, str]]:
    return [(entry.role, entry.mark, entry.text) for entry in entries(read_codex(rows))]


# -- identity and facts --


def test_the_first_header_owns_the_session() -> None:
    known = facts(read_codex([meta(), said("user", "hi"), meta()]))
    assert list(known) == [ROLLOUT]
    assert known[ROLLOUT].project == "/home/ada/tidewatch"
    assert known[ROLLOUT].created_at == "2026-02-23T11:41:04.709000Z"


def test_without_a_header_the_name_and_the_last_turn_tell() -> None:
    rows = [
        rollout("turn_context", {"cwd": "/one"}),
        said("user", "hi"),
        rollout("turn_context", {"cwd": "/two"}),
        said("assistant", "ho"),
    ]
    known = facts(read_codex(rows))
    assert known[ROLLOUT].project == "/two"
    assert list(facts(read_codex(rows, "odd.jsonl"))) == ["odd"]


def test_wire_items_are_kept_verbatim_one_entry_each() -> None:
    rows = [
        meta(),
        said("user", "list"),
        item("reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="AAAA"),
        item("function_call", name="shell", arguments="{broken", call_id="c1"),
        item("function_call_output", call_id="c1", output="a.py"),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2"),
        item("custom_tool_call_output", call_id="c2", output="ok"),
        item("hologram_call", anything=[1]),
        item("ghost_snapshot", commit="x"),
        said("assistant", "done"),
    ]
    held = entries(read_codex(rows))
    expected = [row["payload"] for row in rows[1:] if row["payload"]["type"] != "ghost_snapshot"]
    assert [entry.message for entry in held] == expected
    assert [entry.id for entry in held] == [f"line-{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10)]
    assert {entry.format for entry in held} == {"openai-responses"}
    assert [entry.role for entry in held][1:6] == ["assistant", "assistant", "tool", "assistant", "tool"]


# -- twins --


@pytest.mark.parametrize("item_first", [True, False])
def test_a_text_in_both_shapes_is_one_message(item_first: bool) -> None:
    asked = [said("user", "go", 1), notice("user_message", "go", 1)]
    answered = [said("assistant", "done", 2), notice("agent_message", "done", 2)]
    rows = [meta(), *(asked if item_first else asked[::-1]), *(answered if item_first else answered[::-1])]
    held = entries(read_codex(rows))
    assert [(entry.role, entry.text, entry.mark) for entry in held] == [
        ("user", "go", ""),
        ("assistant", "done", ""),
    ]
    assert [entry.message for entry in held] == [asked[0]["payload"], answered[0]["payload"]]
    assert [entry.id for entry in held] == ["line-2", "line-4"]


def test_usage_counts_between_twins_do_not_part_them() -> None:
    between = [event("token_count", info=None), rollout("turn_context", {"cwd": "/x"})]
    rows = [meta(), said("user", "go"), *between, notice("user_message", "go"), item("reasoning", summary=[])]
    rows += [notice("agent_message", "done"), *between, said("assistant", "done")]
    assert [text for _, _, text in told(rows) if text] == ["go", "done"]


def test_the_same_word_twice_is_two_messages() -> None:
    once = [notice("user_message", "continue"), said("user", "continue"), said("assistant", "ok")]
    once += [notice("agent_message", "ok")]
    assert [text for _, _, text in told([meta(), *once, *once])] == ["continue", "ok"] * 2
    both = [said("user", "yes"), notice("user_message", "yes")] * 2
    assert [text for _, _, text in told([meta(), *both])] == ["yes", "yes"]


def test_words_beside_an_image_are_the_notices_twin() -> None:
    parts = [
        {"type": "input_text", "text": "<image>"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA"},
    ]
    shown = item("message", role="user", content=[*parts, {"type": "input_text", "text": "what is this?"}])
    (entry,) = entries(read_codex([meta(), shown, notice("user_message", "what is this?")]))
    assert (entry.message, entry.mark) == (shown["payload"], "")


def test_a_notice_that_no_item_repeats_is_a_message() -> None:
    rows = [meta(), notice("user_message", "go"), notice("agent_message", "done")]
    assert told(rows) == [("user", "", "go"), ("assistant", "", "done")]


def test_redacted_twins_match_by_their_digest() -> None:
    rows = [
        meta(),
        said("user", "[REDACTED_TEXT len=9 sha=ab]"),
        notice("user_message", "[REDACTED_MESSAGE len=9 sha=ab]"),
    ]
    assert len(told(rows)) == 1


def test_notices_of_reasoning_and_of_ended_turns_repeat_and_are_left_out() -> None:
    rows = [
        meta(),
        said("user", "go"),
        event("agent_reasoning", text="hm"),
        item("reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
        said("assistant", "done"),
        event("task_complete", last_agent_message="done"),
        event("exec_command_end", aggregated_output="x"),
    ]
    assert [entry.message["type"] for entry in entries(read_codex(rows))] == [
        "message",
        "reasoning",
        "message",
    ]


# -- prompts and contexts --


CONTEXT = "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"


def test_contexts_in_the_persons_name_are_marked() -> None:
    rows = [
        meta(),
        said("developer", "rules"),
        said("user", CONTEXT),
        said("user", "# AGENTS.md instructions for /x"),
    ]
    rows += [said("user", "go"), said("assistant", "ok")]
    assert [(role, mark) for role, mark, _ in told(rows)] == [
        ("system", ""),
        ("user", "injected"),
        ("user", "injected"),
        ("user", ""),
        ("assistant", ""),
    ]
    assert title(read_codex(rows)) == "go"


def test_where_notices_tell_what_was_typed_everything_else_is_context() -> None:
    rows = [meta(), said("user", "some house rules"), said("user", "go"), notice("user_message", "go")]
    assert [mark for _, mark, _ in told(rows)] == ["injected", ""]


def test_a_prompt_written_again_after_an_abort_is_one_prompt() -> None:
    asked = [said("user", "go"), notice("user_message", "go")]
    aborted = [
        event("turn_aborted", reason="interrupted"),
        said("user", "<turn_aborted>by the user</turn_aborted>"),
    ]
    prompts = [
        text for role, mark, text in told([meta(), *asked, *aborted, *asked]) if not mark and role == "user"
    ]
    assert prompts == ["go"]
    answered = [said("assistant", "half")]
    prompts = [text for role, mark, text in told([meta(), *asked, *answered, *aborted, *asked]) if not mark]
    assert prompts == ["go", "half", "go"]


# -- compaction, rollback, titles --


def test_a_compaction_is_a_summary_and_what_it_repeats_is_not_added() -> None:
    rows = [meta(), said("user", "go"), said("assistant", "done")]
    rows += [rollout("compacted", {"message": "We went.", "replacement_history": [rows[1]["payload"]]})]
    rows += [rollout("compacted", {"message": ""}), said("user", "more")]
    assert told(rows)[2:] == [("user", "summary", "We went."), ("user", "", "more")]


def test_turns_that_were_rolled_back_are_inactive() -> None:
    rows = [meta(), said("developer", "rules")]
    for word in "abc":
        rows += [said("user", word), said("assistant", word.upper())]
    rows += [event("thread_rolled_back", num_turns=2), said("user", "d"), said("assistant", "D")]
    events = read_codex(rows)
    off = inactive(events)
    assert [entry.text for entry in entries(events) if entry.id in off] == ["b", "B", "c", "C"]
    assert inactive(read_codex([*rows[:4], event("thread_rolled_back", num_turns=99)])) == {
        "line-3",
        "line-4",
    }
    assert inactive(read_codex([*rows[:4], event("thread_rolled_back", num_turns="x")])) == set()


def test_the_title_is_the_name_of_the_thread() -> None:
    rows = [meta(), said("user", "go on"), event("thread_name_updated", thread_name="One")]
    assert title(read_codex(rows[:2])) == "go on"
    assert title(read_codex(rows[:2], **{ROLLOUT: "Indexed"})) == "Indexed"
    assert (
        title(read_codex([*rows, event("thread_name_updated", thread_name="Two")], **{ROLLOUT: "Indexed"}))
        == "Two"
    )


def test_what_an_editor_tells_about_itself_is_no_title() -> None:
    asked = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nwhy slow?"
    assert title(read_codex([meta(), said("user", asked)])) == "why slow?"


def test_the_session_index_is_read_and_its_last_line_counts() -> None:
    index = [{"id": "a", "thread_name": "One"}, {"id": "b"}, {"id": "a", "thread_name": "Two"}]
    assert codex.read_titles(stream(jsonl(index)))["a"] == "Two"


# -- forks and subagents --


COPIED = [
    meta(PARENT),
    said("user", "old"),
    turn(BEFORE),
    notice("user_message", "old"),
    said("assistant", "was"),
]
OWN = [said("user", "new"), turn(AFTER), notice("user_message", "new"), said("assistant", "is")]


@pytest.mark.parametrize(
    "pointer",
    [
        {"forked_from_id": PARENT},
        {"parent_thread_id": PARENT, "session_id": PARENT},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}},
        {},
    ],
)
def test_a_fork_holds_its_own_turns_and_names_its_parent(pointer: dict[str, Any]) -> None:
    events = read_codex([meta(**pointer), *COPIED, *OWN])
    assert list(facts(events)) == [ROLLOUT]
    assert facts(events)[ROLLOUT].parent == PARENT
    assert [entry.text for entry in entries(events)] == ["new", "is"]
    assert title(events) == "new"


def test_what_a_person_said_before_the_turn_began_belongs_to_it() -> None:
    own = [
        said("user", CONTEXT),
        said("user", "new"),
        rollout("turn_context", {"turn_id": AFTER}),
        said("assistant", "is"),
    ]
    events = read_codex([meta(forked_from_id=PARENT), *COPIED, *own])
    assert [entry.text for entry in entries(events) if not entry.mark] == ["new", "is"]


def test_a_fork_without_turns_of_its_own_holds_nothing_yet() -> None:
    assert entries(read_codex([meta(forked_from_id=PARENT), *COPIED])) == []


def test_a_fork_whose_turns_have_no_time_is_kept_whole_and_noted() -> None:
    turns = [event("task_started"), rollout("turn_context", {"turn_id": "7"})]
    rows = [meta(forked_from_id=PARENT), meta(PARENT), said("user", "old"), *turns, said("user", "new")]
    events = read_codex(rows)
    assert [entry.text for entry in entries(events)] == ["old", "new"]
    assert [problem.note for problem in problems(events)] == [True]


def test_a_subagent_that_copies_nothing_is_read_whole() -> None:
    rows = [meta(parent_thread_id=PARENT), said("developer", "rules"), *OWN]
    assert len(entries(read_codex(rows))) == 3


# -- older generations --


def test_bare_items_behind_a_bare_header_are_read() -> None:
    rows = [
        {"id": ROLLOUT, "timestamp": "2025-06-01T10:00:00Z", "instructions": "x", "git": {}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
        {"record_type": "state"},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": '{"output":"x","metadata":{"exit_code":1}}',
        },
    ]
    events = read_codex(rows)
    assert list(facts(events)) == [ROLLOUT]
    assert [entry.role for entry in entries(events)] == ["user", "assistant", "tool"]
    assert entries(events)[2].tool_results[0].is_error
    assert entries(events)[0].ts == ""


def test_one_document_is_read() -> None:
    document = {
        "session": {"id": ROLLOUT, "timestamp": "2025-05-01T10:00:00Z", "instructions": ""},
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            "junk",
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
        ],
    }
    events = list(codex.read_document(json.dumps(document, indent=1).encode(), PurePath("rollout-x.json")))
    assert [entry.text for entry in entries(events)] == ["go", "done"]
    assert facts(events)[ROLLOUT].created_at == "2025-05-01T10:00:00.000000Z"
    assert len(problems(events)) == 1
    with pytest.raises(ValueError, match="object"):
        list(codex.read_document(b"[]", PurePath("rollout-x.json")))


def test_what_is_no_rollout_line_is_reported_and_unknown_kinds_are_not() -> None:
    events = read_codex(
        [meta(), rollout("world_state", {"x": 1}), rollout("novelty", []), {"silly": 1}, said("user", "go")]
    )
    assert [problem.line for problem in problems(events)] == [4]
    assert [entry.text for entry in entries(events)] == ["go"]
