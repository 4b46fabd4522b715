"""What each harness costs a run, and a call of each of its tools: ``python -m bench.harnesses``.

A run's share is `on_resolve_agent`, `schema`, `usage` and `preprocess`, warm: a server is connected, an image is
loaded. Cold is the first time. All in a crabdb store with 1,000 notes and 1,000 sessions; medians of wall-clock
milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from wasmtime import wat2wasm

import crabstore
from crabstore.runtime import Context, Harness, standard_harnesses
from crabstore.store.agents import AgentConfig, HarnessDeclaration, McpServer
from crabstore.store.backend import Backend
from crabstore.store.memory import MemoryEntry
from crabstore.store.messages import HistoryEntry, ToolCall
from crabstore.store.records import Json

WORDS = "a note about crabs, their {} and what they said of the {} when it rained"
SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("s", log_level="CRITICAL")
@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)
server.run("stdio")
"""
IMAGE = r"""(module (memory (export "memory") 2)
  (data (i32.const 1024) "{\"tools\":[{\"name\":\"shout\"}]}") (data (i32.const 2048) "{\"text\":\"HEY\"}")
  (func (export "alloc") (param i32) (result i32) (i32.const 4096))
  (func (export "schema") (result i64) (i64.const 4398046511132))
  (func (export "call") (param i32 i32) (result i64) (i64.const 8796093022222)))"""

CALLS: list[tuple[str, dict[str, Json]]] = [
    ("remember", {"name": "n", "content": WORDS}),
    ("recall", {"query": "crabs rained"}),
    ("load_skill", {"name": "bake"}),
    ("search_sessions", {"query": "crabs rained"}),
    ("read_session", {"session": "s1"}),
    ("write", {"path": "a/b/c", "content": WORDS}),
    ("read", {"path": "a/b/c"}),
    ("list", {"path": "a"}),
    ("exec", {"command": "true"}),
    ("t__add", {"a": 1, "b": 2}),
    ("shout", {}),
]


async def stocked(store: Backend, root: Path) -> AgentConfig:
    """An agent that declares everything, in a store that holds something."""
    (root / "server.py").write_text(SERVER, encoding="utf-8")
    await store.skills.put("---\nname: bake\ndescription: How to bake.\n---\nMix.\n")
    await store.harnesses.put(bytes(wat2wasm(IMAGE)), "loud")
    names = ["skills", "sessions", "loud"]
    agent = await store.agents.create(
        AgentConfig(
            name="a",
            skills=["bake"],
            mcps=[McpServer(name="t", command=sys.executable, args=[str(root / "server.py")])],
            harnesses=[
                HarnessDeclaration(name="os", root=str(root), system=True),
                *(HarnessDeclaration(name=name) for name in names),
            ],
        )
    )
    for number in range(1000):
        text = WORDS.format(number, number % 7)
        await store.memory.put(MemoryEntry(name=f"note {number}", content=text))
        await store.sessions.open(f"s{number}", agent=agent.id, created_by="me")
        await store.sessions.append_messages(f"s{number}", [HistoryEntry.user(text)])
    return agent


async def median(work: Callable[[], Awaitable[object]], times: int) -> float:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


async def take_part(harness: Harness, context: Context) -> None:
    """A harness' share in a run with one message."""
    agent = context.agent
    await harness.on_resolve_agent(agent)
    if harness.scoped_tools(agent):
        harness.schema(agent)
        harness.usage(agent)
    if harness.takes_part(agent):
        await harness.preprocess(context, HistoryEntry.user("what did the crabs say when it rained?"))


async def measure(store: Backend, root: Path, times: int) -> None:
    agent = await stocked(store, root)
    meta = await store.sessions.meta("s1")
    assert meta is not None
    context = Context(agent, meta)
    harnesses = standard_harnesses(store)
    print("| harness | cold | a run |\n| --- | --- | --- |")
    owners: dict[str, Harness] = {}
    for harness in harnesses:
        cold = await median(lambda harness=harness: take_part(harness, context), 1)  # type: ignore[misc]
        warm = await median(lambda harness=harness: take_part(harness, context), times)  # type: ignore[misc]
        owners.update((tool.name, harness) for tool in harness.schema(agent))
        print(f"| {harness.name} | {cold:.2f} | {warm:.2f} |")
    print("\n| tool | a call |\n| --- | --- |")
    for name, arguments in CALLS:
        call = ToolCall("c", name, arguments)
        assert not (await owners[name].dispatch(context, call)).is_error, name
        spent = await median(lambda name=name, call=call: owners[name].dispatch(context, call), times)  # type: ignore[misc]
        print(f"| {name} | {spent:.2f} |")
    for harness in harnesses:
        await harness.close()


async def table(times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with crabstore.open(str(Path(folder) / "bench.crmem")) as store:
            await measure(store, Path(folder), times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    asyncio.run(table(parser.parse_args().times))


if __name__ == "__main__":
    main()
