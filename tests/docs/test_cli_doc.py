"""The page of the command line says what is: commands, options, exit codes, kinds of errors, and JSON shapes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

from crabstore.answers import failures
from crabstore.answers.failures import ExitCode
from crabstore.cli import app
from crabstore.cli.app import build, main
from crabstore.daemon import home

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
GLOBAL = {"--store", "--json", "--help", "--version"}


def sections() -> dict[str, str]:
    """The text under each command's heading, by the command's words."""
    parts = re.split(r"^## `crabstore ([a-z ]+[a-z])[^`]*`\n", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Every command, and its own options."""
    command = command or get_command(build())
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(words), {name for parameter in command.params for name in parameter.opts} - GLOBAL
        return
    for name, child in children.items():
        yield from commands(child, (*words, name))


COMMANDS = {name: {option for option in options if option[0] == "-"} for name, options in commands()}


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert sorted(sections()) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_are_those_of_its_section(name: str) -> None:
    items = re.findall(r"^- (`-.*?)$", sections()[name], re.MULTILINE)
    described = {option for item in items for option in re.findall(r"`(--?[a-z]+)", item)}
    assert described == COMMANDS[name]


def rows(head: str) -> list[list[str]]:
    """The cells of the table that begins with this head."""
    table = PAGE[PAGE.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]


def test_the_exit_codes_are_those_of_the_program() -> None:
    assert [(int(code), name) for code, name, _ in rows("| code |")] == [(int(e), e.name) for e in ExitCode]


def test_the_kinds_of_errors_are_those_of_the_program() -> None:
    rooms = [Path(module.__file__ or "").parent for module in (failures, app, home)]
    source = "\n".join(path.read_text(encoding="utf-8") for room in rooms for path in room.glob("*.py"))
    used = {
        (kind, int(ExitCode[code])) for code, kind in re.findall(r'ExitCode\.([A-Z]+),\s*"([a-z-]+)"', source)
    }
    assert {(kind, int(code)) for kind, code, _ in rows("| kind |")} == used


def shape(value: Any) -> Any:
    """The names in a document: lists by their first element."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value and isinstance(value[0], dict) else []
    return None


@pytest.fixture(scope="module")
def cli() -> ModuleType:
    """What the tests of the command line share: a filled store."""
    spec = importlib.util.spec_from_file_location("cli_conftest", ROOT / "tests" / "cli" / "conftest.py")
    assert spec and spec.loader
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


ARGUMENTS: dict[str, list[str]] = {
    "import": ["talk.jsonl"],
    "search": ["retry"],
    "sessions show": ["aaa-retry", "--at", "0", "--context", "0"],
    "sessions export": ["aaa-retry", "-o", "out.jsonl"],
    "sessions delete": ["aaa-retry", "--yes"],
    "agents add": ["coder", "--from", "agent.json"],
    "agents remove": ["codex"],
    "memory remove": ["deploys"],
    "memory search": ["fridays"],
    "skills show": ["deploy-app"],
    "skills add": ["good.md", "bad.md"],
    "skills remove": ["deploy-app"],
    "backup": ["copy.crmem"],
}
SERVED = {"demo", "serve", "chat", "run", "steer", "cancel"}
"""Commands whose examples are compared elsewhere: they take longer, or need a daemon."""
EXAMPLES = {
    name: json.loads(block)
    for name, text in sections().items()
    if name not in SERVED
    for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_the_shape_of_the_answer(
    cli: ModuleType,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "store.crmem"
    asyncio.run(cli._fill(store))
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    Path("talk.jsonl").write_text(json.dumps({"messages": talk}) + "\nno json\n")
    Path("agent.json").write_text(json.dumps(EXAMPLES["agents add"]))
    Path("good.md").write_text(cli.SKILL)
    Path("bad.md").write_text("no front matter")
    if name == "stats":
        main(["verify", "--store", str(store)])
        capsys.readouterr()
    main([*name.split(), *ARGUMENTS.get(name, []), "--json", "--store", str(store)])
    answer = json.loads(capsys.readouterr().out)
    assert shape(without_verbatim(EXAMPLES[name])) == shape(without_verbatim(answer))


def without_verbatim(document: dict[str, Any]) -> dict[str, Any]:
    """What was recorded verbatim has the shape that its program gave it."""
    for message in document.get("messages", []):
        message.pop("message")
    return document


def test_the_help_names_the_default_store_as_the_page_does() -> None:
    assert "~/.crabstore/store.crmem" in PAGE and "CRABSTORE_URL" in PAGE
