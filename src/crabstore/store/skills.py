"""Skills: SKILL.md files as the Agent Skills standard has them (agentskills.io, specification).

    Skill   skill/meta/{name}   SkillSummary
            skill/body/{name}   SKILL.md

Identity and body are separate keys, so that a listing reads names and descriptions without touching markdown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .batch import Batch, Column
from .errors import StoreError
from .kv import KVStorage
from .records import Record, decode, encode

__all__ = ["InvalidSkill", "SkillSummary", "Skills", "parse_skill"]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
_FENCE = "---"


class InvalidSkill(StoreError, ValueError):
    """A SKILL.md that does not keep to the standard; `reason` says where."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"skill {name or '(unnamed)'}: {reason}")
        self.name = name
        self.reason = reason


class SkillSummary(Record):
    """What a listing shows of a skill."""

    name: str
    description: str


class Skills:
    """The skills of a store."""

    def __init__(self, kv: KVStorage) -> None:
        self._kv = kv

    async def put(self, body: str) -> SkillSummary:
        """Store a SKILL.md under the name in its front matter, replacing that skill. Raises InvalidSkill."""
        summary = parse_skill(body)
        batch = self._kv.batch()
        batch.put(Column.SKILL, self._kv.key("skill", "body", summary.name), body.encode())
        batch.put(Column.SKILL, self._kv.key("skill", "meta", summary.name), encode(summary))
        await self._kv.commit(batch)
        return summary

    async def get(self, name: str) -> str | None:
        """The SKILL.md of this name, or None."""
        body = await self._kv.get(Column.SKILL, self._kv.key("skill", "body", name))
        return None if body is None else body.decode()

    async def summaries(self, names: Sequence[str] | None = None) -> list[SkillSummary]:
        """Every skill's name and description, in the order of their names; or those of `names`, in their order.

        Reads no body, and of given names nothing else; a name that no skill has is left out.
        """
        if names is None:
            rows = await self._kv.scan(Column.SKILL, self._kv.prefix("skill", "meta"))
            return [decode(SkillSummary, row, key) for key, row in rows]
        keys = [self._kv.key("skill", "meta", name) for name in names]
        found = zip(keys, await self._kv.get_many(Column.SKILL, keys), strict=True)
        return [decode(SkillSummary, row, key) for key, row in found if row is not None]

    async def delete(self, name: str) -> bool:
        """Remove a skill; whether it was there."""
        return await self._kv.transact(lambda batch: self._stage_delete(batch, name))

    async def rebuild(self) -> None:
        """Build the summaries anew from the bodies."""
        batch = self._kv.batch()
        for key in await self._kv.scan_keys(Column.SKILL, self._kv.prefix("skill", "meta")):
            batch.delete(Column.SKILL, key)
        for _, body in await self._kv.scan(Column.SKILL, self._kv.prefix("skill", "body")):
            summary = parse_skill(body.decode())
            batch.put(Column.SKILL, self._kv.key("skill", "meta", summary.name), encode(summary))
        await self._kv.commit(batch)

    async def _stage_delete(self, batch: Batch, name: str) -> bool:
        body = self._kv.key("skill", "body", name)
        old = await batch.get(Column.SKILL, body)
        batch.expect(Column.SKILL, body, old)
        batch.delete(Column.SKILL, self._kv.key("skill", "meta", name))
        batch.delete(Column.SKILL, body)
        return old is not None


def parse_skill(body: str) -> SkillSummary:
    """The summary in a SKILL.md's YAML front matter. Raises InvalidSkill with the reason."""
    front = _front_matter(body)
    name, description = front.get("name"), front.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise InvalidSkill(str(name or ""), f"`name` must be 1 to {_MAX_NAME} of a-z, 0-9 and single hyphens")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= _MAX_DESCRIPTION:
        raise InvalidSkill(name, f"`description` must be 1 to {_MAX_DESCRIPTION} characters")
    return SkillSummary(name=name, description=description.strip())


def _front_matter(body: str) -> dict[object, object]:
    if not isinstance(body, str):
        raise InvalidSkill("", "a SKILL.md must be text")
    lines = body.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        raise InvalidSkill("", "the first line must be `---`, the beginning of the YAML front matter")
    ends = [at for at, line in enumerate(lines) if at and line.rstrip() == _FENCE]
    if not ends:
        raise InvalidSkill("", "the YAML front matter has no closing `---`")
    import yaml  # noqa: PLC0415 - needed for a skill that is stored, not for a store that is opened

    try:
        front = yaml.safe_load("\n".join(lines[1 : ends[0]]))
    except yaml.YAMLError as error:
        raise InvalidSkill("", f"the front matter is not valid YAML: {error}") from error
    if not isinstance(front, dict):
        raise InvalidSkill("", "the front matter must be a YAML mapping with `name` and `description`")
    return front
