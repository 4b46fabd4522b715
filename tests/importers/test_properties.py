"""Whatever order a file is written, read, cut and damaged in, the same rows come of it."""

from __future__ import annotations

import asyncio
import copy
import importlib
import io
import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.importers.writing import (
    ROLLOUT,
    SID,
    Row,
    assistant,
    event,
    item,
    jsonl,
    line,
    meta,
    notice,
    result,
    rollout,
    rows,
    said,
    turn,
    use,
    user,
)

from crabstore.backends.volatile import VolatileBackend
from crabstore.importers import Report, claude_code, ingest
from crabstore.importers.events import Message
from crabstore.store.messages import repair

importing = importlib.import_module("crabstore.importers.ingest")

Held = dict[tuple[str, str], Row]

NAMES = {
    "claude": f"{SID}.jsonl",
    "codex": f"rollout-2026-02-23T12-41-04-{ROLLOUT}.jsonl",
    "messages": "talks.jsonl",
}


# -- random transcripts --


@st.composite
def claude_files(draw: st.DrawFn) -> list[Any]:
    """Prompts, answers over several lines, results, rewinds, subagents, queues, compactions, titles."""
    lines: list[dict[str, Any]] = []
    spots: list[str] = []
    moves = draw(st.lists(st.sampled_from("ppaaaarrwscqtmx"), min_size=1, max_size=14))
    for n, move in enumerate(moves):
        last = spots[-1] if spots else None
        uuid = f"{move}{n}"
        if move == "p":
            lines.append(user(uuid, last, f"ask {n}"))
        elif move == "w" and len(spots) > 1:
            lines.append(user(uuid, draw(st.sampled_from(spots)), f"ask again {n}"))
        elif move == "a":
            lines += _answer(draw, uuid, last)
        elif move == "r":
            lines.append(user(uuid, last, [result("t1", f"out {n}")]))
        elif move == "s":
            lines.append(user(uuid, None, f"task {n}", isSidechain=True, agentId="7b2"))
            continue
        elif move == "c":
            lines.append(line("system", uuid, None, subtype="compact_boundary", logicalParentUuid=last))
        elif move == "q":
            lines += _queued(draw, uuid, last)
            continue
        elif move == "t":
            lines.append({"type": "custom-title", "customTitle": f"title {n}", "sessionId": SID})
            continue
        elif move == "m":
            lines.append(user(uuid, last, "<command-name>/x</command-name>", isMeta=draw(st.booleans())))
        else:
            lines.append(line("progress", uuid, last))
        spots.append(lines[-1]["uuid"])
    return lines


def _answer(draw: st.DrawFn, uuid: str, parent: str | None) -> list[Any]:
    """One message over up to three lines, perhaps with results in between."""
    lines: list[Any] = []
    for part in range(draw(st.integers(1, 3))):
        name = f"{uuid}.{part}"
        lines.append(assistant(name, parent, f"m-{uuid}", f"say {name}", use(f"t{part}")))
        parent = name
        if draw(st.booleans()):
            parent = f"{name}r"
            lines.append(user(parent, name, [result(f"t{part}")]))
    return lines


def _queued(draw: st.DrawFn, uuid: str, parent: str | None) -> list[Any]:
    words = draw(st.sampled_from(["faster", "also docs"]))
    operation = {"type": "queue-operation", "sessionId": SID}
    lines: list[dict[str, Any]] = [operation | {"operation": "enqueue", "content": words}]
    lines.append(operation | {"operation": "remove", "content": draw(st.sampled_from([words, None]))})
    attachment = {"type": "queued_command", "prompt": words}
    lines.append(line("attachment", uuid, parent, attachment=attachment))
    return draw(st.permutations(lines)) if draw(st.booleans()) else lines[:2]


@st.composite
def codex_files(draw: st.DrawFn) -> list[Any]:
    """Contexts, prompts and answers in one shape or both, calls, aborts, rollbacks, compactions, forks."""
    parent = "019c8a3f-0000-7000-8000-000000000000"
    lines: list[Any] = [meta()]
    if draw(st.booleans()):
        copied = [said("user", "old"), turn("019c8a40-0000-7000-8000-000000000001"), said("assistant", "was")]
        lines = [meta(forked_from_id=parent), meta(parent), *copied]
    lines += [said("developer", "rules"), turn("019c8a4d-f931-7323-8939-64390c636ca9")]
    for n, move in enumerate(draw(st.lists(st.sampled_from("uuaaftckrx"), min_size=1, max_size=12))):
        at = n % 60
        if move == "u":
            words = draw(st.sampled_from(["go", "continue", f"ask {n}"]))
            lines += _twins(draw, said("user", words, at), notice("user_message", words, at))
        elif move == "a":
            lines += _twins(draw, said("assistant", f"say {n}", at), notice("agent_message", f"say {n}", at))
        elif move == "f":
            lines.append(item("function_call", at, name="f", arguments="{}", call_id=f"c{n}"))
            lines.append(item("function_call_output", at, call_id=f"c{n}", output="x"))
        elif move == "t":
            lines.append(event("token_count", info=None))
        elif move == "c":
            lines.append(said("user", "<environment_context>x</environment_context>", at))
        elif move == "k":
            lines.append(rollout("compacted", {"message": f"summary {n}"}, at))
        elif move == "r":
            lines.append(event("thread_rolled_back", num_turns=draw(st.integers(1, 2))))
        else:
            lines.append(event("turn_aborted"))
    return lines


def _twins(draw: st.DrawFn, as_item: Any, as_notice: Any) -> list[Any]:
    return draw(st.sampled_from([[as_item, as_notice], [as_notice, as_item], [as_item], [as_notice]]))


@st.composite
def message_files(draw: st.DrawFn) -> list[Any]:
    """Conversations, equal ones among them, and bare messages."""
    lines: list[Any] = []
    for number in draw(st.lists(st.integers(0, 5), min_size=1, max_size=8)):
        message = {"role": "user" if number % 2 else "assistant", "content": f"words {number}"}
        lines.append(message if number > 3 else {"messages": [message] * (number + 1)})
    return lines


files = st.one_of(
    st.tuples(st.just("claude"), claude_files()),
    st.tuples(st.just("codex"), codex_files()),
    st.tuples(st.just("messages"), message_files()),
)


# -- importing what stands in them --


def through(name: str, stages: list[bytes]) -> tuple[list[Report], Held]:
    """Import a file as it stands at each stage, into one store."""

    async def run() -> tuple[list[Report], Held]:
        store = VolatileBackend()
        reports = []
        with tempfile.TemporaryDirectory(prefix="import-", dir=_memory()) as folder:
            path = Path(folder, name)
            for data in stages:
                path.write_bytes(data)
                os.utime(path, (1_700_000_000, 1_700_000_000))
                reports.append(await ingest(store, [path], again=True))
        return reports, await rows(store)

    return asyncio.run(run())


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def comparable(held: Held) -> dict[str, Any]:
    """Rows without what names the temporary folder: paths, and the identity of bare messages that follows them."""
    bare = [row for row in held.values() if row[5][0].id.startswith("line-") and row[4].tool == "messages"]
    named = {key[1]: row for key, row in held.items() if row not in bare}
    rows_of = named | {f"bare {n}": row for n, row in enumerate(bare)}
    return {key: (row[:4], row[4].project, row[4].parent, row[5]) for key, row in rows_of.items()}


thorough = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@thorough
@given(files, st.data())
def test_growing_files_give_the_rows_of_the_whole_file(
    file: tuple[str, list[Any]], data: st.DataObject
) -> None:
    kind, lines = file
    whole = jsonl(lines)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(whole)), max_size=3)))
    _, at_once = through(NAMES[kind], [whole])
    _, grown = through(NAMES[kind], [*(whole[:cut] for cut in cuts), whole])
    assert comparable(grown) == comparable(at_once)


@thorough
@given(files)
def test_importing_again_adds_nothing_and_changes_nothing(file: tuple[str, list[Any]]) -> None:
    kind, lines = file
    reports, twice = through(NAMES[kind], [jsonl(lines)] * 2)
    _, once = through(NAMES[kind], [jsonl(lines)])
    assert comparable(twice) == comparable(once)
    assert (reports[1].total("added"), reports[1].total("new_sessions")) == (0, 0)


@thorough
@given(files)
def test_small_batches_give_the_rows_of_large_ones(file: tuple[str, list[Any]]) -> None:
    kind, lines = file
    _, large = through(NAMES[kind], [jsonl(lines)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "_BATCH_ENTRIES", 1)
        _, small = through(NAMES[kind], [jsonl(lines)])
    assert comparable(small) == comparable(large)


@thorough
@given(files, st.data())
def test_a_killed_line_loses_only_itself_and_is_named(
    file: tuple[str, list[Any]], data: st.DataObject
) -> None:
    kind, lines = file
    raw = jsonl(lines).splitlines(keepends=True)
    victim = data.draw(st.integers(0, len(raw) - 1))
    torn = raw[victim][: len(raw[victim]) // 2]
    killed = data.draw(st.sampled_from([b"\x07" * 9, b"<<<<<<< HEAD", torn, raw[victim][:-2]]))
    damaged = b"".join((*raw[:victim], killed + b"\n", *raw[victim + 1 :]))
    (report,), held = through(NAMES[kind], [damaged])
    if len(lines) == 1:
        assert not report.ok
        return
    # A blank line keeps the numbers of the others.
    (clean,), expected = through(NAMES[kind], [b"".join((*raw[:victim], b"\n", *raw[victim + 1 :]))])
    assert comparable(held) == comparable(expected)
    if not held:
        return
    place = (victim + 1, sum(map(len, raw[:victim])))
    assert place in [(problem.line, problem.offset) for _, problem in report.problems]
    assert report.total("lost") == clean.total("lost") + 1


@thorough
@given(files, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5))
def test_any_bytes_changed_end_in_a_report_and_nothing_worse(
    file: tuple[str, list[Any]], flips: list[tuple[int, int]]
) -> None:
    kind, lines = file
    damaged = bytearray(jsonl(lines))
    for place, byte in flips:
        damaged[place % len(damaged)] = byte
    (report,), held = through(NAMES[kind], [bytes(damaged)])
    assert held or report.files[0].problems
    reports, again = through(NAMES[kind], [bytes(damaged)] * 2)
    assert comparable(again) == comparable(held)
    assert reports[1].total("added") == 0


# -- bounded memory --


class Endless(io.RawIOBase):
    """A file that is made while it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._pieces, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def long_session() -> Iterator[bytes]:
    words = "some words that somebody said about the tide and the gauge " * 200
    for n in range(600):
        parent = f"u{n - 1}"
        yield jsonl([user(f"u{n}", parent, words), assistant(f"a{n}", f"u{n}", f"m{n}", words, use("t"))])
        yield jsonl([line("progress", f"p{n}", f"u{n}", data=words * 10)])


@pytest.mark.parametrize("messages", [600])
def test_memory_does_not_grow_with_a_file(messages: int) -> None:
    tracemalloc.start()
    try:
        stream: Any = io.BufferedReader(Endless(long_session()))
        read = claude_code.read(stream, PurePath(f"{SID}.jsonl"))
        size = sum(len(str(found.entry.message)) for found in read if isinstance(found, Message))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 14_000_000
    assert peak < 4_000_000


# -- members of any kind --

JUNK: list[Any] = [None, 7, True, "", [], {}, [None], [[]], {"type": "x"}, "2025-01-01", [{"type": "text"}]]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, inner in members:
        yield (*path, name)
        yield from _places(inner, (*path, name))


@thorough
@given(files, st.data())
def test_members_of_any_kind_end_in_no_exception(file: tuple[str, list[Any]], data: st.DataObject) -> None:
    kind, lines = file
    lines = copy.deepcopy(lines)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(list(_places(lines))))
        inner: Any = lines
        for name in path:
            inner = inner[name]
        inner[last] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
    _, held = through(NAMES[kind], [jsonl(lines)])
    for row in held.values():
        repaired = repair(row[5])
        assert repair(repaired) == repaired
