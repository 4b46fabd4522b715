"""What a daemon does for many at once: ``python -m bench.daemon [--clients 100] [--runs 20] [--seconds 5]``.

A daemon in its own process, over a store of `messages` messages, is asked by `clients` clients that keep
their connections open and search, list, read and write memory in turn, while `runs` sessions run an agent
again and again, each time with a tool call. Twice: paced, each client one request a second and each answer
of the model after a while, as people and models are; and as fast as clients and a model that takes no time
can, which is more than one process serves. Told are requests and runs a second, the latencies of searches,
and the lag of the event loop as /metrics has it (interpolated within its bucket). The client is this
process: with fewer than two idle cores the two stand in each other's way. What a step costs by itself tells
`bench.steps`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import crabstore
from crabstore.daemon.client import Client, path_of
from crabstore.daemon.home import Home

CONFIG = """
model = "play/m"
[providers.play]
kind = "scripted"
script = "script.json"
"""

WORDS = "tide crab reef shell sand wave storm harbour net boat rope sail anchor gull kelp salt".split()


def script(pause: float) -> str:
    """Turns of a model that takes `pause` seconds for each."""
    called = [{"name": "recall", "arguments": {"query": "tide"}}]
    asking = {"text": ["I ", "recall."], "calls": called, "pause": pause}
    telling = {"text": ["The tide ", "is out."], "pause": pause}
    return json.dumps({"turns": [asking, telling], "repeat": True})


@dataclass
class Figures:
    """What one load gave; times in milliseconds."""

    seconds: float = 0.0
    requests: int = 0
    runs: int = 0
    searches: list[float] = field(default_factory=list)
    lag: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, float]:
        took = sorted(self.searches)
        return {
            "requests_per_second": round(self.requests / self.seconds, 1),
            "runs_per_second": round(self.runs / self.seconds, 1),
            "search_p50_ms": round(percentile(took, 0.5), 2),
            "search_p99_ms": round(percentile(took, 0.99), 2),
            **self.lag,
        }


class Connection:
    """A client's connection, kept open. Reads as little HTTP as it has to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def opened(cls, socket: Path) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert answer.startswith(b"http/1.1 200"), answer
        length = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
        return await self._reader.readexactly(length)


@contextmanager
def serving(home: Home) -> Iterator[int]:
    command = [sys.executable, "-c", "import sys; from crabstore.cli import main; sys.exit(main())", "serve"]
    with subprocess.Popen(
        [*command, "--store", str(home.store)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield process.pid
        process.terminate()


async def fill(home: Home, messages: int) -> None:
    """Sessions of 25 messages, and the agent."""
    rng = random.Random(1)
    async with crabstore.open(home.store) as store:
        agent = await store.agents.create(crabstore.AgentConfig(name="coder"))
        for number in range(messages // 25):
            meta = await store.sessions.open(f"old{number}", agent=agent.id, created_by="ada")
            said = [crabstore.HistoryEntry.user(" ".join(rng.choices(WORDS, k=30))) for _ in range(25)]
            await store.sessions.append_messages(meta.handle, said)


async def load(home: Home, clients: int, runs: int, seconds: float, pace: float) -> Figures:
    """Ask for so long; `pace` is seconds between two requests of one client, 0 for none."""
    figures = Figures()
    before = await lag(home)
    until = time.perf_counter() + seconds
    begin = time.perf_counter()
    jobs: list[Awaitable[None]] = [client(home, figures, number, until, pace) for number in range(clients)]
    jobs += [runner(home, figures, f"run{number}", until) for number in range(runs)]
    await asyncio.gather(*jobs)
    figures.seconds = time.perf_counter() - begin
    after = await lag(home)
    figures.lag = {
        f"lag_p{share:g}_ms": round(1000 * within(before, after, share / 100), 2) for share in (50, 99, 99.9)
    }
    return figures


async def client(home: Home, figures: Figures, number: int, until: float, pace: float) -> None:
    rng = random.Random(number)
    async with Connection.opened(home.socket) as connection:
        asks: Sequence[Callable[[], Awaitable[bytes]]] = (
            lambda: search(connection, figures, rng),
            lambda: connection.ask("GET", "/v1/sessions?limit=20"),
            lambda: search(connection, figures, rng),
            lambda: connection.ask("GET", f"/v1/sessions/old{rng.randrange(100)}/messages"),
            lambda: connection.ask("PUT", f"/v1/memory/m{number}", b'{"content":"the tide is out"}'),
        )
        await asyncio.sleep(pace * rng.random())
        place = number
        while time.perf_counter() < until:
            begin = time.perf_counter()
            await asks[place % len(asks)]()
            figures.requests += 1
            place += 1
            await asyncio.sleep(max(0.0, pace - (time.perf_counter() - begin)))


async def search(connection: Connection, figures: Figures, rng: random.Random) -> bytes:
    begin = time.perf_counter()
    answer = await connection.ask("GET", f"/v1/search?q={rng.choice(WORDS)}%20{rng.choice(WORDS)}")
    figures.searches.append((time.perf_counter() - begin) * 1000)
    return answer


async def runner(home: Home, figures: Figures, handle: str, until: float) -> None:
    daemon = Client(home.socket)
    await daemon.ask("POST", path_of("sessions"), {"handle": handle, "agent": "coder"})
    while time.perf_counter() < until:
        stream = daemon.stream("POST", path_of("sessions", handle, "runs"), {"message": "is the tide out?"})
        last = [event async for event in stream][-1]
        assert last.kind == "result", last
        figures.runs += 1


async def lag(home: Home) -> dict[float, int]:
    """The histogram: how often at most so many seconds."""
    async with Connection.opened(home.socket) as connection:
        page = (await connection.ask("GET", "/metrics")).decode()
    rows = [line for line in page.splitlines() if line.startswith("crabstore_loop_lag_seconds_bucket")]
    return {float(row.split('"')[1]): int(row.rsplit(" ", 1)[1]) for row in rows}


def within(before: dict[float, int], after: dict[float, int], share: float) -> float:
    """The lag that this share of the looks stayed below, interpolated in its bucket."""
    counts = {bound: after[bound] - before[bound] for bound in after}
    wanted = share * counts[float("inf")]
    low, passed = 0.0, 0
    for bound, total in counts.items():
        if total >= wanted:
            return bound if total == passed else low + (bound - low) * (wanted - passed) / (total - passed)
        low, passed = bound, total
    return low


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


async def alone(home: Home, times: int) -> dict[str, float]:
    """One client by itself: what a request, a search and a whole run take."""
    figures, rng = Figures(), random.Random(7)
    async with Connection.opened(home.socket) as connection:
        health: list[float] = []
        for _ in range(times):
            begin = time.perf_counter()
            await connection.ask("GET", "/v1/health")
            health.append((time.perf_counter() - begin) * 1000)
            await search(connection, figures, rng)
    return {
        "health_p50_ms": round(percentile(sorted(health), 0.5), 2),
        "search_p50_ms": round(percentile(sorted(figures.searches), 0.5), 2),
        "search_p99_ms": round(percentile(sorted(figures.searches), 0.99), 2),
    }


async def measure(home: Home, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    crowd = (arguments.clients, arguments.runs, arguments.seconds)
    figures = {"alone": await alone(home, 300)}
    figures["paced"] = (await load(home, *crowd, pace=arguments.pace)).document()
    (home.path / "script.json").write_text(script(0.0))
    await Client(home.socket).ask("POST", "/v1/reload")
    figures["saturated"] = (await load(home, *crowd, pace=0.0)).document()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two requests of a client")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds that an answer of the model takes")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crab", dir="/tmp") as folder:
        home = Home(Path(folder))
        home.config.write_text(CONFIG)
        (home.path / "script.json").write_text(script(arguments.pause))
        asyncio.run(fill(home, arguments.messages))
        with serving(home):
            figures = asyncio.run(measure(home, arguments))
    for load_name, row in figures.items():
        print(f"{load_name:10}", "  ".join(f"{name} {value:g}" for name, value in row.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
