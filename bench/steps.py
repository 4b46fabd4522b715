"""What a step of a run costs without the model: ``python -m bench.steps``.

A step is one answer with one tool call: the answer, the result and two lines of the trace are stored (four
commits) and told, and the next request is rendered for the real API. The model is the scripted provider, the tool
answers at once. Times are medians of the processor's milliseconds a step, so that it matters
less what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import crabstore
from crabstore.runtime import (
    AnthropicProvider,
    Context,
    Harness,
    OpenAIProvider,
    ProviderEvent,
    Request,
    Runtime,
    ScriptedProvider,
    Tool,
    ToolOutput,
)
from crabstore.runtime.providers.scripted import Script, ScriptedCall, ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.backend import Backend
from crabstore.store.messages import HistoryEntry, ToolCall

WORDS = "the store keeps what agents say and finds it again by what was said " * 4


class Instant(Harness):
    """A tool that answers at once."""

    name = "instant"

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return [Tool("look", "looks")]

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        return ToolOutput(WORDS)


class Rendering(ScriptedProvider):
    """Plays the script, and renders each request as the real provider would; keeps when each step began."""

    def __init__(self, real: AnthropicProvider | OpenAIProvider, script: Script) -> None:
        super().__init__(script, format=real.format)
        self.began: list[float] = []
        self._real = real

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        self.began.append(time.process_time())
        self._real.parameters(request)
        async for event in super().stream(request):
            yield event
        self.requests.clear()


async def measure(store: Backend, real: AnthropicProvider | OpenAIProvider, length: int, steps: int) -> float:
    """Median milliseconds of a step behind a history of `length` entries."""
    look = ScriptedTurn(text=WORDS, calls=[ScriptedCall(name="look", arguments={"path": "a"})])
    provider = Rendering(real, Script([look], repeat=True))
    declared = [HarnessDeclaration(name="instant")]
    name = f"{real.format} {length}"
    agent = await store.agents.create(AgentConfig(name=name, max_iterations=steps, harnesses=declared))
    meta = await store.sessions.open(agent=agent.id, created_by="bench")
    told = [
        (HistoryEntry.user if place % 2 == 0 else HistoryEntry.assistant)(WORDS, format=real.format)
        for place in range(length)
    ]
    await store.sessions.append_messages(meta.handle, told)
    runtime = Runtime(store, provider, [Instant()])
    await (await runtime.start(meta.handle, "go")).result()
    pairs = zip(provider.began, provider.began[1:], strict=False)
    return statistics.median((later - earlier) * 1000 for earlier, later in pairs)


async def table(steps: int) -> None:
    """Print one row a store and length."""
    print(f"| store | history | anthropic, ms a step | openai, ms a step |  ({steps} steps each)")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for url in (":memory:", str(Path(folder) / "bench.crmem")):
            async with crabstore.open(url) as store:
                for length in (0, 900):
                    costs = [
                        await measure(store, real, length, steps)
                        for real in (AnthropicProvider("none"), OpenAIProvider("none"))
                    ]
                    kind = "memory" if url == ":memory:" else "crabdb"
                    # Each step adds two entries, and the median step stands in the middle.
                    print(f"| {kind} | {length + steps} | {costs[0]:.2f} | {costs[1]:.2f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    asyncio.run(table(parser.parse_args().steps))


if __name__ == "__main__":
    main()
