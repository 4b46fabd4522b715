"""skills: an agent's skills are listed in its system message, and a SKILL.md is read when it is used.

Declared. It reads the skills that the agent's configuration names, and no others of the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from ...store.agents import AgentConfig
from ...store.backend import Backend
from ...store.messages import ToolCall
from ...store.skills import SkillSummary
from ..tools import Tool, ToolOutput
from .base import Context, Harness, PartlyResolved
from .toolbox import Arguments, Function, Refused, Toolbox, cut

__all__ = ["SkillsHarness"]

_MOST = 100_000
"""Characters of a SKILL.md that a model is given; the standard asks for a fraction of that."""

_HEADING = "You have skills. Before a task that one of them is for, read it with `load_skill` and follow it:"


class _Load(Arguments):
    name: Annotated[str, Meta(description="A skill that your system message lists.")]


class SkillsHarness(Harness):
    """The skills that an agent's `skills` names. Holds their summaries while the agent works."""

    name = "skills"

    def __init__(self, store: Backend) -> None:
        self._skills = store.skills
        self._listed: dict[str, list[SkillSummary]] = {}
        self._toolbox = Toolbox(Function("load_skill", "Read one of your skills.", _Load, self._load))

    @property
    def at_work(self) -> frozenset[str]:
        """The ids of the agents whose summaries are held."""
        return frozenset(self._listed)

    async def on_resolve_agent(self, agent: AgentConfig) -> None:
        if not agent.skills or self.declaration(agent) is None:
            return
        known = {summary.name: summary for summary in await self._skills.summaries(agent.skills)}
        self._listed[agent.id] = list(known.values())
        if missing := [name for name in agent.skills if name not in known]:
            raise PartlyResolved(f"the store has no skill {', '.join(missing)}")

    async def on_release_agent(self, agent_id: str) -> None:
        self._listed.pop(agent_id, None)

    def schema(self, agent: AgentConfig) -> Sequence[Tool]:
        return self._toolbox.tools if self._of(agent) else ()

    def usage(self, agent: AgentConfig) -> str:
        return "\n".join([_HEADING, *(f"- {skill.name}: {skill.description}" for skill in self._of(agent))])

    async def dispatch(self, context: Context, call: ToolCall) -> ToolOutput:
        return await self._toolbox.answer(context, call)

    def _of(self, agent: AgentConfig) -> list[SkillSummary]:
        """What the agent of this run was granted: another run may have been built from other names."""
        return [skill for skill in self._listed.get(agent.id, ()) if skill.name in agent.skills]

    async def _load(self, context: Context, asked: _Load) -> str:
        body = await self._skills.get(asked.name) if asked.name in context.agent.skills else None
        if body is None:
            raise Refused(f"you have no skill {asked.name!r}; yours: {', '.join(context.agent.skills)}")
        return cut(body, _MOST)
