"""Claude Code lines become sessions as a person remembers them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.importers.writing import (
    FORK,
    SID,
    assistant,
    entries,
    facts,
    inactive,
    line,
    problems,
    read_claude,
    result,
    title,
    use,
    user,
)

from crabstore.importers.events import Message, Session
from crabstore.store.messages import Text, ToolCall


def ids(rows: list[Any]) -> list[str]:
    return [entry.id for entry in entries(read_claude(rows))]


# -- identity and facts --


def test_a_file_named_by_a_uuid_is_that_session_whatever_its_lines_say() -> None:
    events = read_claude([user("u1", None, "hi", sessionId=FORK)])
    assert events[0] == Session(
        SID, "/home/ada/tidewatch", "2026-03-01T10:00:46.000000Z", parent="", lineage="u1"
    )


def test_a_renamed_file_is_the_sessions_that_its_lines_name() -> None:
    events = read_claude([user("u1", None, "hi"), user("v1", None, "ho", sessionId=FORK)], "saved.jsonl")
    assert list(facts(events)) == [SID, FORK]


def test_project_is_the_folder_of_the_first_line_that_names_one() -> None:
    rows = [
        user("u1", None, "hi", cwd=None),
        user("u2", "u1", "ho", cwd="/a"),
        user("u3", "u2", "x", cwd="/b"),
    ]
    assert facts(read_claude(rows))[SID].project == "/a"


def test_messages_are_kept_verbatim_with_ids_times_and_parents() -> None:
    rows = [user("u1", None, "hi"), assistant("a1", "u1", "m1", "ho", use("t1"))]
    first, second = entries(read_claude(rows))
    assert first.message == rows[0]["message"]
    assert second.message == rows[1]["message"]
    assert (second.id, second.parent, second.format) == ("a1", "u1", "anthropic")
    assert second.ts.startswith("2026-03-01T10:00:")


def test_a_message_that_is_only_a_string_or_lacks_its_role_is_read() -> None:
    rows = [line("user", "u1", None, "bare"), line("assistant", "a1", "u1", {"content": "x"})]
    assert [(entry.role, entry.text) for entry in entries(read_claude(rows))] == [
        ("user", "bare"),
        ("assistant", "x"),
    ]


def test_lines_of_the_oldest_versions_without_ids_are_named_by_their_place() -> None:
    rows = [{"type": "user", "sessionId": SID, "message": {"role": "user", "content": "hi"}}] * 2
    assert ids(rows) == ["line-1", "line-2"]


def test_a_line_without_a_message_or_type_is_reported_and_unknown_kinds_are_not() -> None:
    rows = [user("u1", None, "hi"), line("user", "u2", "u1"), {"silly": 1}, line("novelty", "n1", "u1"), {}]
    events = read_claude(rows)
    assert [(problem.line, problem.note) for problem in problems(events)] == [
        (2, False),
        (3, False),
        (5, False),
    ]
    assert len(entries(events)) == 1


# -- one message over several lines --


def test_lines_of_one_message_are_one_entry_with_ordered_blocks_and_the_last_usage() -> None:
    rows = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", {"type": "thinking", "thinking": "hm"}),
        assistant("a2", "a1", "m1", "I look."),
        assistant("a3", "a2", "m1", use("t1")),
        user("r1", "a3", [result("t1")]),
    ]
    rows[3]["message"] |= {"usage": {"output_tokens": 9}, "stop_reason": "tool_use"}
    _, merged, answer = entries(read_claude(rows))
    assert merged.id == "a1"
    assert [type(block).__name__ for block in merged.blocks] == ["Thinking", "Text", "ToolCall"]
    assert (merged.message["usage"], merged.message["stop_reason"]) == ({"output_tokens": 9}, "tool_use")
    assert answer.parent == "a1"


def test_a_message_that_grows_behind_its_results_is_sent_again_in_its_place() -> None:
    rows = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", use("t1")),
        user("r1", "a1", [result("t1")]),
        assistant("a2", "a1", "m1", use("t2")),
        user("r2", "a2", [result("t2")]),
    ]
    events = read_claude(rows)
    sent = [event.entry.id for event in events if isinstance(event, Message)]
    assert sent == ["u1", "a1", "r1", "a1", "r2"]
    held = entries(events)
    assert [entry.id for entry in held] == ["u1", "a1", "r1", "r2"]
    assert [call.id for call in held[1].tool_calls] == ["t1", "t2"]
    assert inactive(events) == set()


def test_messages_without_an_id_stay_apart() -> None:
    rows = [assistant("a1", None, "", "one"), assistant("a2", "a1", "", "two")]
    for row in rows:
        del row["message"]["id"]
    assert ids(rows) == ["a1", "a2"]


def test_the_same_line_twice_is_one() -> None:
    rows = [user("u1", None, "go"), assistant("a1", "u1", "m1", "x"), assistant("a2", "a1", "m1", "y")]
    held = entries(read_claude(rows + rows))
    assert [entry.text for entry in held] == ["go", "x\ny"]


def test_only_the_last_few_messages_are_held_open() -> None:
    rows = [assistant(f"a{n}", f"a{n - 1}", f"m{n}", str(n)) for n in range(40)]
    late = assistant("late", "a39", "m0", "much later")
    assert ids([*rows, late])[-1] == "late"


# -- whose words they are --


@pytest.mark.parametrize(
    "text",
    [
        "<command-name>/init</command-name>",
        "<local-command-stdout>ok</local-command-stdout>",
        "<bash-input>ls</bash-input>",
        "  <task-notification>done</task-notification>",
        "<ide_opened_file>a.py</ide_opened_file>",
        "<system-reminder>only this</system-reminder>",
        "Caveat: The messages below were generated by the user",
        "[Request interrupted by user for tool use]",
        "Warmup",
    ],
)
def test_what_the_harness_wrote_is_kept_and_marked(text: str) -> None:
    for content in (text, [{"type": "text", "text": text}]):
        (entry,) = entries(read_claude([user("u1", None, content)]))
        assert (entry.mark, entry.indexable()) == ("injected", "")
        assert entry.message["content"] == content


def test_meta_lines_summaries_and_api_errors_are_marked() -> None:
    rows = [
        user("u1", None, "Base directory for this skill: ...", isMeta=True),
        user("u2", "u1", "This session is being continued", isCompactSummary=True),
        assistant("a1", "u2", "m1", "API Error: overloaded", isApiErrorMessage=True),
    ]
    assert [entry.mark for entry in entries(read_claude(rows))] == ["injected", "summary", "error"]


def test_reminders_and_opened_files_beside_a_persons_words_do_not_hide_them() -> None:
    opened = {"type": "text", "text": "<ide_opened_file>a.py</ide_opened_file>"}
    asked = {"type": "text", "text": "why slow? <system-reminder>noise</system-reminder>"}
    events = read_claude([user("u1", None, [opened, asked])])
    (entry,) = entries(events)
    assert entry.mark == ""
    assert "why slow?" in entry.indexable()
    assert "noise" not in entry.indexable()
    assert title(events) == "why slow?"


def test_tool_results_are_the_tools_words() -> None:
    rows = [assistant("a1", None, "m1", use("t1")), user("r1", "a1", [result("t1", "secret")])]
    assert [entry.role for entry in entries(read_claude(rows))] == ["assistant", "tool"]


# -- what was typed while the agent worked --


def queue(operation: str, content: Any = None) -> dict[str, Any]:
    return {"type": "queue-operation", "operation": operation, "content": content, "sessionId": SID}


def queued_command(uuid: str, parent: str, prompt: Any) -> dict[str, Any]:
    return line("attachment", uuid, parent, attachment={"type": "queued_command", "prompt": prompt})


def test_a_queued_command_is_a_persons_message_and_counts_once() -> None:
    start = [user("u1", None, "go"), assistant("a1", "u1", "m1", use("t1"))]
    attachment = queued_command("q1", "a1", [{"type": "text", "text": "also the docs"}])
    for tail in (
        [queue("enqueue", "also the docs"), attachment, queue("remove", "also the docs")],
        [queue("enqueue", "also the docs"), queue("remove", "also the docs"), attachment],
        [queue("enqueue", "also the docs"), queue("remove"), attachment],
        [attachment],
    ):
        told = [entry for entry in entries(read_claude([*start, *tail])) if entry.text == "also the docs"]
        assert len(told) == 1
        assert told[0].role == "user"


def test_a_steering_text_that_only_the_queue_holds_is_not_lost() -> None:
    rows = [user("u1", None, "go"), queue("enqueue", "faster"), queue("remove", "faster")]
    assert [entry.text for entry in entries(read_claude(rows))] == ["go", "faster"]


def test_a_text_that_left_the_queue_as_a_prompt_counts_once() -> None:
    rows = [user("u1", None, "go"), queue("enqueue", "next"), queue("dequeue"), user("u2", "u1", "next")]
    assert [entry.text for entry in entries(read_claude(rows))] == ["go", "next"]


def test_a_person_who_says_the_same_twice_said_it_twice() -> None:
    rows = [user("u1", None, "continue"), assistant("a1", "u1", "m1", "ok"), user("u2", "a1", "continue")]
    assert ids(rows) == ["u1", "a1", "u2"]
    steered = [*rows, queue("enqueue", "continue"), queue("remove", "continue")]
    assert len(ids(steered)) == 4


def test_what_follows_an_unsent_line_follows_what_came_before_it() -> None:
    rows = [
        user("u1", None, "go"),
        line("progress", "p1", "u1"),
        line("system", "s1", "p1", subtype="turn_duration"),
        assistant("a1", "s1", "m1", "ok"),
    ]
    assert entries(read_claude(rows))[1].parent == "u1"


# -- branches --


REWIND = [
    user("u1", None, "start"),
    assistant("a1", "u1", "m1", "ready"),
    user("b1", "a1", "first attempt"),
    assistant("b1a", "b1", "m2", "first answer", use("t1")),
    user("b1r", "b1a", [result("t1")]),
    user("b2", "a1", "second attempt"),
    assistant("b2a", "b2", "m3", "second answer"),
]


def test_a_rewind_leaves_the_abandoned_branch_inactive() -> None:
    assert inactive(read_claude(REWIND)) == {"b1", "b1a", "b1r"}


def test_an_earlier_branch_that_goes_on_stays_active() -> None:
    assert inactive(read_claude([*REWIND, user("b1x", "b1r", "back here")])) == set()


def test_a_rewind_is_seen_through_lines_that_say_nothing() -> None:
    rows = [
        *REWIND[:5],
        line("system", "s1", "a1"),
        user("b2", "s1", "second"),
        assistant("z", "b2", "m9", "ok"),
    ]
    assert inactive(read_claude(rows)) == {"b1", "b1a", "b1r"}


def test_a_rewind_to_the_first_prompt_is_seen_where_a_line_stands_before_it() -> None:
    rows = [line("progress", "p0", None), user("u1", "p0", "one"), user("u2", "p0", "two")]
    assert inactive(read_claude(rows)) == {"u1"}


def test_three_attempts_leave_the_last_active() -> None:
    rows = [*REWIND, user("b3", "a1", "third")]
    assert inactive(read_claude(rows)) == {"b1", "b1a", "b1r", "b2", "b2a"}


def test_parallel_calls_their_results_and_progress_are_no_branches() -> None:
    rows = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", use("t1")),
        assistant("a2", "a1", "m1", use("t2")),
        line("progress", "p1", "a1"),
        line("progress", "p2", "a1"),
        user("r1", "a1", [result("t1")]),
        user("r2", "a1", [result("t2")]),
        assistant("a3", "r1", "m2", "done"),
    ]
    assert inactive(read_claude(rows)) == set()


def test_a_compaction_joins_what_it_logically_follows() -> None:
    rows = [
        *REWIND,
        line("system", "cb", None, subtype="compact_boundary", logicalParentUuid="b2a"),
        user("cs", "cb", "This session is being continued", isCompactSummary=True),
        user("u9", "cs", "after"),
    ]
    events = read_claude(rows)
    summary = next(entry for entry in entries(events) if entry.id == "cs")
    assert (summary.parent, summary.mark) == ("b2a", "summary")
    assert inactive(events) == {"b1", "b1a", "b1r"}


@pytest.mark.parametrize("logical", [None, "not-in-this-file"])
def test_a_compaction_that_names_nothing_known_joins_in_file_order(logical: str | None) -> None:
    rows = [
        *REWIND,
        line("system", "cb", None, subtype="compact_boundary", logicalParentUuid=logical),
        user("cs", "cb", "recap", isCompactSummary=True),
    ]
    events = read_claude(rows)
    assert next(entry.parent for entry in entries(events) if entry.id == "cs") == "b2a"
    assert inactive(events) == {"b1", "b1a", "b1r"}


def test_missing_parents_loops_and_cycles_end_nowhere() -> None:
    rows = [
        user("u1", "gone", "one"),
        user("u2", "u2", "self"),
        user("x", "y", "cycle"),
        user("y", "x", "cycle"),
        assistant("a1", "y", "m1", "ok"),
    ]
    events = read_claude(rows)
    assert [(entry.id, entry.parent) for entry in entries(events)] == [
        ("u1", "gone"),
        ("u2", ""),
        ("x", "y"),
        ("y", "x"),
        ("a1", "y"),
    ]
    assert inactive(events) == set()


def test_a_line_that_a_compaction_replayed_under_a_new_uuid_is_not_added() -> None:
    rows = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", "one"),
        assistant("a2", "a1", "m1", use("t1")),
        user("r1", "a2", [result("t1")]),
    ]
    replay = [row | {"uuid": f"{row['uuid']}-again"} for row in rows[1:]]
    tail = user("u2", "r1-again", "next")
    events = read_claude([*rows, *replay, tail])
    held = entries(events)
    assert [entry.id for entry in held] == ["u1", "a1", "r1", "u2"]
    assert held[1].blocks == (Text("one"), ToolCall("t1", "Bash", {"command": "ls"}))
    assert held[3].parent == "r1"


# -- subagents, in three layouts --

CHILD = f"{SID}/7b2"


def agent_rows(**members: Any) -> list[dict[str, Any]]:
    side = {"isSidechain": True} | members
    return [user("s1", None, "count the tests", **side), assistant("s2", "s1", "m7", "There are 12.", **side)]


@pytest.mark.parametrize(
    "path",
    [
        "projects/x/agent-7b2.jsonl",
        f"projects/x/{SID}/subagents/agent-7b2.jsonl",
        f"projects/x/{SID}/subagents/workflows/run1/agent-7b2.jsonl",
    ],
)
def test_a_subagents_file_is_a_session_of_its_own_below_the_trunk(path: str) -> None:
    known = facts(read_claude(agent_rows(agentId="7b2"), path, description="Count tests"))
    assert list(known) == [CHILD]
    assert (known[CHILD].parent, known[CHILD].title) == (SID, "Count tests")


def test_an_inline_subagent_is_a_session_of_its_own() -> None:
    trunk = [user("u1", None, "go"), assistant("a1", "u1", "m1", use("t1", "Task"))]
    events = read_claude([*trunk, *agent_rows(agentId="7b2"), user("r1", "a1", [result("t1")])])
    assert [entry.id for entry in entries(events, SID)] == ["u1", "a1", "r1"]
    assert [entry.id for entry in entries(events, CHILD)] == ["s1", "s2"]
    assert facts(events)[CHILD].parent == SID


def test_inline_subagents_without_ids_are_told_apart_by_their_roots() -> None:
    rows = [
        user("u1", None, "go"),
        user("s1", None, "task one", isSidechain=True),
        user("z1", None, "task two", isSidechain=True),
        assistant("s2", "s1", "m7", "one done", isSidechain=True),
        assistant("z2", "z1", "m8", "two done", isSidechain=True),
    ]
    events = read_claude(rows)
    assert [entry.id for entry in entries(events, f"{SID}/s1")] == ["s1", "s2"]
    assert [entry.id for entry in entries(events, f"{SID}/z1")] == ["z1", "z2"]


def test_a_nested_subagent_names_the_agent_that_spawned_it() -> None:
    path = f"p/{SID}/subagents/agent-7b2.jsonl"
    assert facts(read_claude(agent_rows(), path, parentAgentId="a0"))[CHILD].parent == f"{SID}/a0"


def test_a_subagent_without_a_trunk_is_found_by_its_folder() -> None:
    path = f"p/{SID}/subagents/agent-7b2.jsonl"
    assert list(facts(read_claude(agent_rows(sessionId=FORK), path))) == [CHILD]


# -- titles --


def titles(*rows: dict[str, Any]) -> str:
    start = [user("u1", None, "<command-name>/review</command-name><command-args>all</command-args>")]
    return title(read_claude([*start, *rows]))


def test_the_title_is_the_best_that_the_file_has() -> None:
    prompt = user("u2", "u1", "Why does\n  the gauge drift?")
    valid = {"type": "summary", "summary": "Gauge drift", "leafUuid": "u2"}
    foreign = {"type": "summary", "summary": "Another talk", "leafUuid": "elsewhere"}
    generated = {"type": "ai-title", "aiTitle": "Fix gauge drift", "sessionId": SID}
    custom = {"type": "custom-title", "customTitle": "Drift", "sessionId": SID}
    assert titles() == "/review all"
    assert titles(prompt, user("u3", "u2", "thanks")) == "Why does the gauge drift?"
    assert titles(foreign, prompt) == "Why does the gauge drift?"
    assert titles(valid, prompt) == "Gauge drift"
    assert titles(custom, generated, valid, prompt) == "Drift"
    assert titles(generated, generated | {"aiTitle": "Newer"}, prompt) == "Newer"


def test_a_session_without_any_persons_word_is_titled_by_the_answer() -> None:
    assert title(read_claude([assistant("a1", None, "m1", "All tests pass.")])) == "All tests pass."


def test_a_long_title_is_cut_at_a_word() -> None:
    long = title(read_claude([user("u1", None, "word " * 100)]))
    assert len(long) <= 120
    assert long.endswith("word…")
    assert len(title(read_claude([user("u1", None, "x" * 500)]))) == 120


# -- what is passed over --


def test_progress_lines_are_not_parsed_but_keep_the_tree_together() -> None:
    rows = [
        user("u1", None, "go"),
        line("progress", "p1", "u1", data={"output": "x" * 100_000}),
        assistant("a1", "p1", "m1", "ok"),
    ]
    assert entries(read_claude(rows))[1].parent == "u1"


def test_a_tool_input_that_looks_like_progress_is_no_progress_line() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"type": "progress"}}
    assert ids([user("u1", None, "go"), assistant("a1", "u1", "m1", call)]) == ["u1", "a1"]


def test_times_that_go_back_do_not_change_the_order() -> None:
    rows = [user("u1", None, "one"), user("u2", "u1", "two", timestamp="2020-01-01T00:00:00Z")]
    assert ids(rows) == ["u1", "u2"]
