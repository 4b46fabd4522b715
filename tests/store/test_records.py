"""Records become JSON and back; what this version does not know survives; junk is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from crabstore.store.agents import AgentConfig, AgentHooks
from crabstore.store.errors import BadRecord, InvalidArgument
from crabstore.store.records import canonical_time, decode, encode, evolve, rfc3339
from crabstore.store.session_records import Done, OtherEvent, SessionMeta, Source, ToolStart, decode_event

META = SessionMeta(handle="h", agent="a", created_by="b", created_at="t", updated_at="t")


def test_unknown_members_survive_a_rewrite_at_every_depth() -> None:
    newer = msgspec.json.decode(encode(evolve(META, source=Source(tool="codex"))))
    newer |= {"mood": "calm", "source": newer["source"] | {"machine": ["m", 1]}}
    record = decode(SessionMeta, msgspec.json.encode(newer))
    assert record.source.tool == "codex"
    again = msgspec.json.decode(encode(evolve(record, title="new")))
    assert again == newer | {"title": "new"}


def test_a_changed_copy_leaves_the_original_alone() -> None:
    changed = evolve(META, title="other")
    assert (META.title, changed.title) == ("", "other")


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"null", b'{"handle":1}', b"\xff\xfe", b'{"mood":1}'])
def test_a_value_that_is_no_such_record_is_named(junk: bytes) -> None:
    with pytest.raises(BadRecord) as caught:
        decode(SessionMeta, junk, b"the-key")
    assert caught.value.key == b"the-key"


def test_default_records_are_not_shared_between_instances() -> None:
    one, other = AgentConfig(name="one"), AgentConfig(name="other")
    one.hooks.memory.recall_limit = 0
    one.skills.append("x")
    assert other.hooks == AgentHooks() and other.skills == []


def test_times_sort_as_text_whatever_their_zone_was() -> None:
    moment = datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert rfc3339(moment) == "2025-12-31T23:30:00.000000Z"
    assert rfc3339(datetime(2026, 1, 1, microsecond=5, tzinfo=UTC)) == "2026-01-01T00:00:00.000005Z"


def test_events_are_told_apart_and_a_newer_one_is_kept_whole() -> None:
    done = Done(model="m", iterations=2, stop_reason="end", ts="t", usage={"out": 3})
    start = ToolStart(calls=[], ts="t")
    assert [decode_event(encode(event), b"k") for event in (done, start)] == [done, start]
    newer = b'{"event":"pause","ts":"t","why":{"x":1}}'
    assert decode_event(newer, b"k") == OtherEvent({"event": "pause", "ts": "t", "why": {"x": 1}})
    with pytest.raises(BadRecord):
        decode_event(b'{"event":"done"}', b"k")


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-03-01T14:00:00Z", "2026-03-01T14:00:00.000000Z"),
        ("2026-03-01T14:00:00.5+02:00", "2026-03-01T12:00:00.500000Z"),
        ("2026-03-01 14:00:00.123456789Z", "2026-03-01T14:00:00.123456Z"),
        ("2026-03-01T14:00:00.000001Z", "2026-03-01T14:00:00.000001Z"),
    ],
)
def test_times_are_stored_in_the_one_form_that_sorts(given: str, stored: str) -> None:
    assert canonical_time(given) == stored


@pytest.mark.parametrize(
    "given",
    [
        "",
        "now",
        "2026",
        "2026-03-01T14:00:00",
        "0001-01-01T00:00:00+14:00",
        "２０２６-03-01T14:00:00.000000Z",
    ],
)
def test_what_is_no_time_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument):
        canonical_time(given)
