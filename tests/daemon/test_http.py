"""What can be asked, and what is answered: every operation, hostile names, and the description of it all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from crabstore.answers.failures import Refusal
from crabstore.daemon.api.app import LOCAL, OPERATIONS, build
from crabstore.daemon.api.description import describe
from crabstore.daemon.api.operations import Operations
from crabstore.daemon.client import path_of
from crabstore.daemon.home import Home

from .scene import Daemon, Held, configured, daemon, ended, heard

SKILL = "---\nname: deploy-app\ndescription: How we deploy.\n---\nPush, then watch.\n"


def with_daemon(home: Home, test: Callable[[Daemon], Awaitable[None]]) -> None:
    async def run() -> None:
        configured(home)
        async with daemon(home) as there:
            await test(there)

    asyncio.run(run())


async def refused(there: Daemon, method: str, path: str, body: object = None) -> Any:
    """The error that a request is answered with."""
    with pytest.raises(Refusal) as caught:
        await there.client.ask(method, path, body)
    return caught.value.failure


@pytest.mark.parametrize("operations", [OPERATIONS, LOCAL])
def test_the_description_is_of_the_routes_that_there_are(shared: Held, operations: Operations) -> None:
    async def test(there: Daemon) -> None:
        app = build(there.served.daemon, operations)
        routes = {
            (method.lower(), route.path)
            for route in app.routes
            if isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD"}
        }
        paths: Any = describe(operations)["paths"]
        described = {(method, path) for path, members in paths.items() for method in members}
        assert described == routes - {("get", "/openapi.json")}

    shared.run(test)


def test_the_description_names_parameters_and_bodies_and_refers_to_nothing_missing(shared: Held) -> None:
    async def test(there: Daemon) -> None:
        page: Any = await there.client.ask("GET", "/openapi.json")
        run = page["paths"]["/v1/sessions/{handle}/runs"]["post"]
        assert run["operationId"] == "start_run" and "text/event-stream" in run["responses"]["200"]["content"]
        assert [parameter["name"] for parameter in run["parameters"]] == ["handle"]
        assert "message" in str(page["components"]["schemas"]["NewRun"])
        search = page["paths"]["/v1/search"]["get"]["parameters"]
        assert {"name": "q", "in": "query", "required": True, "schema": {"type": "string"}} in search
        names = [op["operationId"] for path in page["paths"].values() for op in path.values()]
        assert len(set(names)) == len(names)
        for ref in references(page):
            assert ref.removeprefix("#/components/schemas/") in page["components"]["schemas"]

    shared.run(test)


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for member in value.values() for ref in references(member)]
    return [ref for member in value for ref in references(member)] if isinstance(value, list) else []


def test_agents_come_change_and_go(home: Home) -> None:
    async def test(there: Daemon) -> None:
        ask = there.client.ask
        made: Any = await ask(
            "POST", "/v1/agents", {"name": "coder", "description": "You code.", "model": "m"}
        )
        assert made["agent"]["max_iterations"] == 16
        assert (await refused(there, "POST", "/v1/agents", {"name": "coder"})).kind == "name-taken"
        body = {"name": "Coder", "max_iterations": 3, "harnesses": [{"name": "os", "root": "/tmp"}]}
        changed: Any = await ask("PUT", "/v1/agents/coder", body)
        assert changed["agent"]["id"] == made["agent"]["id"]
        assert changed["agent"]["description"] == "" and changed["agent"]["harnesses"][0]["root"] == "/tmp"
        await ask("PUT", "/v1/default-agent", {"agent": "Coder"})
        listed: Any = await ask("GET", "/v1/agents")
        assert listed["default"] == made["agent"]["id"] and listed["agents"][0]["default"] is True
        shown: Any = await ask("GET", path_of("agents", made["agent"]["id"]))
        assert shown["agent"]["name"] == "Coder"
        assert await ask("PUT", "/v1/default-agent", {"agent": None}) == {"default": None}
        await ask("DELETE", "/v1/agents/Coder")
        assert (await refused(there, "GET", "/v1/agents/Coder")).kind == "not-found"

    with_daemon(home, test)


def test_sessions_are_opened_found_named_read_and_deleted(home: Home) -> None:
    async def test(there: Daemon) -> None:
        ask = there.client.ask
        assert (await refused(there, "POST", "/v1/sessions", {})).kind == "no-default-agent"
        await there.agent()
        await ask("PUT", "/v1/default-agent", {"agent": "coder"})
        opened: Any = await ask(
            "POST", "/v1/sessions", {"title": "Retry", "root": "/src", "created_by": "ada"}
        )
        handle = opened["session"]["handle"]
        again: Any = await ask("POST", "/v1/sessions", {"handle": handle, "created_by": "eve"})
        assert again["session"]["created_by"] == "ada"
        await ended(there.run(handle, "why does it retry?"))
        await ask("PATCH", path_of("sessions", handle[:6]), {"title": "Retry storm"})
        shown: Any = await ask("GET", path_of("sessions", handle[:6]))
        assert (shown["session"]["title"], shown["session"]["message_count"]) == ("Retry storm", 2)
        part: Any = await ask("GET", path_of("sessions", handle, "messages") + "?start=1")
        assert [message["position"] for message in part["messages"]] == [1]
        trace: Any = await ask("GET", path_of("sessions", handle, "events"))
        assert [line["event"] for line in trace["events"]] == ["done"]
        for number in range(3):
            await there.session(f"s{number}")
        page: Any = await ask("GET", "/v1/sessions?limit=2")
        rest: Any = await ask("GET", f"/v1/sessions?limit=2&after={quote(page['next'])}")
        assert len({row["handle"] for row in page["sessions"] + rest["sessions"]}) == 4
        assert rest["next"] is None
        only: Any = await ask("GET", "/v1/sessions?project=/src")
        assert [row["handle"] for row in only["sessions"]] == [handle]
        found: Any = await ask("GET", "/v1/search?q=retry&agent=coder&role=user")
        assert found["hits"][0]["open"] == f"/v1/sessions/{handle}/messages?start=0"
        gone: Any = await ask("DELETE", path_of("sessions", handle))
        assert gone["deleted"]["messages"] == 2
        assert (await refused(there, "DELETE", path_of("sessions", handle))).kind == "not-found"

    with_daemon(home, test)


def test_memory_and_skills_are_kept_found_and_forgotten(home: Home) -> None:
    async def test(there: Daemon) -> None:
        ask = there.client.ask
        await ask("PUT", "/v1/memory/db", {"content": "We use Postgres.", "aliases": ["database"]})
        assert (await refused(there, "PUT", "/v1/memory/x", {"content": " "})).kind == "usage"
        found: Any = await ask("GET", "/v1/memory-search?q=database")
        assert [hit["entry"]["name"] for hit in found["hits"]] == ["db"]
        listed: Any = await ask("GET", "/v1/memory?kind=note")
        assert len(listed["memory"]) == 1
        await ask("DELETE", "/v1/memory/db")
        assert (await refused(there, "GET", "/v1/memory/db")).kind == "not-found"
        await ask("POST", "/v1/skills", {"body": SKILL})
        assert (await refused(there, "POST", "/v1/skills", {"body": "no"})).kind == "invalid-skill"
        skills: Any = await ask("GET", "/v1/skills")
        assert skills == {"skills": [{"name": "deploy-app", "description": "How we deploy."}]}
        shown: Any = await ask("GET", "/v1/skills/deploy-app")
        assert shown["skill"]["body"] == SKILL
        await ask("DELETE", "/v1/skills/deploy-app")
        assert (await refused(there, "DELETE", "/v1/skills/deploy-app")).kind == "not-found"

    with_daemon(home, test)


NAMES = [
    "..",
    "../..",
    "../../etc/passwd",
    "a/../b",
    "/etc/passwd",
    "a/messages",
    ".",
    "%2e%2e",
    "%",
    "a?b#c",
    "\x00",
    "é 漢字",
    "a;b,c&d=e",
    "~",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name_and_never_a_path(shared: Held, name: str) -> None:
    async def test(there: Daemon) -> None:
        handle: Any = await there.client.ask("POST", "/v1/sessions", {"handle": name, "agent": "coder"})
        assert handle["session"]["handle"] == name
        await ended(there.run(name, "crab"))
        assert len(await there.messages(name)) == 2
        shown: Any = await there.client.ask("GET", path_of("sessions", name))
        assert shown["session"]["handle"] == name
        before = sorted(path.name for path in there.home.path.parent.rglob("*"))
        if name != "\x00":
            await there.client.ask("PUT", path_of("memory", name), {"content": "crab"})
            entry: Any = await there.client.ask("GET", path_of("memory", name))
            assert entry["entry"]["name"] == name
        assert sorted(path.name for path in there.home.path.parent.rglob("*")) == before
        await there.client.ask("DELETE", path_of("sessions", name))

    shared.run(test)


@pytest.mark.parametrize(
    ("method", "path", "body", "kind"),
    [
        ("GET", "/", None, "no-such-path"),
        ("GET", "/v1", None, "no-such-path"),
        ("GET", "/v1/agents/", None, "no-such-path"),
        ("GET", "/v1//agents", None, "no-such-path"),
        ("GET", "/V1/agents", None, "no-such-path"),
        ("PATCH", "/v1/agents", {}, "bad-method"),
        ("POST", "/v1/agents", {"nme": "x"}, "bad-body"),
        ("POST", "/v1/agents", {"name": 7}, "bad-body"),
        ("POST", "/v1/agents", ["name"], "bad-body"),
        ("POST", "/v1/agents", None, "bad-body"),
        ("POST", "/v1/agents", {"name": ""}, "usage"),
        ("POST", "/v1/agents", {"name": "a\nb"}, "usage"),
        ("POST", "/v1/agents", {"name": "x", "tool_choice": {"a": [1]}, "mcps": [{}]}, "bad-body"),
        ("GET", "/v1/search", None, "bad-query"),
        ("GET", "/v1/search?q=x&limit=0", None, "bad-query"),
        ("GET", "/v1/search?q=x&limit=1e9", None, "bad-query"),
        ("GET", "/v1/search?q=x&colour=red", None, "bad-query"),
        ("GET", "/v1/search?q=x&agent=nobody", None, "not-found"),
        ("GET", "/v1/sessions?after=nonsense", None, "usage"),
        ("GET", "/v1/memory?kind=dream", None, "bad-query"),
        ("GET", "/v1/sessions/x/messages?start=-1", None, "bad-query"),
        ("GET", "/v1/sessions/nobody", None, "not-found"),
        ("GET", "/v1/runs/nobody", None, "not-found"),
        ("POST", "/v1/store/commit", {"expected": [], "writes": [[9, b"k", b"v"]], "added": []}, "bad-body"),
        ("POST", "/v1/store/commit", {"expected": [], "writes": [[0, b"k", b"v"]], "added": []}, "usage"),
    ],
)
def test_what_makes_no_sense_is_refused_by_kind(
    shared: Held, method: str, path: str, body: object, kind: str
) -> None:
    async def test(there: Daemon) -> None:
        failure = await refused(there, method, path, body)
        assert failure.kind == kind and failure.message

    shared.run(test)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40))
def test_any_query_finds_or_finds_nothing(shared: Held, text: str) -> None:
    async def test(there: Daemon) -> Any:
        query = quote(text.encode("utf-8", errors="replace"), safe="")
        return await there.client.ask("GET", f"/v1/search?q={query}")

    assert shared.run(test)["complete"] is True


def test_health_and_metrics_tell_what_goes_on(home: Home) -> None:
    async def test(there: Daemon) -> None:
        await there.agent()
        await ended(there.run(await there.session("h"), "hi"))
        health: Any = await there.client.ask("GET", "/v1/health")
        assert (health["status"], health["home"], health["config_error"]) == ("ok", str(home.path), "")
        await there.client.ask("POST", "/v1/store/sync")
        health = await there.client.ask("GET", "/v1/health")
        assert health["store"]["not_synced"] == 0 and health["store"]["size"] > 0
        await there.client.ask("POST", "/v1/store/checkpoint")
        page = await metrics(home)
        assert page['crabstore_runs_total{stop_reason="end_turn"}'] == 1
        assert page["crabstore_sessions_working"] == 0
        assert page["crabstore_store_size_bytes"] >= page["crabstore_store_live_bytes"] > 0
        assert (
            page['crabstore_loop_lag_seconds_bucket{le="+Inf"}'] == page["crabstore_loop_lag_seconds_count"]
        )
        assert page['crabstore_requests_total{status="200"}'] >= 5

    with_daemon(home, test)


async def metrics(home: Home) -> dict[str, float]:
    reader, writer = await asyncio.open_unix_connection(home.socket)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"text/plain; version=0.0.4" in head
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_defect_ends_its_request_and_nothing_else(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(there: Daemon) -> None:
        async def broken() -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(there.served.daemon.store.agents, "configs", broken)
        assert (await refused(there, "GET", "/v1/agents")).kind == "defect"
        assert (await there.client.ask("GET", "/v1/health"))["status"] == "ok"

    with_daemon(home, test)


def test_the_indexes_are_built_anew_while_the_daemon_serves(home: Home) -> None:
    async def test(there: Daemon) -> None:
        await there.agent()
        for number in range(5):
            await ended(there.run(await there.session(f"h{number}"), "bladderwrack"))
        stream = there.client.stream("POST", "/v1/store/reindex")
        assert (await heard(stream, "result")).data == {"sessions": 5}
        found: Any = await there.client.ask("GET", "/v1/search?q=bladderwrack")
        assert len(found["hits"]) == 5
        freed: Any = await there.client.ask("POST", "/v1/store/compact", {"erase": True})
        assert freed["compacted"]["freed"] > 0
        found = await there.client.ask("GET", "/v1/search?q=bladderwrack")
        assert len(found["hits"]) == 5

    with_daemon(home, test)
