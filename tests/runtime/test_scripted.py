"""The scripted provider: a file of turns, played to each session from its start."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from crabstore.runtime import (
    BadScript,
    ContextTooLong,
    ProviderError,
    ProviderEvent,
    ProviderUnavailable,
    RateLimited,
    Reply,
    Request,
    RequestRejected,
    ScriptedProvider,
    TextDelta,
    ThinkingDelta,
    Unauthorized,
    Usage,
)

FILE = """[
  {"thinking": "hm", "text": ["let me ", "look"], "calls": [{"name": "read", "arguments": {"path": "x"}}],
   "usage": {"input_tokens": 3}},
  {"text": "done", "stop_reason": "max_tokens"}
]"""


def asked(provider: ScriptedProvider, session: str = "h") -> list[ProviderEvent]:
    async def ask() -> list[ProviderEvent]:
        async with aclosing(provider.stream(Request(model="m", entries=(), session=session))) as stream:
            return [event async for event in stream]

    return asyncio.run(ask())


def test_a_script_is_played_turn_by_turn() -> None:
    provider = ScriptedProvider.parse(FILE, format="openai-chat")
    *deltas, first = asked(provider)
    assert deltas == [ThinkingDelta("hm"), TextDelta("let me "), TextDelta("look")]
    assert isinstance(first, Reply)
    assert (first.calls[0].id, first.calls[0].name) == ("call_0_0", "read")
    assert (first.stop_reason, first.usage) == ("tool_use", Usage(3))
    second = asked(provider)[-1]
    assert second == Reply({"role": "assistant", "content": "done"}, (), "max_tokens")


def test_each_session_plays_the_script_from_its_start() -> None:
    provider = ScriptedProvider.parse('[{"text": "one"}, {"text": "two"}]')
    assert [asked(provider, name)[0] for name in ("a", "a", "b")] == [
        TextDelta("one"),
        TextDelta("two"),
        TextDelta("one"),
    ]


def test_a_script_that_is_over_says_so_or_begins_anew() -> None:
    provider = ScriptedProvider.parse('[{"text": "one"}]', name="demo.json")
    asked(provider)
    with pytest.raises(BadScript) as over:
        asked(provider)
    assert over.value.name == "demo.json"
    repeating = ScriptedProvider.parse('{"turns": [{"text": "one"}], "repeat": true}')
    assert asked(repeating) == asked(repeating)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("rate_limited", RateLimited),
        ("unavailable", ProviderUnavailable),
        ("rejected", RequestRejected),
        ("unauthorized", Unauthorized),
        ("context_too_long", ContextTooLong),
    ],
)
def test_a_turn_may_fail_in_every_way_a_provider_does(error: str, expected: type[ProviderError]) -> None:
    with pytest.raises(expected):
        asked(ScriptedProvider.parse(f'[{{"error": "{error}"}}]'))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]",
        b'[{"txet": "typo"}]',
        b'[{"error": "unheard of"}]',
        b'[{"usage": {"tokens": 1}}]',
        b"\xff",
    ],
)
def test_a_script_with_a_mistake_is_refused_when_it_is_read(data: bytes) -> None:
    with pytest.raises(BadScript):
        ScriptedProvider.parse(data)
