"""The official SDKs against a local server: their streams, their errors, and streams that break."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from crabstore.runtime import (
    AnthropicProvider,
    BrokenStream,
    ContextTooLong,
    OpenAIProvider,
    Provider,
    ProviderError,
    ProviderEvent,
    ProviderUnavailable,
    RateLimited,
    Reply,
    Request,
    RequestRejected,
    Runtime,
    SdkMissing,
    TextDelta,
    ThinkingDelta,
    Tool,
    Unauthorized,
    Usage,
)
from crabstore.runtime.providers.failures import retry_after
from crabstore.store.messages import HistoryEntry, ToolCall

from .model_server import Answer, ModelServer, anthropic_events, chat_chunks, serving
from .scene import begin, play
from .test_runs import Echo
from .validity import require_valid

KINDS = ["anthropic", "openai"]
CALLS = [("call_1", "echo", '{"text": "a"}'), ("call_2", "echo", '{"text": "b"}')]
QUESTION = Request(
    model="m",
    entries=(HistoryEntry.user("hello"),),
    system="be brief",
    tools=(Tool("echo", "says it again"),),
)


def provider_of(kind: str, server: ModelServer, timeout: float = 30.0) -> Provider:
    if kind == "anthropic":
        return AnthropicProvider("key", base_url=server.url, timeout=timeout)
    return OpenAIProvider("key", base_url=server.url + "/v1", timeout=timeout)


def streamed(kind: str, text: str = "", calls: list[tuple[str, str, str]] | None = None) -> list[bytes]:
    return anthropic_events(text, calls or []) if kind == "anthropic" else chat_chunks(text, calls or [])


async def asked(provider: Provider, request: Request = QUESTION) -> list[ProviderEvent]:
    async with aclosing(provider.stream(request)) as stream:
        return [event async for event in stream]


def against(
    kind: str,
    *answers: Answer,
    check: Callable[[Provider, ModelServer], Awaitable[None]],
    timeout: float = 30.0,
) -> None:
    async def scenario() -> None:
        async with serving(*answers) as server:
            provider = provider_of(kind, server, timeout)
            try:
                await check(provider, server)
            finally:
                await provider.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_gives_deltas_calls_usage_and_the_message(kind: str) -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        *deltas, reply = await asked(provider)
        assert deltas == [TextDelta("let "), TextDelta("me see")] or deltas == [
            TextDelta("let m"),
            TextDelta("e see"),
        ]
        assert isinstance(reply, Reply)
        assert reply.calls == (
            ToolCall("call_1", "echo", {"text": "a"}),
            ToolCall("call_2", "echo", {"text": "b"}),
        )
        assert reply.stop_reason == "tool_use" if kind == "openai" else "end_turn"
        assert reply.usage == Usage(7, 9, 5)
        entry = HistoryEntry(message=reply.message, format=provider.format)
        assert (entry.role, entry.text, entry.tool_calls) == ("assistant", "let me see", reply.calls)

    against(kind, Answer(streamed(kind, "let me see", CALLS)), check=check)


@pytest.mark.parametrize("kind", KINDS)
def test_the_request_says_what_the_agent_wants_and_who_asks(kind: str) -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        await asked(provider)
        sent = server.requests[0]
        assert (sent["model"], sent["stream"]) == ("m", True)
        names = [tool.get("name") or tool["function"]["name"] for tool in sent["tools"]]
        assert names == ["echo"]
        if kind == "anthropic":
            assert server.paths == ["/v1/messages"]
            keys = server.headers[0].get("x-api-key"), server.headers[0].get("authorization")
            assert "key" in keys or "Bearer key" in keys
            assert sent["system"][0]["text"] == "be brief"
            assert sent["max_tokens"] == 8192
        else:
            assert server.paths == ["/v1/chat/completions"]
            assert server.headers[0]["authorization"] == "Bearer key"
            assert sent["messages"][0] == {"role": "system", "content": "be brief"}

    against(kind, Answer(streamed(kind, "ok")), check=check)


def test_reasoning_is_streamed_and_stored_with_its_signature() -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        events = await asked(
            provider, Request(model="m", entries=QUESTION.entries, thinking=True, max_tokens=100)
        )
        assert events[0] == ThinkingDelta("hm")
        assert isinstance(events[-1], Reply)
        assert events[-1].message["content"] == [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "ok"},
        ]
        assert server.requests[0]["thinking"] == {"type": "enabled", "budget_tokens": 4096}
        assert server.requests[0]["max_tokens"] == 4196

    against("anthropic", Answer(anthropic_events("ok", thinking="hm")), check=check)


FAILURES: list[Any] = [
    (400, "invalid_request_error", "no such field", RequestRejected),
    (400, "context_length_exceeded", "maximum context length is 8 tokens", ContextTooLong),
    (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextTooLong),
    (401, "authentication_error", "invalid key", Unauthorized),
    (404, "not_found_error", "no such model", RequestRejected),
    (429, "rate_limit_error", "slow down", RateLimited),
    (429, "insufficient_quota", "pay first", RequestRejected),
    (500, "api_error", "oops", ProviderUnavailable),
    (529, "overloaded_error", "overloaded", ProviderUnavailable),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("status", "error", "message", "expected"), FAILURES)
def test_each_failure_has_its_own_error(
    kind: str, status: int, error: str, message: str, expected: type[ProviderError]
) -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        with pytest.raises(ProviderError) as failed:
            await asked(provider)
        assert type(failed.value) is expected
        assert (failed.value.status, failed.value.provider) == (status, kind)
        assert message in failed.value.why
        assert len(server.requests) == 1  # the SDK itself must not retry
        if isinstance(failed.value, RateLimited):
            assert failed.value.retry_after == 7

    against(kind, Answer.error(status, error, message, retry_after="7"), check=check)


BROKEN = ["cut", "cut in an event", "reset", "no JSON", "no sense", "too early", "empty"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_stream_is_told_apart_from_a_whole_answer(kind: str, how: str) -> None:
    whole = streamed(kind, "let me see", CALLS)
    head = whole[:6]
    broken = {
        "cut": Answer(head, ending="cut"),
        "cut in an event": Answer([*head, whole[6][:20]], ending="cut"),
        "reset": Answer(head, ending="reset"),
        "no JSON": Answer([*head, b'event: content_block_delta\ndata: {"type": \n\n', *whole[6:]]),
        "no sense": Answer([*head, _nonsense(kind), *whole[6:]]),
        "too early": Answer(head),
        "empty": Answer([b": nothing\n\n"]),
    }[how]

    async def check(provider: Provider, server: ModelServer) -> None:
        with pytest.raises((BrokenStream, ProviderUnavailable)) as failed:
            await asked(provider)
        assert failed.value.transient

    against(kind, broken, check=check)


def _nonsense(kind: str) -> bytes:
    if kind == "anthropic":
        return (
            b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 99, '
            b'"delta": {"type": "text_delta", "text": "?"}}\n\n'
        )
    return b'data: {"choices": [7]}\n\n'


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_falls_silent_does_not_hold_the_run_for_ever(kind: str) -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        with pytest.raises((BrokenStream, ProviderUnavailable)):
            await asked(provider)

    against(kind, Answer(streamed(kind, "let me see")[:4], ending="stall"), check=check, timeout=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_not_there_is_unavailable(kind: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            pass
        provider = provider_of(kind, server)
        with pytest.raises(ProviderUnavailable):
            await asked(provider)
        await provider.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}', ProviderUnavailable),
        (b'{"type": "error", "error": {"type": "rate_limit_error", "message": "busy"}}', RateLimited),
    ],
)
def test_an_error_inside_a_stream_counts_as_what_it_says(body: bytes, expected: type[ProviderError]) -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        with pytest.raises(expected):
            await asked(provider)

    event = b"event: error\ndata: " + body + b"\n\n"
    against("anthropic", Answer([*anthropic_events("let me see")[:4], event]), check=check)
    against("openai", Answer([*chat_chunks("let me see")[:2], b"data: " + body + b"\n\n"]), check=check)


def test_calls_without_ids_of_their_own_get_some() -> None:
    async def check(provider: Provider, server: ModelServer) -> None:
        reply = (await asked(provider))[-1]
        assert isinstance(reply, Reply)
        ids = [call.id for call in reply.calls]
        assert all(ids)
        assert len(set(ids)) == 3

    calls = [("", "echo", "{}"), ("same", "echo", "{}"), ("same", "echo", "")]
    against("openai", Answer(chat_chunks(calls=calls)), check=check)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_that_are_no_json_are_answered_and_do_not_poison_the_session(kind: str) -> None:
    async def scenario() -> None:
        broken = streamed(kind, calls=[("call_1", "echo", '{"text": ')])
        async with serving(Answer(broken), Answer(streamed(kind, "sorry"))) as server:
            scene = await begin(play(), [Echo()])
            runtime = Runtime(scene.store, provider_of(kind, server), [Echo()])
            assert (await (await runtime.start("h", "hello")).result()).text == "sorry"
            answer = (await scene.store.sessions.messages("h"))[2].tool_results[0]
            assert "JSON object" in answer.text
            require_valid(kind, server.requests[1])
            await runtime.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_over_the_real_sdk_survives_limits_and_broken_streams(kind: str) -> None:
    async def scenario() -> None:
        answers = [
            Answer.error(429, "rate_limit_error", "slow down", retry_after="3"),
            Answer(streamed(kind, "let me see", CALLS)[:4], ending="cut"),
            Answer(streamed(kind, "let me see", CALLS)),
            Answer.error(529, "overloaded_error", "overloaded"),
            Answer(streamed(kind, "done")),
        ]
        async with serving(*answers) as server:
            scene = await begin(play(), [Echo()])
            provider = provider_of(kind, server)
            runtime = Runtime(scene.store, provider, [Echo()], clock=scene.clock)
            result = await (await runtime.start("h", "hello")).result()
            assert (result.text, result.iterations) == ("done", 2)
            assert scene.clock.slept[0] == 3
            assert len(server.requests) == 5
            for request in server.requests:
                require_valid(kind, request)
            await runtime.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_stream_lets_go_of_its_connection(kind: str) -> None:
    async def scenario() -> None:
        async with serving(Answer(streamed(kind, "let me see")[:5], ending="stall")) as server:
            scene = await begin(play())
            runtime = Runtime(scene.store, provider_of(kind, server))
            run = await runtime.start("h", "hello")
            async for event in run.feed.read():
                if isinstance(event, TextDelta):
                    break
            await run.cancel()
            entry = (await scene.store.sessions.messages("h"))[-1]
            assert entry.mark == "partial"
            assert "let me see".startswith(entry.text)
            await runtime.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({}, None),
    ],
)
def test_the_wish_of_a_server_is_read_or_left(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_environment_reaches_a_server(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "OPENAI_API_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
    ):
        monkeypatch.setenv(name, "from-the-environment")

    async def check(provider: Provider, server: ModelServer) -> None:
        await asked(provider)
        assert "from-the-environment" not in "".join(server.headers[0].values())

    against(kind, Answer(streamed(kind, "ok")), check=check)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_sdk_is_named_with_the_extra_that_brings_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)

    async def check(provider: Provider, server: ModelServer) -> None:
        with pytest.raises(SdkMissing) as missing:
            await asked(provider)
        assert missing.value.extra == kind

    against(kind, check=check)
