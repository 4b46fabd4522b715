"""A loaded history is one that its provider accepts, whatever of it is missing, late, doubled or cut off."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabstore.store.messages import MISSING_RESULT, HistoryEntry, repair

Entries = list[HistoryEntry]


def user(*content: Any) -> HistoryEntry:
    return HistoryEntry(message={"role": "user", "content": list(content)}, format="anthropic")


def assistant(*content: Any) -> HistoryEntry:
    return HistoryEntry(message={"role": "assistant", "content": list(content)}, format="anthropic")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "f", "input": {}}


def result(call: str, answer: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": answer}


def missing(call: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": MISSING_RESULT, "is_error": True}


def chat(role: str, words: str | None, *calls: str) -> HistoryEntry:
    message: dict[str, Any] = {"role": role, "content": words}
    if calls:
        functions = [
            {"id": c, "type": "function", "function": {"name": "f", "arguments": "{}"}} for c in calls
        ]
        message["tool_calls"] = functions
    return HistoryEntry(message=message, format="openai-chat")


def tool(call: str, answer: str = "done") -> HistoryEntry:
    return HistoryEntry(
        message={"role": "tool", "tool_call_id": call, "content": answer}, format="openai-chat"
    )


def item(kind: str, **members: Any) -> HistoryEntry:
    return HistoryEntry(message={"type": kind, **members}, format="openai-responses")


def call_item(call: str, kind: str = "function_call") -> HistoryEntry:
    return item(kind, call_id=call, name="f", arguments="{}")


def output(call: str, answer: str = "done", kind: str = "function_call_output") -> HistoryEntry:
    return item(kind, call_id=call, output=answer)


# -- the providers' rules, written down independently --


def check_anthropic(entries: Entries) -> None:
    """Each tool_use is answered in the next message, results first; no result without its call."""
    expected: list[Any] = []
    for entry in entries:
        if entry.format != "anthropic":
            assert not expected
            continue
        content = entry.message["content"]
        blocks: list[Any] = content if isinstance(content, list) else []
        kinds = [b["type"] for b in blocks if isinstance(b, dict)]
        answered = [b["tool_use_id"] for b in blocks if isinstance(b, dict) and b["type"] == "tool_result"]
        assert sorted(answered) == sorted(expected)
        assert kinds[: len(answered)] == ["tool_result"] * len(answered)
        assert entry.message["role"] == "user" or not answered
        expected = [b["id"] for b in blocks if isinstance(b, dict) and b["type"] == "tool_use"]
    assert not expected


def check_chat(entries: Entries) -> None:
    """The calls of a message are answered by the tool messages right behind it, and by nothing else."""
    pending: set[str] = set()
    for entry in entries:
        if entry.format == "openai-chat" and entry.message["role"] == "tool":
            call = entry.message["tool_call_id"]
            assert isinstance(call, str)
            pending.remove(call)
            continue
        assert not pending
        if entry.format == "openai-chat":
            pending = {call.id for call in entry.tool_calls}
    assert not pending


def check_responses(entries: Entries) -> None:
    """Every output stands behind its call, every call has exactly one."""
    pending: set[Any] = set()
    for entry in entries:
        if entry.format != "openai-responses":
            continue
        kind, call = str(entry.message.get("type")), entry.message.get("call_id")
        if kind in ("function_call", "custom_tool_call", "local_shell_call"):
            pending.add(call)
        elif kind.endswith("_output"):
            pending.remove(call)
    assert not pending


def check(entries: Entries) -> None:
    check_anthropic(entries)
    check_chat(entries)
    check_responses(entries)


# -- one case each --


def test_a_valid_history_comes_back_as_the_very_same_objects() -> None:
    history = [
        user(text("go")),
        assistant(text("I look"), use("a"), use("b")),
        user(result("b"), result("a"), text("hurry")),
        chat("assistant", None, "c", "d"),
        tool("d"),
        tool("c"),
        call_item("e"),
        call_item("f", "custom_tool_call"),
        output("f", kind="custom_tool_call_output"),
        item("message", role="user", content="and?"),
        output("e"),
        HistoryEntry(message={"role": "tool", "anything": 1}, format="somebody-elses"),
    ]
    repaired = repair(history)
    assert len(repaired) == len(history)
    assert all(a is b for a, b in zip(repaired, history, strict=True))


def test_a_call_at_the_end_is_answered_by_a_marked_placeholder() -> None:
    caller = assistant(use("a"))
    caller.id, caller.ts = "m1", "2026-01-02T03:04:05.000000Z"
    repaired = repair([user(text("go")), caller])
    assert repaired[2].message == {"role": "user", "content": [missing("a")]}
    assert (repaired[2].mark, repaired[2].parent, repaired[2].ts) == ("injected", "m1", caller.ts)
    assert repair([chat("assistant", None, "a")])[1].message["content"] == MISSING_RESULT
    assert repair([call_item("a")])[1].message == {
        "type": "function_call_output",
        "call_id": "a",
        "output": MISSING_RESULT,
    }


def test_the_missing_one_of_parallel_calls_is_put_in_beside_its_siblings() -> None:
    repaired = repair([assistant(use("a"), use("b"), use("c")), user(result("b"))])
    assert repaired[1].message["content"] == [result("b"), missing("a"), missing("c")]
    assert [
        e.message.get("tool_call_id") for e in repair([chat("assistant", None, "a", "b"), tool("b")])
    ] == [
        None,
        "b",
        "a",
    ]


def test_results_in_a_message_each_are_gathered_behind_their_calls() -> None:
    repaired = repair(
        [assistant(use("a"), use("b")), user(result("a")), user(result("b")), user(text("next"))]
    )
    assert [e.message["content"] for e in repaired[1:]] == [[result("a"), result("b")], [text("next")]]


def test_a_late_result_is_brought_to_its_call() -> None:
    late = [assistant(use("a")), user(text("still there?")), assistant(text("yes")), user(result("a"))]
    assert [e.message["content"] for e in repair(late)[1:]] == [
        [result("a"), text("still there?")],
        [text("yes")],
    ]
    note = chat("system", "note")
    assert repair([chat("assistant", None, "a"), note, tool("a")])[1:] == [tool("a"), note]


def test_a_person_who_interrupts_keeps_the_word_behind_the_placeholder() -> None:
    interrupted = HistoryEntry(message={"role": "user", "content": "stop"}, format="anthropic")
    repaired = repair([assistant(use("a")), interrupted])
    assert repaired[1].message["content"] == [missing("a"), text("stop")]
    assert repaired[1].text == "stop"
    assert interrupted.message["content"] == "stop"


def test_results_move_before_the_text_of_their_message() -> None:
    assert repair([assistant(use("a")), user(text("see"), result("a"))])[1].message["content"] == [
        result("a"),
        text("see"),
    ]


def test_a_history_cut_between_call_and_result_loses_the_result() -> None:
    assert repair([user(result("a")), assistant(text("so"))]) == [assistant(text("so"))]
    assert repair([user(result("a"), text("and")), assistant(text("so"))])[0] == user(text("and"))
    assert repair([tool("a"), chat("user", "hi")]) == [chat("user", "hi")]
    assert repair([output("a"), item("reasoning")]) == [item("reasoning")]


def test_the_first_of_two_results_stays() -> None:
    twice = [
        assistant(use("a")),
        user(result("a", "first"), result("a", "second")),
        user(result("a", "third")),
    ]
    assert [e.message["content"] for e in repair(twice)[1:]] == [[result("a", "first")]]
    assert repair([chat("assistant", None, "a"), tool("a", "1"), tool("a", "2")])[1:] == [tool("a", "1")]
    assert repair([call_item("a"), output("a", "1"), output("a", "2")])[1:] == [output("a", "1")]


def test_an_id_used_again_is_paired_with_the_call_before_it() -> None:
    history = [chat("assistant", None, "x"), chat("assistant", None, "x"), tool("x")]
    assert [e.message["content"] for e in repair(history)] == [None, MISSING_RESULT, None, "done"]


def test_each_kind_of_call_is_answered_in_its_own_kind() -> None:
    kinds = ["custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"]
    repaired = repair([call_item(str(n), kind) for n, kind in enumerate(kinds)])
    assert [e.message["type"] for e in repaired[1::2]] == [f"{kind}_output" for kind in kinds]
    assert all(MISSING_RESULT in str(e.message) for e in repaired[1::2])


def test_a_shell_call_answered_as_a_function_is_answered() -> None:
    history = [call_item("a", "local_shell_call"), output("a")]
    assert repair(history) == history


def test_calls_that_the_provider_runs_are_left_alone() -> None:
    history = [
        assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        item("web_search_call", id="ws"),
        HistoryEntry(message={"role": "assistant", "tool_calls": [{"id": "x"}]}, format="somebody-elses"),
    ]
    assert repair(history) == history


def test_calls_and_results_of_different_formats_do_not_answer_each_other() -> None:
    repaired = repair(
        [assistant(use("a")), tool("a"), output("a"), call_item("b"), user(result("b"), text("hm"))]
    )
    check(repaired)
    assert [e.format for e in repaired] == ["anthropic"] * 2 + ["openai-responses"] * 2 + ["anthropic"]


@pytest.mark.parametrize("junk", [None, 7, {"role": "x"}, ["bare", None, {"type": "tool_use"}], [[]]])
@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat", "openai-responses", "other"])
@pytest.mark.parametrize("role", ["user", "assistant", "tool", None, 5])
def test_junk_passes_through(junk: Any, format_name: str, role: Any) -> None:
    message = {"role": role, "content": junk, "tool_calls": junk, "type": junk, "call_id": junk}
    history = [HistoryEntry(message=message, format=format_name)]
    assert repair(repair(history)) == repair(history)


# -- any history, with any of its results dropped, doubled or elsewhere --


@st.composite
def histories(draw: st.DrawFn) -> Entries:
    """Turns of mixed formats, valid at first; then results are dropped, doubled and moved, and the head is cut."""
    history: Entries = []
    for turn in range(draw(st.integers(1, 5))):
        calls = [f"{turn}-{n}" for n in range(draw(st.integers(0, 3)))]
        history += draw(st.sampled_from([_anthropic_turn, _chat_turn, _responses_turn]))(turn, calls)
    for place in draw(st.lists(st.integers(0, 30), max_size=6)):
        if history:
            entry = history.pop(place % len(history))
            history[place % 7 : place % 7] = draw(st.sampled_from([[], [entry, entry], [entry]]))
    return history[draw(st.integers(0, 2)) :]


def _anthropic_turn(turn: int, calls: list[str]) -> Entries:
    spoken = [user(text(f"ask {turn}")), assistant(text(f"say {turn}"), *map(use, calls))]
    if not calls:
        return spoken
    half = len(calls) // 2
    parts = [user(*map(result, calls[:half])), user(*map(result, calls[half:]), text(f"more {turn}"))]
    return spoken + [part for part in parts if part.message["content"]]


def _chat_turn(turn: int, calls: list[str]) -> Entries:
    return [chat("user", f"ask {turn}"), chat("assistant", f"say {turn}", *calls), *map(tool, calls)]


def _responses_turn(turn: int, calls: list[str]) -> Entries:
    asked = item("message", role="user", content=f"ask {turn}")
    return [asked, *map(call_item, calls), *map(output, calls)]


def others(entries: Entries) -> list[Any]:
    """Everything but results and what was put in, in order."""
    kept: list[Any] = []
    for entry in entries:
        content = entry.message.get("content")
        if entry.role == "tool":
            continue
        blocks = content if isinstance(content, list) else [content]
        kept.append([b for b in blocks if not (isinstance(b, dict) and b.get("type") == "tool_result")])
    return kept


def unique_calls(entries: Entries) -> Entries:
    """Without the doubled callers: an id that is called twice at once is no provider's valid history."""
    seen: set[str] = set()
    kept = []
    for entry in entries:
        calls = {call.id for call in entry.tool_calls}
        if not calls & seen:
            kept.append(entry)
        seen |= calls
    return kept


@given(histories())
def test_repair_gives_a_valid_history_and_keeps_every_other_item(history: Entries) -> None:
    history = unique_calls(history)
    before = copy.deepcopy(history)
    repaired = repair(history)
    check(repaired)
    assert repair(repaired) == repaired
    assert history == before
    assert others(repaired) == others(history)


@given(histories())
def test_repair_keeps_every_result_that_came_after_its_call(history: Entries) -> None:
    history = unique_calls(history)
    called: set[tuple[str, str]] = set()
    answered: set[tuple[str, str]] = set()
    for entry in history:
        answered |= {(entry.format, r.call_id) for r in entry.tool_results} & called
        called |= {(entry.format, c.id) for c in entry.tool_calls}
    real = {
        (entry.format, r.call_id) for entry in repair(history) for r in entry.tool_results if r.text == "done"
    }
    assert real == answered


@given(histories())
def test_repair_is_repeatable_even_where_ids_are_used_twice(history: Entries) -> None:
    assert repair(repair(history)) == repair(history)
