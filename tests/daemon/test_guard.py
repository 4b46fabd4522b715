"""Who may ask at all: tokens, hosts, origins, sizes, and bytes that are no HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from crabstore.daemon.home import Home

from .scene import Daemon, Held, configured, daemon, held, raw


def request(path: str = "/v1/health", method: str = "GET", **headers: str | None) -> bytes:
    """A request without a body."""
    return sending(b"", path, method, **headers)


def sending(body: bytes, path: str = "/v1/agents", method: str = "POST", /, **headers: str | None) -> bytes:
    given = {"host": "127.0.0.1", "connection": "close", "content_length": str(len(body)), **headers}
    lines = "".join(
        f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items() if value is not None
    )
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def kind(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"access-control" not in head.lower()
    return str(json.loads(body)["error"]["kind"])


def test_only_the_token_opens_the_port(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        for given in (
            None,
            "",
            "Bearer",
            "Bearer ",
            f"Basic {token}",
            token,
            f"Bearer {token[:-1]}",
            f"Bearer {token}x",
            f"Bearer {token.swapcase()}",
            "Bearer \xff",
        ):
            answer = await raw(port, request(authorization=given))
            assert (status(answer), kind(answer)) == (401, "bad-token"), given
        assert status(await raw(port, request(authorization=f"Bearer {token}"))) == 200
        assert status(await raw(port, request(authorization=f"bearer  {token}"))) == 200

    shared.run(test)


def test_no_path_is_told_of_without_the_token(shared: Held) -> None:
    port = shared.port

    async def test(there: Daemon) -> None:
        for path in (
            "/",
            "/openapi.json",
            "/metrics",
            "/v1/agents",
            "/nothing",
            "//",
            "/v1/../v1/health",
            "*",
        ):
            assert status(await raw(port, request(path))) == 401, path

    shared.run(test)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "0.0.0.0",
        "[::]",
        "",
        "evil@127.0.0.1",
        "a:b",
    ],
)
def test_a_rebound_host_name_is_refused_even_with_the_token(shared: Held, host: str) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        answer = await raw(port, request(host=host, authorization=f"Bearer {token}"))
        assert (status(answer), kind(answer)) == (403, "bad-host")

    shared.run(test)


def test_the_names_of_this_machine_are_let_in_with_any_port(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        for host in ("127.0.0.1", f"127.0.0.1:{port}", f"LOCALHOST:{port}", "[::1]:1", "[::1]"):
            assert status(await raw(port, request(host=host, authorization=f"Bearer {token}"))) == 200, host

    shared.run(test)


def test_a_web_page_is_refused_even_with_the_token(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        own = f"127.0.0.1:{port}"
        pages: list[dict[str, str]] = [
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": f"http://localhost:{port}"},
            {"origin": f"http://{own}.evil.example"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
        ]
        for page in pages:
            answer = await raw(port, request(host=own, authorization=f"Bearer {token}", **page))
            assert (status(answer), kind(answer)) == (403, "bad-origin"), page
        same = request(host=own, origin=f"http://{own}", authorization=f"Bearer {token}")
        assert status(await raw(port, same)) == 200

    shared.run(test)


def test_a_preflight_is_answered_with_no_permission(shared: Held) -> None:
    port = shared.port

    async def test(there: Daemon) -> None:
        asked = {"origin": "https://evil.example", "access_control_request_method": "POST"}
        answer = await raw(port, request("/v1/agents", "OPTIONS", **asked))
        assert status(answer) == 403 and b"access-control" not in answer.lower()

    shared.run(test)


def test_a_form_that_a_page_could_send_is_no_request(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        body = b'{"name": "a"}'
        for media in ("text/plain", "application/x-www-form-urlencoded", None):
            sent = sending(body, content_type=media, authorization=f"Bearer {token}")
            answer = await raw(port, sent)
            assert (status(answer), kind(answer)) == (415, "bad-content-type")

    shared.run(test)


def test_a_body_that_is_too_large_is_refused_however_it_is_announced() -> None:
    async def test(there: Daemon) -> None:
        port, token = int(there.home.port.read_text()), there.home.secret()
        known = {"authorization": f"Bearer {token}", "content_type": "application/json"}
        announced = sending(b"", **{**known, "content_length": "2049"})
        assert kind(await raw(port, announced)) == "too-large"
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        head = request(
            "/v1/agents", "POST", **{**known, "content_length": None, "transfer_encoding": "chunked"}
        )
        answer = await raw(port, head + chunk * 3 + b"0\r\n\r\n")
        assert (status(answer), kind(answer)) == (413, "too-large")
        exact = b'{"name":"b","description":"' + b"x" * (2048 - 29) + b'"}'
        assert len(exact) == 2048
        assert status(await raw(port, sending(exact, **known))) == 200

    with held("[server]\nmax_body = 2048\n") as there:
        there.run(test)


def test_bytes_that_are_no_http_end_their_connection_and_nothing_else(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        for data in (
            b"\x00\x01\x02\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\nconnection: close\r\n\r\n",
            b"x" * 200_000,
        ):
            with suppress(ConnectionError):  # closed while we were still sending
                assert (await raw(port, data))[:10] in (b"HTTP/1.1 4", b"")
        twice = request(authorization=f"Bearer {token}").replace(b"host:", b"host: evil\r\nhost:")
        assert status(await raw(port, twice)) == 400
        assert status(await raw(port, request(authorization=f"Bearer {token}"))) == 200

    shared.run(test)


def test_a_client_that_sends_slowly_holds_up_nobody(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for _, writer in slow:
            writer.write(b"POST /v1/agents HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le")
            await writer.drain()
        assert status(await raw(port, request(authorization=f"Bearer {token}"))) == 200
        for _, writer in slow:
            writer.close()

    shared.run(test)


def test_the_socket_is_its_owners_alone_and_asks_for_no_token(shared: Held) -> None:
    async def test(there: Daemon) -> None:
        assert there.home.socket.stat().st_mode & 0o777 == 0o600
        assert (await there.client.ask("GET", "/v1/health"))["status"] == "ok"

    shared.run(test)


def test_the_port_takes_no_raw_commits(shared: Held) -> None:
    port, token = shared.port, shared.token

    async def test(there: Daemon) -> None:
        body = b'{"expected":[],"writes":[],"added":[]}'
        known = {"authorization": f"Bearer {token}", "content_type": "application/json"}
        answer = await raw(port, sending(body, "/v1/store/commit", **known))
        assert (status(answer), kind(answer)) == (404, "no-such-path")
        assert await there.client.ask("POST", "/v1/store/commit", json.loads(body)) == {"conflict": None}

    shared.run(test)


def test_without_tcp_there_is_no_port(home: Home) -> None:
    async def run() -> None:
        configured(home, "[server]\ntcp = false\n")
        async with daemon(home, tcp=True) as there:
            assert there.served.port is None
            assert not home.port.exists() and not home.token.exists()

    asyncio.run(run())
