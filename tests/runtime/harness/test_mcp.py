"""mcp: declared servers give tools; a broken one gives an error result, an idle one is shut down."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import Context, ToolOutput
from crabstore.runtime.harness.mcp import Limits, McpHarness
from crabstore.runtime.harness.mcp_connection import Broken
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.runtime.tools import Tool
from crabstore.store.agents import AgentConfig, McpServer

from ..scene import FakeClock, begin, call, heard, play
from . import tool_server
from .rig import answer, context, played, reported, results

SCRIPT = str(Path(__file__).with_name("tool_server.py"))
SECRET = "hunter2-of-the-server"


def config(*servers: McpServer, name: str = "a") -> AgentConfig:
    return AgentConfig(name=name, id=name, model="m", mcps=list(servers))


def served(name: str = "t", **more: Any) -> McpServer:
    return McpServer(name=name, command="fake", **more)


class Clockwork(FakeClock):
    """Time that only the test moves: a sleeper wakes when `pass_` went past its moment."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.seconds + seconds, woken))
        await woken.wait()

    async def pass_(self, seconds: float) -> None:
        self.seconds += seconds
        for moment, woken in self._sleepers:
            if moment <= self.seconds:
                woken.set()
        for _ in range(5):
            await asyncio.sleep(0)


class FakeServer:
    """A connection that answers with its number, and breaks when it is told to."""

    def __init__(self, number: int, tools: list[Tool]) -> None:
        self.number = number
        self.tools = tools
        self.instructions = ""
        self.closed = False
        self.breaks = False
        self.ended = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutput:
        await self.gate.wait()
        if self.breaks:
            raise Broken("it went away")
        return ToolOutput(f"{name} of {self.number}")

    async def close(self) -> None:
        self.ended = True


class Servers:
    """A `Connect` that keeps what it opened."""

    def __init__(self, *tools: str) -> None:
        self.opened: list[FakeServer] = []
        self.tools = [Tool(name) for name in tools or ("say",)]
        self.refuses = False

    async def __call__(self, declared: McpServer, limits: Limits) -> FakeServer:
        await asyncio.sleep(0)
        if self.refuses or declared.command == "broken":
            raise Broken("it does not start")
        self.opened.append(FakeServer(len(self.opened), self.tools))
        return self.opened[-1]

    @property
    def running(self) -> list[int]:
        return [server.number for server in self.opened if not server.ended]


def fake(*tools: str, idle: float = 300) -> tuple[McpHarness, Servers, Clockwork]:
    servers, clock = Servers(*tools), Clockwork()
    return McpHarness(limits=Limits(idle=idle), clock=clock, connect=servers), servers, clock


async def say(harness: McpHarness, where: Context, name: str = "t__say") -> ToolOutput:
    return await answer(harness, where, name)


# -- what a server gives --


def test_a_server_over_stdio_gives_its_tools_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        server = McpServer(name="t", command=sys.executable, args=[SCRIPT], env={"TOKEN": SECRET})
        harness = McpHarness()
        scene, run = await played(
            [harness],
            *(call("t__add", a="1", b="2"), call("t__odd_name"), call("t__fail"), call("t__picture")),
            *(call("t__mutter"), call("t__count"), call("t__die"), call("t__count"), call("t__none")),
            store=store,
            agent=config(server),
        )
        assert [tool.name for tool in scene.provider.requests[0].tools][:3] == [
            "t__add",
            "t__count",
            "t__odd_name",
        ]
        assert scene.provider.requests[0].system == "About the tools t__*:\nAdd whenever you can."
        assert [result.text for result in await results(store)] == [
            *(
                "3",
                "odd, started with hun",
                "Error executing tool fail: that went wrong",
                "[image: image/png]",
            ),
            *("said", "1", "the server 't' failed: Connection closed", "1"),
            "there is no tool 't__none' here",
        ]
        assert await reported(run) == []
        await harness.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    assert SECRET not in caplog.text


def test_a_server_over_http_is_asked_with_its_auth(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with http_server() as (url, seen):
            store = VolatileBackend()
            harness = McpHarness()
            await played(
                [harness],
                *(call("web__add", a="1", b="2"), call("web__fail")),
                store=store,
                agent=config(McpServer(name="web", url=url, auth=SECRET)),
            )
            texts = [result.text for result in await results(store)]
            assert texts == ["3", "Error executing tool fail: that went wrong"]
            await harness.close()
            assert seen == {f"Bearer {SECRET}"}

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    assert SECRET not in caplog.text


def test_a_server_that_refuses_the_auth_is_reported_without_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with http_server(accepts="Basic right") as (url, seen):
            wrong = McpServer(name="web", url=url, auth=f"Basic {SECRET}")
            harness = McpHarness()
            scene, run = await played([harness], store=VolatileBackend(), agent=config(wrong))
            assert list(scene.provider.requests[0].tools) == []
            [(name, hook, text)] = await reported(run)
            assert (name, hook) == ("mcp", "on_resolve_agent")
            assert "web" in text
            assert SECRET not in text
            assert seen == {f"Basic {SECRET}"}
            await harness.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    assert SECRET not in caplog.text


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@asynccontextmanager
async def http_server(accepts: str = "") -> AsyncIterator[tuple[str, set[str]]]:
    """The tool server over streamable HTTP; its address, and the Authorization that was sent to it."""
    seen: set[str] = set()
    inner = tool_server.server.streamable_http_app()

    async def guarded(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            auth = dict(scope["headers"]).get(b"authorization", b"").decode()
            seen.add(auth)
            if accepts and auth != accepts:
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": auth.encode()})
                return
        await inner(scope, receive, send)

    async with listening(guarded) as url:
        yield url, seen


App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


@asynccontextmanager
async def listening(app: App) -> AsyncIterator[str]:
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=0))
    serving = asyncio.create_task(server.serve([place]))
    try:
        yield f"http://127.0.0.1:{place.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving


class OldServer:
    """Speaks the protocol with sessions, answers `say`, and hangs in `hang` and when it is said goodbye to."""

    def __init__(self) -> None:
        self.opened = 0
        self.goodbyes = 0
        self.forgets = False
        """Whether it no longer knows its session, as after a restart."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return None
        if scope["method"] == "DELETE":
            self.goodbyes += 1
            await asyncio.Event().wait()
        if scope["method"] != "POST":
            return await reply(send, 405)
        message = json.loads((await receive())["body"])
        method, session = message["method"], [(b"mcp-session-id", str(self.opened).encode())]
        if "id" not in message:
            return await reply(send, 202)
        if method == "initialize":
            self.opened, self.forgets = self.opened + 1, False
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
            return await reply(send, 200, message, {"protocolVersion": "2025-06-18", **about}, session)
        if method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("say", "hang")]
            return await reply(send, 200, message, {"tools": tools})
        if method == "tools/call" and not self.forgets:
            if message["params"]["name"] == "hang":
                await asyncio.Event().wait()
            said = {"content": [{"type": "text", "text": f"said {self.opened}"}]}
            return await reply(send, 200, message, said)
        return await reply(send, 404)


async def reply(
    send: Send, status: int, message: Any = None, result: object = None, headers: Any = ()
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() if message else b""
    head = [(b"content-type", b"application/json"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def test_a_server_that_hangs_over_http_is_let_go_of_and_one_that_was_restarted_is_found_again() -> None:
    async def scenario() -> None:
        old = OldServer()
        async with listening(old) as url:
            harness = McpHarness(limits=Limits(call=1.5, close=0.1))
            agent = config(McpServer(name="t", url=url))
            await harness.on_resolve_agent(agent)
            assert (await say(harness, context(agent))).text == "said 1"
            old.forgets = True
            assert (await say(harness, context(agent))).is_error
            assert (await say(harness, context(agent))).text == "said 2"
            assert "no answer in 1.5 s" in (await say(harness, context(agent), "t__hang")).text
            assert (await say(harness, context(agent))).text == "said 3"
            await harness.close()
        assert old.goodbyes >= 2

    asyncio.run(scenario())


# -- servers that fail --


@pytest.mark.parametrize(
    "broken",
    [
        McpServer(name="t", command="no-such-program"),
        McpServer(name="t", command="/bin/sh", args=["-c", "exit 3"]),
        McpServer(name="t", command="/bin/sh", args=["-c", "echo junk; cat > /dev/null"]),
        McpServer(name="t", url="http://127.0.0.1:1/mcp"),
        McpServer(name="t", url="no url"),
        McpServer(name="t", command="a\x00b"),
        McpServer(name="t"),
        McpServer(name="t", command="true", url="http://127.0.0.1:1/mcp"),
    ],
    ids=["missing", "exits", "silent", "unreachable", "no-url", "nul", "neither", "both"],
)
def test_a_server_that_does_not_start_is_reported_and_the_run_goes_on(broken: McpServer) -> None:
    async def scenario() -> None:
        harness = McpHarness(limits=Limits(connect=2 if broken.url else 0.5))
        scene, run = await played([harness], call("t__add"), store=VolatileBackend(), agent=config(broken))
        [(name, hook, text)] = await reported(run)
        assert (name, hook) == ("mcp", "on_resolve_agent")
        assert text.startswith("the server 't' is not available: ")
        assert (await results(scene.store))[0].is_error
        assert harness.at_work == frozenset()
        await harness.close()

    asyncio.run(scenario())


def test_without_the_sdk_a_server_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    async def scenario() -> None:
        harness = McpHarness()
        server = McpServer(name="t", command="true")
        _, run = await played([harness], store=VolatileBackend(), agent=config(server))
        assert "crabstore[mcp]" in (await reported(run))[0][2]
        await harness.close()

    asyncio.run(scenario())


def test_a_server_that_does_not_start_leaves_no_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = f"echo $$ > {tmp_path}/pid; cat > /dev/null"
        silent = McpServer(name="t", command="/bin/sh", args=["-c", script])
        harness = McpHarness(limits=Limits(connect=1))
        await played([harness], store=VolatileBackend(), agent=config(silent))
        await harness.close()

    asyncio.run(scenario())
    assert ended(int((tmp_path / "pid").read_text()))


def test_one_broken_server_does_not_take_the_others_along() -> None:
    async def scenario() -> None:
        harness, _, _ = fake()
        broken = McpServer(name="bad", command="broken")
        scene, run = await played(
            [harness], call("t__say"), store=VolatileBackend(), agent=config(broken, served())
        )
        assert [result.text for result in await results(scene.store)] == ["say of 0"]
        assert [text for *_, text in await reported(run)] == [
            "the server 'bad' is not available: it does not start"
        ]
        await harness.close()

    asyncio.run(scenario())


def test_a_crash_is_an_error_result_and_the_next_call_reconnects() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        agent = config(served())
        await harness.on_resolve_agent(agent)
        servers.opened[0].breaks = True
        crashed = await say(harness, context(agent))
        assert crashed == ToolOutput("the server 't' failed: it went away", is_error=True)
        assert (await say(harness, context(agent))).text == "say of 1"
        servers.opened[1].closed = True  # it died while nobody called: no call is lost
        assert (await say(harness, context(agent))).text == "say of 2"
        assert servers.running == [2]
        await harness.close()

    asyncio.run(scenario())


def test_without_auto_restart_a_crashed_server_stays_down() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        agent = config(served(auto_restart=False))
        await harness.on_resolve_agent(agent)
        servers.opened[0].breaks = True
        for _ in range(2):
            assert (await say(harness, context(agent))).is_error
        assert "auto_restart is off" in (await say(harness, context(agent))).text
        assert len(servers.opened) == 1
        await harness.on_release_agent(agent.id)
        await harness.on_resolve_agent(agent)  # a new beginning
        assert (await say(harness, context(agent))).text == "say of 1"
        await harness.close()

    asyncio.run(scenario())


def test_a_reconnection_that_fails_is_an_error_result_and_is_tried_again() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        agent = config(served())
        await harness.on_resolve_agent(agent)
        servers.opened[0].closed = servers.refuses = True
        assert "it does not start" in (await say(harness, context(agent))).text
        servers.refuses = False
        assert (await say(harness, context(agent))).text == "say of 1"
        await harness.close()

    asyncio.run(scenario())


def test_a_tool_that_is_gone_after_a_reconnection_is_an_error_result() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake("say", "go")
        agent = config(served())
        await harness.on_resolve_agent(agent)
        servers.opened[0].closed, servers.tools = True, [Tool("go")]
        assert "any more" in (await say(harness, context(agent))).text
        assert (await say(harness, context(agent), "t__go")).text == "go of 1"
        await harness.close()

    asyncio.run(scenario())


def test_a_call_that_is_never_answered_ends_with_its_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = McpServer(name="t", command=sys.executable, args=[SCRIPT, str(tmp_path / "pid")])
        harness = McpHarness(limits=Limits(call=0.3))
        scene, _ = await played([harness], call("t__hang"), store=VolatileBackend(), agent=config(server))
        [hung] = await results(scene.store)
        assert hung == ToolOutput("the server 't' failed: no answer in 0.3 s", is_error=True)
        assert ended(int((tmp_path / "pid").read_text()))
        await harness.close()

    asyncio.run(scenario())


def test_a_cancelled_run_leaves_the_server_to_the_next_one() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        turns = [ScriptedTurn(text="hm", calls=[call("t__say")]), ScriptedTurn(text="ok")]
        scene = await begin(play(*turns, repeat=True), [harness], agent=config(served()))
        servers_gate = asyncio.Event()
        run = await scene.run()
        await heard(run, "hm")
        servers.opened[0].gate = servers_gate
        await run.cancel()
        assert servers.running == [0]
        servers_gate.set()
        await (await scene.run()).result()
        assert servers.running == [0]
        await harness.close()
        assert servers.running == []

    asyncio.run(scenario())


# -- names --


def test_names_are_what_every_provider_accepts_and_stay_apart() -> None:
    async def scenario() -> None:
        long = "x" * 80
        harness, _, _ = fake("a.b", "a_b", "ä", long, long + "y")
        agent = config(served(name="my server"))
        await harness.on_resolve_agent(agent)
        names = [tool.name for tool in harness.schema(agent)]
        assert names[0] == "my_server__a_b"
        assert len(set(names)) == 5
        assert all(len(name) <= 64 and name.isascii() and " " not in name for name in names)
        said = [(await say(harness, context(agent), name)).text for name in names]
        assert said == [f"{name} of 0" for name in ("a.b", "a_b", "ä", long, long + "y")]
        await harness.close()

    asyncio.run(scenario())


def test_of_two_servers_with_one_name_the_first_counts_and_the_agent_is_told() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        agent = config(served(), served(args=["other"]))
        for _ in range(2):
            scene, run = await played([harness], call("t__say"), store=VolatileBackend(), agent=agent)
            assert (await results(scene.store))[0].text.startswith("say of")
            assert "2 servers are called 't'" in (await reported(run))[0][2]
        await harness.close()
        assert servers.running == []

    asyncio.run(scenario())


# -- sharing and letting go --


def test_runs_of_one_agent_share_a_server_and_agents_do_not() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        one, two = config(served(), name="one"), config(served(), name="two")
        for agent in (one, one, two):
            await harness.on_resolve_agent(agent)
        assert (await say(harness, context(one))).text == "say of 0"
        assert (await say(harness, context(two))).text == "say of 1"
        assert harness.at_work == {"one", "two"}
        assert servers.running == [0, 1]
        await harness.close()

    asyncio.run(scenario())


def test_an_idle_server_is_shut_down_and_the_next_call_starts_it_again() -> None:
    async def scenario() -> None:
        harness, servers, clock = fake(idle=100)
        agent = config(served())
        await harness.on_resolve_agent(agent)
        await clock.pass_(60)
        await say(harness, context(agent))
        await clock.pass_(60)
        assert servers.running == [0], "it was called 60 seconds ago"
        await clock.pass_(60)
        assert servers.running == []
        assert [tool.name for tool in harness.schema(agent)] == ["t__say"]
        assert (await say(harness, context(agent))).text == "say of 1"
        await harness.close()

    asyncio.run(scenario())


def test_a_server_is_not_idle_while_it_answers() -> None:
    async def scenario() -> None:
        harness, servers, clock = fake(idle=100)
        agent = config(served())
        await harness.on_resolve_agent(agent)
        servers.opened[0].gate.clear()
        calling = asyncio.create_task(say(harness, context(agent)))
        await clock.pass_(1000)
        assert servers.running == [0]
        servers.opened[0].gate.set()
        assert (await calling).text == "say of 0"
        await clock.pass_(1000)
        await clock.pass_(1000)
        assert servers.running == []

    asyncio.run(scenario())


def test_a_server_outlives_a_run_and_is_held_no_longer_than_it_is_warm() -> None:
    async def scenario() -> None:
        harness, servers, clock = fake(idle=100)
        agent = config(served())
        await harness.on_resolve_agent(agent)
        await harness.on_release_agent(agent.id)
        assert harness.at_work == {agent.id}
        await harness.on_resolve_agent(agent)
        assert len(servers.opened) == 1
        await harness.on_release_agent(agent.id)
        await clock.pass_(101)
        assert (servers.running, harness.at_work) == ([], frozenset())

    asyncio.run(scenario())


def test_a_changed_declaration_replaces_its_server_and_a_withdrawn_one_ends() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        before, after = config(served()), config(served(args=["new"]))
        await harness.on_resolve_agent(before)
        await harness.on_resolve_agent(after)
        assert servers.running == [1]
        assert (await say(harness, context(before))).is_error, "this run was granted another server"
        assert (await say(harness, context(after))).text == "say of 1"
        await harness.on_resolve_agent(config())
        assert servers.running == []
        await harness.close()

    asyncio.run(scenario())


def test_a_forgotten_agent_and_a_closed_runtime_leave_nothing_running() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        for name in ("one", "two", "three"):
            await harness.on_resolve_agent(config(served(), name=name))
        await harness.on_release_agent("one")
        await harness.on_forget_agent("one")
        assert servers.running == [1, 2]
        await harness.close()
        assert (servers.running, harness.at_work) == ([], frozenset())

    asyncio.run(scenario())


def test_agents_without_servers_cost_nothing() -> None:
    async def scenario() -> None:
        harness, servers, _ = fake()
        for number in range(100):
            agent = config(name=str(number))
            await harness.on_resolve_agent(agent)
            assert harness.schema(agent) == []
        assert (harness.at_work, servers.opened) == (frozenset(), [])

    asyncio.run(scenario())


def ended(pid: int) -> bool:
    """Whether a process has ended, or does at once."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            return bool(select.select([process], [], [], 10)[0])
        finally:
            os.close(process)
    return True
