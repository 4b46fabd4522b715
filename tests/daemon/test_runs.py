"""Runs over the daemon: streamed, taken up again, steered, cancelled, many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from crabstore.answers.failures import Refusal
from crabstore.daemon.client import Event, path_of
from crabstore.daemon.home import Home

from .scene import SCRIPTED, Daemon, configured, daemon, ended, heard


def with_daemon(
    home: Home, test: Callable[[Daemon], Awaitable[None]], *turns: dict[str, Any], repeat: bool = True
) -> None:
    """Run a test against a daemon that has the agent `coder` and the session `h`."""

    async def run() -> None:
        configured(home, SCRIPTED, *turns, repeat=repeat)
        async with daemon(home) as there:
            await there.agent()
            await there.session("h")
            await test(there)

    asyncio.run(run())


def refused(error: pytest.ExceptionInfo[Refusal]) -> str:
    return error.value.failure.kind


def test_a_run_is_told_from_its_first_event_to_its_result(home: Home) -> None:
    async def test(there: Daemon) -> None:
        events = [event async for event in there.run("h", "hi")]
        assert [event.id for event in events] == list(range(len(events)))
        assert [event.kind for event in events] == [
            "run",
            "message",
            "text",
            "text",
            "message",
            "done",
            "result",
        ]
        assert events[0].data["session"] == "h"
        assert "".join(str(event.data["text"]) for event in events if event.kind == "text") == "Hello."
        assert events[-1].data == {
            "text": "Hello.",
            "stop_reason": "end_turn",
            "iterations": 1,
            "usage": {"output_tokens": 3},
            "untaken": [],
        }
        assert [message["text"] for message in await there.messages("h")] == ["hi", "Hello."]

    with_daemon(home, test, {"text": ["Hel", "lo."], "usage": {"output_tokens": 3}})


@pytest.mark.parametrize("seen", [-1, 0, 2, 5, 99])
def test_a_client_that_comes_back_goes_on_behind_what_it_saw(home: Home, seen: int) -> None:
    async def test(there: Daemon) -> None:
        events = [event async for event in there.run("h", "hi")]
        path = path_of("runs", str(events[0].data["run"]))
        again = [event async for event in there.client.stream("GET", path, after=seen)]
        assert again == [event for event in events if event.id > seen]

    with_daemon(home, test)


def test_a_client_that_comes_back_in_the_middle_hears_the_rest_as_it_happens(home: Home) -> None:
    async def test(there: Daemon) -> None:
        stream = there.run("h", "hi")
        begun = await heard(stream, "run")
        text = await heard(stream, "text")
        await stream.aclose()  # type: ignore[attr-defined]
        path = path_of("runs", str(begun.data["run"]))
        rest = there.client.stream("GET", path, after=text.id)
        there.provider.release("go")
        kinds = [event.kind async for event in rest]
        assert kinds == ["message", "done", "result"]

    with_daemon(home, test, {"text": "Wait", "wait": "go"})


def test_a_run_goes_on_when_nobody_listens(home: Home) -> None:
    async def test(there: Daemon) -> None:
        stream = there.run("h", "hi")
        await heard(stream, "text")
        await stream.aclose()  # type: ignore[attr-defined]
        there.provider.release("go")
        await there.served.daemon.runtime.drain()
        assert [message["text"] for message in await there.messages("h")] == ["hi", "Wait"]

    with_daemon(home, test, {"text": "Wait", "wait": "go"})


def test_a_message_in_the_middle_reaches_the_model_before_its_next_step(home: Home) -> None:
    async def test(there: Daemon) -> None:
        stream = there.run("h", "hi")
        await heard(stream, "text")
        await there.client.ask("POST", path_of("sessions", "h", "steer"), {"message": "stop that"})
        there.provider.release("go")
        assert (await ended(stream)).data["text"] == "As you say."
        said = [message["text"] for message in await there.messages("h")]
        assert said == ["hi", "Working", "stop that", "As you say."]

    with_daemon(home, test, {"text": "Working", "wait": "go"}, {"text": "As you say."})


def test_what_cannot_be_steered_says_so(home: Home) -> None:
    async def test(there: Daemon) -> None:
        with pytest.raises(Refusal) as caught:
            await there.client.ask("POST", path_of("sessions", "h", "steer"), {"message": "x"})
        assert refused(caught) == "not-running"
        with pytest.raises(Refusal) as caught:
            await there.client.ask("POST", path_of("sessions", "nope", "steer"), {"message": "x"})
        assert refused(caught) == "not-found"

    with_daemon(home, test)


def test_a_cancelled_run_says_so_and_keeps_what_had_arrived(home: Home) -> None:
    async def test(there: Daemon) -> None:
        stream = there.run("h", "hi")
        await heard(stream, "text")
        cancel = path_of("sessions", "h", "cancel")
        assert await there.client.ask("POST", cancel) == {"cancelled": {"session": "h", "running": True}}
        assert (await ended(stream)).data["stop_reason"] == "cancelled"
        assert await there.client.ask("POST", cancel) == {"cancelled": {"session": "h", "running": False}}
        marks = [(message["text"], message["mark"]) for message in await there.messages("h")]
        assert marks == [("hi", ""), ("Half", "partial")]

    with_daemon(home, test, {"text": "Half", "wait": "never"})


def test_a_session_that_has_a_run_queues_the_next_or_refuses_it(home: Home) -> None:
    async def test(there: Daemon) -> None:
        first = there.run("h", "one")
        await heard(first, "text")
        with pytest.raises(Refusal) as caught:
            await ended(there.run("h", "two", wait=False))
        assert refused(caught) == "session-busy"
        second = asyncio.create_task(ended(there.run("h", "three")))
        listed: Any = {}
        while not listed or listed["sessions"][0]["waiting"] == 0:
            listed = await there.client.ask("GET", path_of("runs"))
        there.provider.release("go")
        await ended(first)
        assert (await second).kind == "result"
        said = [message["text"] for message in await there.messages("h")]
        assert said == ["one", "Turn", "three", "Turn"]

    with_daemon(home, test, {"text": "Turn", "wait": "go"})


def test_a_run_that_fails_tells_why_and_hands_back_what_was_not_stored(home: Home) -> None:
    async def test(there: Daemon) -> None:
        last = await ended(there.run("h", "hi"))
        error: Any = last.data["error"]
        assert (error["kind"], error["exit"], error["provider"]) == ("provider-unauthorized", 10, "scripted")
        await there.agent("mute", model="nobody/m")
        await there.session("m", "mute")
        await there.client.ask("PUT", path_of("agents", "mute"), {"name": "mute", "model": "play/"})

    with_daemon(home, test, {"error": "unauthorized"})


@pytest.mark.parametrize(
    "message", ["", "  ", {"role": "assistant", "content": "x"}, {"role": "user", "content": []}, 7, None]
)
def test_a_message_that_says_nothing_is_refused(home: Home, message: object) -> None:
    async def test(there: Daemon) -> None:
        with pytest.raises(Refusal) as caught:
            await ended(there.client.stream("POST", path_of("sessions", "h", "runs"), {"message": message}))
        assert refused(caught) in ("usage", "bad-body")
        assert await there.messages("h") == []

    with_daemon(home, test)


def test_an_image_can_be_said(home: Home) -> None:
    async def test(there: Daemon) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
        said = {"role": "user", "content": [{"type": "image", "source": source}]}
        await ended(there.client.stream("POST", path_of("sessions", "h", "runs"), {"message": said}))
        assert (await there.messages("h"))[0]["message"] == said

    with_daemon(home, test)


def test_a_compaction_leaves_the_originals_searchable(home: Home) -> None:
    async def test(there: Daemon) -> None:
        await ended(there.run("h", "about bladderwrack"))
        answer: Any = await there.client.ask("POST", path_of("sessions", "h", "compact"))
        name = answer["compacted"]["archive"]
        entry: Any = await there.client.ask("GET", path_of("memory", name))
        assert (entry["entry"]["kind"], entry["entry"]["content"]) == ("archive", "In short.")
        found: Any = await there.client.ask("GET", path_of("search") + "?q=bladderwrack")
        assert [hit["session"]["handle"] for hit in found["hits"]] == ["h"]

    with_daemon(home, test, {"text": "In short."})


def test_a_deleted_session_has_no_run_any_more(home: Home) -> None:
    async def test(there: Daemon) -> None:
        stream = there.run("h", "hi")
        await heard(stream, "text")
        await there.client.ask("DELETE", path_of("sessions", "h"))
        assert (await ended(stream)).data["stop_reason"] == "cancelled"
        with pytest.raises(Refusal) as caught:
            await there.messages("h")
        assert refused(caught) == "not-found"

    with_daemon(home, test, {"text": "Half", "wait": "never"})


def test_a_deleted_agent_has_no_run_any_more(home: Home) -> None:
    async def test(there: Daemon) -> None:
        stream = there.run("h", "hi")
        await heard(stream, "text")
        await there.client.ask("DELETE", path_of("agents", "coder"))
        assert (await ended(stream)).data["stop_reason"] == "cancelled"

    with_daemon(home, test, {"text": "Half", "wait": "never"})


def test_ended_runs_are_kept_for_a_while_and_then_let_go(home: Home) -> None:
    async def test(there: Daemon) -> None:
        first = (await heard(there.run("h", "0"), "run")).data["run"]
        for number in range(1, 40):
            await ended(there.run("h", str(number)))
        with pytest.raises(Refusal) as caught:
            await ended(there.client.stream("GET", path_of("runs", str(first))))
        assert refused(caught) == "not-found"
        listed: Any = await there.client.ask("GET", path_of("runs"))
        assert len(listed["runs"]) <= 34

    with_daemon(home, test)


def test_a_client_that_does_not_read_its_stream_holds_up_nobody(home: Home) -> None:
    async def test(there: Daemon) -> None:
        _, deaf = await asyncio.open_unix_connection(home.socket, limit=1)
        body = b'{"message":"hi"}'
        head = "POST /v1/sessions/h/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        deaf.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await deaf.drain()
        while not (listed := await there.client.ask("GET", path_of("runs")))["runs"]:
            pass
        assert isinstance(listed["runs"], list)
        run = listed["runs"][0]["run"]
        assert (await ended(there.client.stream("GET", path_of("runs", run)))).kind == "result"
        deaf.close()

    with_daemon(home, test, {"text": ["x" * 1_000_000] * 8})


def test_a_hundred_clients_and_twenty_runs_lose_nothing_and_mix_nothing(home: Home) -> None:
    async def test(there: Daemon) -> None:
        sessions = [await there.session(f"s{number}") for number in range(20)]

        async def talk(client: int) -> list[Event]:
            handle = sessions[client % 20]
            return [event async for event in there.run(handle, f"client {client}")]

        async def look(client: int) -> None:
            await there.client.ask("PUT", path_of("memory", f"m{client}"), {"content": f"crab {client}"})
            await there.client.ask("GET", path_of("search") + "?q=client")

        looks = asyncio.gather(*(look(client) for client in range(100)))
        told = await asyncio.gather(*(talk(client) for client in range(100)))
        await looks
        for client, events in enumerate(told):
            assert [event.id for event in events] == list(range(len(events)))
            assert {json.dumps(event.data["session"]) for event in events[:1]} == {f'"s{client % 20}"'}
            said = [event.data["text"] for event in events if event.kind == "message"]
            assert said[0] == f"client {client}" and events[-1].kind == "result"
        await every_session_is_whole(there, sessions)
        listed: Any = await there.client.ask("GET", path_of("memory"))
        assert len(listed["memory"]) == 100

    async def every_session_is_whole(there: Daemon, sessions: list[str]) -> None:
        for number, handle in enumerate(sessions):
            messages = [message["text"] for message in await there.messages(handle)]
            asked = messages[::2]
            assert sorted(asked) == sorted(f"client {client}" for client in range(number, 100, 20))
            assert messages[1::2] == ["one two"] * 5

    with_daemon(home, test, {"text": ["one ", "two"]})
