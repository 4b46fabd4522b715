"""A daemon's life: how it begins and ends, what it reads again, and what it makes durable meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

import crabdb
import crabstore as library
from crabstore.answers.failures import ExitCode, Refusal
from crabstore.daemon.application import Daemon as Application
from crabstore.daemon.client import Client, path_of
from crabstore.daemon.home import Home
from crabstore.daemon.serving import serving
from crabstore.runtime import Clock

from .scene import SCRIPTED, configured, crabstore, daemon, ended, heard, here, process, write_script


def test_a_daemon_says_where_it_serves_and_leaves_nothing_behind(home: Home) -> None:
    home.make()
    with process(home) as there:
        assert there.serving == {"home": str(home.path), "socket": str(home.socket), "port": there.port}
        assert int(home.port.read_text()) == there.port
        assert there.stop() == 0
    assert sorted(path.name for path in home.path.iterdir()) == [
        "log",
        "store.crmem",
        "store.crmem.lock",
        "token",
    ]


def test_a_second_daemon_is_refused_and_disturbs_nothing(home: Home) -> None:
    home.make()
    with process(home) as there:
        second = crabstore(home, "serve")
        assert second.returncode == ExitCode.LOCKED and str(there.popen.pid) in second.stderr
        health = asyncio.run(Client(home.socket).ask("GET", "/v1/health"))
        assert health["pid"] == there.popen.pid and int(home.port.read_text()) == there.port


def test_a_daemon_takes_the_place_of_one_that_was_killed(home: Home) -> None:
    home.make()
    with process(home) as first:
        first.kill()
    assert home.socket.exists() and home.port.exists()
    with process(home) as second:
        health = asyncio.run(Client(home.socket).ask("GET", "/v1/health"))
        assert health["pid"] == second.popen.pid


def test_a_port_that_is_taken_is_named_and_the_store_let_go(home: Home) -> None:
    async def run() -> None:
        home.make()
        other = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        configured(home, f"[server]\nport = {port}\n")
        with pytest.raises(Refusal) as caught:
            async with serving(home, {}):
                raise AssertionError("it serves")
        other.close()
        await other.wait_closed()
        assert caught.value.failure.kind == "port-taken"
        async with library.open(home.store):
            assert not home.socket.exists()

    asyncio.run(run())


def test_a_home_that_is_too_deep_for_a_socket_says_so(home: Home) -> None:
    deep = Home(home.path / ("x" * 100))
    home.make()
    done = crabstore(deep, "serve")
    assert done.returncode == ExitCode.USAGE and "107" in done.stderr


def test_sigterm_lets_runs_end_and_the_answer_reaches_its_client(home: Home) -> None:
    configured(home, SCRIPTED, {"text": "Working", "pause": 0.3})
    with process(home) as there:
        here(home, "agents", "add", "coder")

        async def run() -> Any:
            client = Client(home.socket)
            await client.ask("POST", path_of("sessions"), {"handle": "h", "agent": "coder"})
            stream = client.stream("POST", path_of("sessions", "h", "runs"), {"message": "hi"})
            await heard(stream, "text")
            there.popen.send_signal(signal.SIGTERM)
            return await ended(stream)

        assert asyncio.run(run()).data["stop_reason"] == "end_turn"
        assert there.popen.wait(timeout=30) == 0
    assert "Working" in here(home, "sessions", "show", "h")[1]


@pytest.mark.parametrize("grace", ["grace = 0", "grace = 600"])
def test_what_does_not_end_by_itself_is_cancelled_after_the_grace_or_a_second_signal(
    home: Home, grace: str
) -> None:
    configured(home, f"{SCRIPTED}\n[server]\n{grace}\n", {"text": "Half", "wait": "never"})
    with process(home) as there:
        here(home, "agents", "add", "coder")

        async def run() -> Any:
            client = Client(home.socket)
            await client.ask("POST", path_of("sessions"), {"handle": "h", "agent": "coder"})
            stream = client.stream("POST", path_of("sessions", "h", "runs"), {"message": "hi"})
            await heard(stream, "text")
            there.popen.send_signal(signal.SIGTERM)
            if grace != "grace = 0":
                while (await client.ask("GET", "/v1/health"))["status"] == "ok":
                    pass
                with pytest.raises(Refusal) as caught:
                    await ended(client.stream("POST", path_of("sessions", "h", "runs"), {"message": "no"}))
                assert caught.value.failure.kind == "shutting-down"
                there.popen.send_signal(signal.SIGTERM)
            return await ended(stream)

        assert asyncio.run(run()).data["stop_reason"] == "cancelled"
        assert there.popen.wait(timeout=30) == 0
    shown = here(home, "sessions", "show", "h")[1]
    assert "Half" in shown and here(home, "verify")[0] == 0


def test_sighup_reads_the_configuration_and_a_bad_one_changes_nothing(home: Home) -> None:
    configured(home, SCRIPTED, {"text": "first"})
    with process(home) as there:
        here(home, "agents", "add", "coder")
        assert here(home, "run", "hi", "--agent", "coder") == (0, "first\n")
        write_script(home, {"text": "second"})
        home.config.write_text("modle = 1")
        health = asyncio.run(after_reload(home, there.popen.pid, lambda health: health["config_error"]))
        assert "'model'" in health["config_error"]
        assert here(home, "run", "hi", "--agent", "coder") == (0, "first\n")
        home.config.write_text(SCRIPTED)
        asyncio.run(after_reload(home, there.popen.pid, lambda health: not health["config_error"]))
        assert here(home, "run", "hi", "--agent", "coder") == (0, "second\n")


async def after_reload(home: Home, pid: int, seen: Any) -> Any:
    """Send SIGHUP, and what the daemon says of itself when it has read the file."""

    os.kill(pid, signal.SIGHUP)
    async with asyncio.timeout(20):
        while not seen(health := await Client(home.socket).ask("GET", "/v1/health")):
            pass
    return health


def test_a_run_keeps_the_provider_that_it_began_with(home: Home) -> None:
    async def run() -> None:
        configured(home, SCRIPTED, {"text": "old", "wait": "go"})
        async with daemon(home) as there:
            await there.agent()
            stream = there.run(await there.session("h"), "hi")
            await heard(stream, "text")
            old = there.provider
            write_script(home, {"text": "new"})
            await there.client.ask("POST", "/v1/reload")
            assert (await ended(there.run(await there.session("i"), "hi"))).data["text"] == "new"
            old.release("go")
            assert (await ended(stream)).data["text"] == "old"

    asyncio.run(run())


class HeldClock(Clock):
    """Time that passes when a test says so, all sleepers of a length at once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sleepers: dict[float, list[asyncio.Event]] = {}
        self.asleep = asyncio.Condition()

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        waking = asyncio.Event()
        self.sleepers.setdefault(seconds, []).append(waking)
        async with self.asleep:
            self.asleep.notify_all()
        await waking.wait()

    async def sleeping(self, seconds: float) -> None:
        """Return when somebody sleeps so long."""
        async with self.asleep, asyncio.timeout(20):
            await self.asleep.wait_for(lambda: seconds in self.sleepers)

    def passed(self, seconds: float) -> None:
        self.seconds += seconds
        for waking in self.sleepers.pop(seconds, []):
            waking.set()


def test_what_is_written_reaches_the_medium_within_the_configured_time(home: Home) -> None:
    async def run() -> None:
        configured(home, "[durability]\nsync = 7\ncheckpoint = 14\n")
        clock = HeldClock()
        async with Application.opened(home, {}, clock=clock) as app:
            await app.store.agents.ensure("a")
            assert app.store.db.stats().durable < app.store.db.stats().size
            for _ in range(2):
                await clock.sleeping(7)
                clock.passed(7)
            await clock.sleeping(7)
            assert app.store.db.stats().durable == app.store.db.stats().size
            assert app.store.db.stats().snapshot > 0

    asyncio.run(run())


def test_a_daemon_that_ended_well_left_everything_durable_and_a_snapshot(home: Home) -> None:
    async def run() -> None:
        home.make()
        async with Application.opened(home, {}) as app:
            await app.store.agents.ensure("a")

    asyncio.run(run())
    with crabdb.CrabDB.open(home.store, create=False, read_only=True) as db:
        assert db.stats().durable == db.stats().size and db.stats().tail == 0


def test_a_provider_that_cannot_be_built_stops_the_start_before_the_store_is_made(home: Home) -> None:
    configured(home, "[providers.a]\nkind = 'openai'\napi_key_env = 'NOT_SET_HERE'\n")
    done = crabstore(home, "serve")
    assert done.returncode == ExitCode.USAGE and "NOT_SET_HERE" in done.stderr
    assert not home.socket.exists()


def test_two_commands_that_start_at_once_without_a_daemon_both_get_their_answer(home: Home) -> None:
    configured(home)
    here(home, "agents", "add", "coder")
    done: list[str] = []
    threads = [
        threading.Thread(target=lambda: done.append(crabstore(home, "run", "hi", "--agent", "coder").stdout))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == ["Hello.\n"] * 2
