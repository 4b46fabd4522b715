"""The page of the harnesses names every tool, limit and host function that there is, with the defaults."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import standard_harnesses
from crabstore.runtime.harness.commands import CommandLimits
from crabstore.runtime.harness.mcp import Limits
from crabstore.runtime.harness.wasm import HOSTS, WasmLimits
from crabstore.store.agents import AgentConfig, HarnessDeclaration

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/harnesses.md").read_text(encoding="utf-8")


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first heading this is."""
    body = PAGE.split(f"| {first} |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def test_every_tool_is_named_and_no_other() -> None:
    declared = [HarnessDeclaration(name="os", root="/", system=True), HarnessDeclaration(name="sessions")]
    agent = AgentConfig(name="a", harnesses=[*declared, HarnessDeclaration(name="skills")])
    offered = {
        harness.name: list(harness.scoped_tools(agent))
        for harness in standard_harnesses(VolatileBackend())
        if harness.name in ("memory", "os", "sessions")
    }
    stated = {row[0].strip("`"): re.findall(r"`(\w+)`", row[2]) for row in table("Harness")}
    assert {name: stated[name] for name in offered} == offered
    assert stated["skills"] == ["load_skill"]
    assert {f"`{harness.name}`" for harness in standard_harnesses(VolatileBackend())} - {"`images`"} <= {
        row[0] for row in table("Harness")
    }


@pytest.mark.parametrize(
    "limits", [CommandLimits(), Limits(), WasmLimits()], ids=lambda limits: type(limits).__name__
)
def test_the_limits_on_the_page_are_the_defaults(limits: CommandLimits | Limits | WasmLimits) -> None:
    stated = {row[0].strip("`"): float(row[1]) for row in table(f"`{type(limits).__name__}`")}
    assert stated == dataclasses.asdict(limits)


def test_every_host_function_is_named() -> None:
    assert {row[0].strip("`") for row in table("Host function")} == set(HOSTS)
