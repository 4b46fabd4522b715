"""Makes a history valid for its provider after a crash, a cancel or a cut: pure, repeatable, visible.

Providers refuse a request in which a tool call has no result, or a result no call, and a session that was killed
between the two would be refused for ever. Repair answers such a call with a placeholder that says what it is,
drops what answers nothing, and brings results that stand too late to their place. It is applied to what is
loaded, never to what is stored; everything else in the history stays as it is, the very same objects.

Per format: `anthropic` wants all results in the user message right after the calls, before any text;
`openai-chat` wants tool messages right after the calls; `openai-responses` wants an output item anywhere after
its call. Calls that the provider runs itself and entries of unknown formats are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..records import Json, evolve
from .entry import HistoryEntry
from .wire import content_list, string

__all__ = ["MISSING_RESULT", "repair"]

MISSING_RESULT = "[no result of this tool call was recorded: it was interrupted, or the record was lost]"
"""The text of a placeholder result."""

_Message = dict[str, Json]
_Slot = tuple[int, int]
"""Where a result stands: the entry's position, and its block's in that entry (0 where the entry is the result)."""
_Found = dict[str, _Slot | None]
"""The calls of one entry by id, and where the result of each stands, if anywhere."""

_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""The items of the Responses API that the caller has to answer, and the type of the answer that is put in."""


def repair(entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """`entries` as a history that its provider accepts; what is right already comes back as it is.

    `repair(repair(x)) == repair(x)`. A placeholder is an answer with the text `MISSING_RESULT` (an error, where
    the format can say so); an entry that is put in for it carries the mark "injected". Of several results of one
    call the first stays. Where an id is used again, a result belongs to the last call before it.
    """
    history = list(entries)
    for rules in (_chat, _responses, _anthropic):
        history = list(rules(history))
    return history


def _chat(history: list[HistoryEntry]) -> Iterator[HistoryEntry]:
    """Tool messages stand right behind the message that calls them."""
    answers = _pair(history, _chat_calls, _chat_results)
    for i, entry in enumerate(history):
        if _chat_results(entry):
            continue
        yield entry
        found = answers.get(i, {})
        yield from (history[at] for at, _ in sorted(_slots(found)))
        yield from (_answer(entry, _chat_placeholder(call)) for call in _missing(found))


def _responses(history: list[HistoryEntry]) -> Iterator[HistoryEntry]:
    """Every call has its output somewhere behind it, every output its call."""
    answers = _pair(history, _item_calls, _item_results)
    claimed = {slot for found in answers.values() for slot in _slots(found)}
    for i, entry in enumerate(history):
        if _item_results(entry) and (i, 0) not in claimed:
            continue
        yield entry
        for call in _missing(answers.get(i, {})):
            yield _answer(entry, _item_placeholder(string(entry.message.get("type")), call))


def _anthropic(history: list[HistoryEntry]) -> Iterator[HistoryEntry]:
    """All results of a message's calls open the user message behind it, which is made if it is not there."""
    answers = _pair(history, _tool_uses, _tool_results)
    claimed = {slot for found in answers.values() for slot in _slots(found)}
    caller: HistoryEntry | None = None
    results: list[Json] = []
    for i, entry in enumerate(history):
        if _only_orphans(i, entry, claimed):
            continue
        if _speaks(entry, "user"):
            yield from _with_results(entry, results)
        else:
            if caller is not None:
                yield _answer(caller, {"role": "user", "content": results})
            yield entry
        caller = entry if i in answers else None
        results = _result_blocks(history, answers.get(i, {}))
    if caller is not None:
        yield _answer(caller, {"role": "user", "content": results})


# -- which result belongs to which call --


def _pair(
    history: list[HistoryEntry],
    calls: Callable[[HistoryEntry], list[str]],
    results: Callable[[HistoryEntry], list[tuple[int, str]]],
) -> dict[int, _Found]:
    """By the position of each entry that calls tools: its calls, each with its result."""
    answers: dict[int, _Found] = {}
    waiting: dict[str, int] = {}
    for i, entry in enumerate(history):
        for block, call in results(entry):
            caller = waiting.pop(call, None)
            if caller is not None:
                answers[caller][call] = (i, block)
        for call in filter(None, calls(entry)):
            answers.setdefault(i, {})[call] = None
            waiting[call] = i
    return answers


def _slots(found: _Found) -> list[_Slot]:
    return [slot for slot in found.values() if slot is not None]


def _missing(found: _Found) -> list[str]:
    return [call for call, slot in found.items() if slot is None]


def _speaks(entry: HistoryEntry, role: str, format_name: str = "anthropic") -> bool:
    return entry.format == format_name and entry.message.get("role") == role


def _chat_calls(entry: HistoryEntry) -> list[str]:
    calls = entry.message.get("tool_calls") if _speaks(entry, "assistant", "openai-chat") else None
    return (
        [string(call.get("id")) for call in calls if isinstance(call, dict)]
        if isinstance(calls, list)
        else []
    )


def _chat_results(entry: HistoryEntry) -> list[tuple[int, str]]:
    answers = _speaks(entry, "tool", "openai-chat")
    return [(0, string(entry.message.get("tool_call_id")))] if answers else []


def _item_calls(entry: HistoryEntry) -> list[str]:
    calls = entry.format == "openai-responses" and string(entry.message.get("type")) in _OUTPUTS
    return [string(entry.message.get("call_id"))] if calls else []


def _item_results(entry: HistoryEntry) -> list[tuple[int, str]]:
    answers = entry.format == "openai-responses" and entry.message.get("type") in _OUTPUTS.values()
    return [(0, string(entry.message.get("call_id")))] if answers else []


def _tool_uses(entry: HistoryEntry) -> list[str]:
    if not _speaks(entry, "assistant"):
        return []
    return [string(block.get("id")) for _, block in _blocks(entry.message, "tool_use")]


def _tool_results(entry: HistoryEntry) -> list[tuple[int, str]]:
    if not _speaks(entry, "user"):
        return []
    return [(j, string(block.get("tool_use_id"))) for j, block in _blocks(entry.message, "tool_result")]


# -- the content of an anthropic message --


def _blocks(message: _Message, kind: str) -> list[tuple[int, _Message]]:
    blocks = enumerate(content_list(message.get("content")))
    return [(j, block) for j, block in blocks if isinstance(block, dict) and block.get("type") == kind]


def _only_orphans(i: int, entry: HistoryEntry, claimed: set[_Slot]) -> bool:
    results = _tool_results(entry)
    answers_one = any((i, block) in claimed for block, _ in results)
    return bool(results) and not answers_one and not _other_blocks(entry.message)


def _result_blocks(history: list[HistoryEntry], found: _Found) -> list[Json]:
    """The results of one message's calls as they came, then placeholders for those that never did."""
    came = [content_list(history[i].message.get("content"))[block] for i, block in sorted(_slots(found))]
    return [*came, *(_block_placeholder(call) for call in _missing(found))]


def _with_results(entry: HistoryEntry, results: list[Json]) -> list[HistoryEntry]:
    """A user's entry with exactly these results, first, and what else it says; nothing if nothing is left."""
    if not results and not _tool_results(entry):
        return [entry]
    content = [*results, *_other_blocks(entry.message)]
    if content == entry.message.get("content"):
        return [entry]
    return [evolve(entry, message={**entry.message, "content": content})] if content else []


def _other_blocks(message: _Message) -> list[Json]:
    blocks = content_list(message.get("content"))
    others = [b for b in blocks if not (isinstance(b, dict) and b.get("type") == "tool_result")]
    return [{"type": "text", "text": b} if isinstance(b, str) else b for b in others]


# -- placeholders --


def _answer(caller: HistoryEntry, message: _Message) -> HistoryEntry:
    """An entry that is put in behind `caller`; it belongs to nobody and is never stored, so it has no id."""
    return HistoryEntry(
        message=message, format=caller.format, ts=caller.ts, parent=caller.id, mark="injected"
    )


def _block_placeholder(call_id: str) -> _Message:
    return {"type": "tool_result", "tool_use_id": call_id, "content": MISSING_RESULT, "is_error": True}


def _chat_placeholder(call_id: str) -> _Message:
    return {"role": "tool", "tool_call_id": call_id, "content": MISSING_RESULT}


def _item_placeholder(kind: str, call_id: str) -> _Message:
    item: _Message = {"type": _OUTPUTS[kind], "call_id": call_id, "output": MISSING_RESULT}
    if kind == "apply_patch_call":
        item["status"] = "failed"
    if kind == "shell_call":
        item["output"] = [
            {"stdout": "", "stderr": MISSING_RESULT, "outcome": {"type": "exit", "exit_code": 1}},
        ]
    return item
