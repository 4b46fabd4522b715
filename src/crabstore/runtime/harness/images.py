"""images: harnesses that the store holds as bytes, run by a sandbox.

Declared by the image's name (or digest); the declaration's `hosts` and `root` are all that it may reach. An image
is loaded for the first run that declares it, shared by all agents at work, and dropped with the last of them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from ...store.agents import AgentConfig, HarnessDeclaration
from ...store.backend import Backend
from ...store.messages import ToolCall
from ..errors import SdkMissing
from ..tools import Tool, ToolOutput
from .base import Context, Harness, PartlyResolved
from .sandbox import BadImage, Grant, Offer, Program, Sandbox

__all__ = ["ImagesHarness"]


@dataclass
class _Loaded:
    """An image in use: its program, or the loading of it, and the agents at work that declare it."""

    program: asyncio.Task[Program]
    users: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Granted:
    """An image as one agent has it."""

    declared: HarnessDeclaration
    digest: str
    grant: Grant
    program: Program
    offer: Offer


class ImagesHarness(Harness):
    """The images that agents at work declare. `others` are names of harnesses that are none of its business."""

    name = "images"

    def __init__(self, store: Backend, sandbox: Sandbox, *, others: Collection[str] = ()) -> None:
        self._images = store.harnesses
        self._sandbox = sandbox
        self._others = frozenset(others)
        self._loaded: dict[str, _Loaded] = {}
        self._granted: dict[str, list[_Granted]] = {}

    @property
    def loaded(self) -> frozenset[str]:
        """The digests of the images that are loaded."""
        return frozenset(self._loaded)

    @property
    def at_work(self) -> frozenset[str]:
        """The ids of the agents that hold images."""
        return frozenset(self._granted)

    async def on_resolve_agent(self, agent: AgentConfig) -> None:
        declared = [each for each in agent.harnesses if each.name not in self._others]
        granted: list[_Granted] = []
        failed: list[str] = []
        for each in declared:
            try:
                granted.append(await self._grant(agent.id, each))
            except (BadImage, SdkMissing) as error:
                failed.append(f"the harness {each.name!r} is not available: {error}")
        self._hold(agent.id, granted)
        if failed:
            raise PartlyResolved("; ".join(failed))

    async def on_release_agent(self, agent_id: str) -> None:
        self._hold(agent_id, [])

    def scoped_tools(self, agent: AgentConfig) -> Sequence[str]:
        return [tool.name for tool in self.schema(agent)]

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return [tool for granted in self._of(agent) for tool in granted.offer.tools]

    def usage(self, agent: AgentConfig) -> str:
        return "\n\n".join(granted.offer.usage for granted in self._of(agent) if granted.offer.usage)

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        for granted in self._of(context.agent):
            if any(tool.name == call.name for tool in granted.offer.tools):
                return await _answer(granted, call)
        return ToolOutput(f"the harness of {call.name} is not declared any more", is_error=True)

    async def close(self) -> None:
        self._granted.clear()
        self._loaded.clear()
        await self._sandbox.close()

    def _of(self, agent: AgentConfig) -> Iterator[_Granted]:
        """What this run's configuration grants: another run of the agent may have another one."""
        return (each for each in self._granted.get(agent.id, ()) if each.declared in agent.harnesses)

    async def _grant(self, agent_id: str, declared: HarnessDeclaration) -> _Granted:
        """The image of a declaration, ready to be called. Raises BadImage."""
        digest = await self._images.resolve(declared.name) or declared.name
        grant = Grant(frozenset(declared.hosts), declared.root)
        program = await self._program(agent_id, digest)
        # What an agent at work has been offered by an image stays: it is asked once, not once a run.
        for held in self._granted.get(agent_id, ()):
            if held.program is program and held.grant == grant:
                return _Granted(declared, digest, grant, program, held.offer)
        return _Granted(declared, digest, grant, program, await program.offer(grant))

    async def _program(self, agent_id: str, digest: str) -> Program:
        """The program of an image; agents that ask for it at one time wait for one loading."""
        loaded = self._loaded.get(digest)
        if loaded is None:
            loaded = self._loaded[digest] = _Loaded(asyncio.ensure_future(self._load(digest)))
            # A run that is cancelled meanwhile asks for the outcome no more.
            loaded.program.add_done_callback(lambda task: task.cancelled() or task.exception())
        loaded.users.add(agent_id)
        return await asyncio.shield(loaded.program)

    async def _load(self, digest: str) -> Program:
        image = await self._images.get(digest)
        if image is None:
            raise BadImage("no harness is called so, and the store has no such image")
        if hashlib.sha256(image).hexdigest() != digest:
            raise BadImage("the stored bytes are not those of its digest")
        return await self._sandbox.load(image)

    def _hold(self, agent_id: str, granted: list[_Granted]) -> None:
        """Let the agent hold these images and no others; drop what nobody holds."""
        if granted:
            self._granted[agent_id] = granted
        else:
            self._granted.pop(agent_id, None)
        digests = {each.digest for each in granted}
        for digest, loaded in list(self._loaded.items()):
            if digest not in digests:
                loaded.users.discard(agent_id)
            if not loaded.users:
                del self._loaded[digest]


async def _answer(granted: _Granted, call: ToolCall) -> ToolOutput:
    try:
        return await granted.program.call(granted.grant, call.name, call.arguments)
    except BadImage as error:
        return ToolOutput(f"the harness {granted.declared.name!r} failed: {error}", is_error=True)
