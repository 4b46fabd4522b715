"""The page of config.toml says what is: every key with its default, and an example that can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from crabstore.daemon.config import (
    Config,
    DurabilityConfig,
    ProviderConfig,
    RetriesConfig,
    ServerConfig,
    parse,
)

PAGE = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "The file itself": Config,
    "`[providers.NAME]`": ProviderConfig,
    "`[server]`": ServerConfig,
    "`[durability]`": DurabilityConfig,
    "`[retries]`": RetriesConfig,
}
TABLES = {"providers", "server", "durability", "retries"}
"""Keys that are sections of their own."""


def described(heading: str) -> dict[str, str]:
    """The keys of a section's table, and their defaults."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \| ", text, re.MULTILINE))


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_keys_and_defaults_of_a_section_are_those_of_the_program(heading: str) -> None:
    fields = [field for field in msgspec.structs.fields(SECTIONS[heading]) if field.name not in TABLES]
    assert described(heading) == {field.name: default(field) for field in fields}


def default(field: msgspec.structs.FieldInfo) -> str:
    """As the page writes it: JSON, and nothing for a key that must be there."""
    if field.default_factory is not msgspec.NODEFAULT:
        return json.dumps(field.default_factory())
    return "" if field.default is msgspec.NODEFAULT else json.dumps(field.default)


def test_the_page_has_a_section_for_everything() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert headings == list(SECTIONS)
    assert {field.name for field in msgspec.structs.fields(Config)} >= TABLES


def test_the_example_can_be_read() -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    config = parse(example, Path("config.toml"))
    assert sorted(config.providers) == ["anthropic", "local"]
