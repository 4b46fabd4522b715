"""Agents: configurations stored whole, found by id or by name.

    Agent   agent/{id}         AgentConfig
            idx/agent/{name}   id
    Config  default_agent      id

Nothing queries inside a config, so none of its fields is a column; the name index exists because a person
types names, and renaming an agent moves nothing but that.
"""

from __future__ import annotations

import msgspec

from .batch import Batch, Column
from .errors import InvalidArgument, NameTaken, NotFound
from .kv import KVStorage
from .names import require_name
from .records import Json, Record, checked, decode, encode, evolve

__all__ = ["AgentConfig", "AgentHooks", "Agents", "HarnessDeclaration", "McpServer", "MemoryHook"]


class McpServer(Record):
    """A tool server that an agent declares; the declaration is the grant."""

    name: str
    command: str = ""
    """The program to start, for a server over stdio."""
    args: list[str] = []
    env: dict[str, str] = {}
    auto_restart: bool = True
    """Whether one that ended by itself is started again by the next call."""
    url: str = ""
    """Where it listens, for a server over streamable HTTP."""
    auth: str = ""
    """The value of its Authorization header; a word without a scheme is a bearer token."""


class HarnessDeclaration(Record):
    """A harness that an agent declares, and what it may reach."""

    name: str
    system: bool = False
    """Whether it may start programs of the machine."""
    root: str = ""
    """The folder that bounds the files it reaches, an absolute path; "" for none."""
    hosts: list[str] = []
    """The host functions that an image may call."""


class MemoryHook(Record):
    """How memory takes part in an agent's runs."""

    recall_limit: int = 5
    """Entries recalled before a run; 0 recalls none."""


class AgentHooks(Record):
    """What happens around an agent's runs."""

    memory: MemoryHook = msgspec.field(default_factory=MemoryHook)


class AgentConfig(Record):
    """An agent. `id` is a ULID that `Agents.create` gives; `description` is the system message."""

    name: str
    id: str = ""
    description: str = ""
    model: str = ""
    max_iterations: int = 16
    tool_choice: Json = "auto"
    thinking: bool = False
    max_tokens: int | None = None
    thinking_budget: int = 4096
    skills: list[str] = []
    mcps: list[McpServer] = []
    harnesses: list[HarnessDeclaration] = []
    compact_tool_max_len: int = 1024
    hooks: AgentHooks = msgspec.field(default_factory=AgentHooks)


class Agents:
    """The agents of a store."""

    def __init__(self, kv: KVStorage) -> None:
        self._kv = kv

    async def create(self, config: AgentConfig) -> AgentConfig:
        """Store a new agent under a new id. Raises NameTaken, or InvalidArgument for a bad name."""
        from ulid import ULID  # noqa: PLC0415 - needed for a new agent alone, and takes longer than opening a store

        checked(config, AgentConfig)
        agent = evolve(config, id=str(ULID()))
        await self.put(agent)
        return agent

    async def put(self, agent: AgentConfig) -> None:
        """Store `agent` whole under its id, renaming it if its name changed. Raises NameTaken."""
        checked(agent, AgentConfig)
        require_name("agent", agent.name)
        if not agent.id:
            raise InvalidArgument("agent id", agent.id, "is given by Agents.create")
        await self._kv.transact(lambda batch: self._stage_put(batch, agent))

    async def get(self, agent_id: str) -> AgentConfig | None:
        """The agent with this id, or None."""
        return await self._kv.get_json(Column.AGENT, self._kv.key("agent", agent_id), AgentConfig)

    async def named(self, name: str) -> AgentConfig | None:
        """The agent with this name, or None."""
        agent_id = await self._kv.get(Column.AGENT, self._kv.key("idx", "agent", name))
        return None if agent_id is None else await self.get(agent_id.decode())

    async def ensure(self, name: str) -> AgentConfig:
        """The agent with this name, made with defaults if there is none."""
        while (agent := await self.named(name)) is None:
            try:
                return await self.create(AgentConfig(name=name))
            except NameTaken:
                continue  # another task made it in between
        return agent

    async def ids(self) -> list[str]:
        """Every agent's id, in the order of their names. Reads no config."""
        rows = await self._kv.scan(Column.AGENT, self._kv.prefix("idx", "agent"))
        return [agent_id.decode() for _, agent_id in rows]

    async def configs(self) -> list[AgentConfig]:
        """Every agent, in the order of their names."""
        keys = [self._kv.key("agent", agent_id) for agent_id in await self.ids()]
        rows = zip(keys, await self._kv.get_many(Column.AGENT, keys), strict=True)
        return [decode(AgentConfig, row, key) for key, row in rows if row is not None]

    async def delete(self, agent_id: str) -> bool:
        """Remove an agent; whether it was there. Its sessions stay. A default that names it is cleared with it."""
        return await self._kv.transact(lambda batch: self._stage_delete(batch, agent_id))

    async def default(self) -> str | None:
        """The id of the default agent, or None."""
        agent_id = await self._kv.get(Column.CONFIG, self._kv.key("default_agent"))
        return None if agent_id is None else agent_id.decode()

    async def set_default(self, agent_id: str | None) -> None:
        """Make an agent the default, or with None have no default. Raises NotFound."""
        await self._kv.transact(lambda batch: self._stage_default(batch, agent_id))

    async def _stage_put(self, batch: Batch, agent: AgentConfig) -> None:
        key, label = self._kv.key("agent", agent.id), self._kv.key("idx", "agent", agent.name)
        owner = await batch.get(Column.AGENT, label)
        if owner is not None and owner.decode() != agent.id:
            raise NameTaken("agent", agent.name, owner.decode())
        old = await batch.get(Column.AGENT, key)
        batch.expect(Column.AGENT, key, old)
        batch.expect(Column.AGENT, label, owner)
        batch.put(Column.AGENT, key, encode(agent))
        batch.put(Column.AGENT, label, agent.id.encode())
        if old is not None and (name := decode(AgentConfig, old, key).name) != agent.name:
            batch.delete(Column.AGENT, self._kv.key("idx", "agent", name))

    async def _stage_delete(self, batch: Batch, agent_id: str) -> bool:
        key = self._kv.key("agent", agent_id)
        old = await batch.get(Column.AGENT, key)
        if old is None:
            return False
        batch.expect(Column.AGENT, key, old)
        pointer = self._kv.key("default_agent")
        default = await batch.get(Column.CONFIG, pointer)
        if default == agent_id.encode():
            batch.expect(Column.CONFIG, pointer, default)
            batch.delete(Column.CONFIG, pointer)
        batch.delete(Column.AGENT, self._kv.key("idx", "agent", decode(AgentConfig, old, key).name))
        batch.delete(Column.AGENT, key)
        return True

    async def _stage_default(self, batch: Batch, agent_id: str | None) -> None:
        pointer = self._kv.key("default_agent")
        if agent_id is None:
            batch.delete(Column.CONFIG, pointer)
            return
        key = self._kv.key("agent", agent_id)
        config = await batch.get(Column.AGENT, key)
        if config is None:
            raise NotFound("agent", agent_id)
        batch.expect(Column.AGENT, key, config)
        batch.put(Column.CONFIG, pointer, agent_id.encode())

    async def rebuild(self) -> None:
        """Build the name index anew from the configs."""
        batch = self._kv.batch()
        for key in await self._kv.scan_keys(Column.AGENT, self._kv.prefix("idx", "agent")):
            batch.delete(Column.AGENT, key)
        for key, row in await self._kv.scan(Column.AGENT, self._kv.prefix("agent")):
            agent = decode(AgentConfig, row, key)
            batch.put(Column.AGENT, self._kv.key("idx", "agent", agent.name), agent.id.encode())
        await self._kv.commit(batch)
